// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

using ::testing::HasSubstr;

TEST(JinjaAccess, AttributesComeBeforeItemsAfterADot) {
  const char* context = R"({"d":{"items":1,"x":2,"get":3,"pop":4}})";
  EXPECT_EQ(Print("d.x ~ d['x']", context), "22");
  EXPECT_EQ(Print("d['items'] ~ d.items()|length", context), "14");
  EXPECT_EQ(Print("d['pop'] ~ (d.pop is defined)", context), "4False");
  EXPECT_EQ(Print("d.y is defined", context), "False");
}

TEST(JinjaAccess, UndefinedHasNothing) {
  EXPECT_THAT(Render("{{ missing.x }}"), HasSubstr("\"missing\""));
  EXPECT_THAT(Render("{{ {}.a.b }}"), HasSubstr("\"a\" of a dict"));
  EXPECT_TRUE(Fails("{{ missing[0] }}"));
  EXPECT_EQ(Print("[][0]"), "");
  EXPECT_EQ(Print("5.x if false else (5).x"), "");
}

TEST(JinjaAccess, NothingChangesAValue) {
  EXPECT_EQ(Print("[[1].append is defined, {}.update is defined, [1].sort]"), "[False, False, Undefined]");
  EXPECT_TRUE(Fails("{{ [1].append(2) }}"));
  EXPECT_TRUE(Fails("{{ {}.pop('a') }}"));
}

TEST(JinjaAccess, PrivateNamesAreHidden) {
  EXPECT_EQ(Print("''.__class__"), "");
  EXPECT_TRUE(Fails("{{ ''.__class__.__mro__ }}"));
  EXPECT_EQ(Print("namespace(_a=1)._a"), "");
}

TEST(JinjaAccess, UnsupportedMethodsAreNamed) { EXPECT_THAT(Render("{{ 'a'.encode() }}"), HasSubstr("encode")); }

TEST(JinjaAccess, StringsIndexByCodePoint) {
  EXPECT_EQ(Print("'h\u00e9\U0001F600'[1] ~ 'h\u00e9\U0001F600'[-1]"), "\u00e9\U0001F600");
  EXPECT_EQ(Print("'abc'[true]"), "b");
  EXPECT_EQ(Print("'abc'[9]"), "");
}

TEST(JinjaAccess, ValuesWithAttributes) {
  EXPECT_EQ(Print("[range(1, 5, 2).stop, (5).real, 1.5.imag]"), "[5, 5, 0.0]");
  EXPECT_EQ(Render("{% macro m(a, b=1) %}{{ kwargs }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}"),
            "m('a', 'b')True");
}

}  // namespace
}  // namespace trivet::text
