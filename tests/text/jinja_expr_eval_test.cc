// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_expr_eval.h"

#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

TEST(JinjaExprEval, OperatorsGiveOperands) {
  EXPECT_EQ(Print("0 or 'x'"), "x");
  EXPECT_EQ(Print("0 and missing.x"), "0");
  EXPECT_EQ(Print("1 or missing.x"), "1");
  EXPECT_EQ(Print("not 0"), "True");
}

TEST(JinjaExprEval, ComparisonsChain) {
  EXPECT_EQ(Print("1 < 2 < 3"), "True");
  EXPECT_EQ(Print("1 < 2 > 3"), "False");
  EXPECT_EQ(Print("3 < 2 < missing.x"), "False");
}

TEST(JinjaExprEval, InlineIf) {
  EXPECT_EQ(Print("1 if true else 2"), "1");
  EXPECT_EQ(Print("[1 if false]"), "[Undefined]");
  EXPECT_EQ(Print("1 if false"), "");
}

TEST(JinjaExprEval, CallsTakeStarsAndKeywords) {
  EXPECT_EQ(Print("'{}{a}'.format(*[1], **{'a': 2})"), "12");
  EXPECT_EQ(Print("dict(a=1, **{'b': 2})"), "{'a': 1, 'b': 2}");
  EXPECT_TRUE(Fails("{{ dict(**1) }}"));
  EXPECT_TRUE(Fails("{{ 5() }}"));
  EXPECT_TRUE(Fails("{{ missing() }}"));
}

TEST(JinjaExprEval, NamesComeFromScopeThenContextThenFunctions) {
  EXPECT_EQ(Render("{{ x }}{% set x = 2 %}{{ x }}", R"({"x": 1})"), "12");
  EXPECT_EQ(Print("range", R"({"range": 5})"), "5");
  EXPECT_EQ(Print("missing"), "");
}

}  // namespace
}  // namespace trivet::text
