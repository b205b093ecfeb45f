// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_expr_parser.h"

#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

TEST(JinjaExprParser, Precedence) {
  EXPECT_EQ(Print("1 + 2 * 3 ** 2"), "19");
  EXPECT_EQ(Print("-2 ** 2"), "4");
  EXPECT_EQ(Print("2 ** 3 ** 2"), "64");
  EXPECT_EQ(Print("not 1 == 2"), "True");
  EXPECT_EQ(Print("1 + 1 if false else 5"), "5");
  EXPECT_EQ(Print("-3|abs"), "3");
  EXPECT_EQ(Print("2 in [1] + [2]"), "True");
  EXPECT_EQ(Print("3 not in [1]"), "True");
}

TEST(JinjaExprParser, LiteralsAndTuples) {
  EXPECT_EQ(Print("1, 2"), "(1, 2)");
  EXPECT_EQ(Print("(1,)"), "(1,)");
  EXPECT_EQ(Print("()"), "()");
  EXPECT_EQ(Print("[1, [2], {'a': (3,)},]"), "[1, [2], {'a': (3,)}]");
  EXPECT_EQ(Print("'a' 'b'"), "ab");
  EXPECT_EQ(Print("[true, False, none, None]"), "[True, False, None, None]");
}

TEST(JinjaExprParser, PostfixAndSlices) {
  EXPECT_EQ(Print("[[1, 2]][0][1]"), "2");
  EXPECT_EQ(Print("[5, 6].1"), "6");
  EXPECT_EQ(Print("'abcdef'[1:4]"), "bcd");
  EXPECT_EQ(Print("'abcdef'[::-2]"), "fdb");
  EXPECT_EQ(Print("'abc'[:]"), "abc");
  EXPECT_EQ(Print("'a'.upper().lower()"), "a");
}

TEST(JinjaExprParser, TestsTakeOneArgumentWithoutBrackets) {
  EXPECT_EQ(Print("6 is divisibleby 3 and true"), "True");
  EXPECT_EQ(Print("1 is not none"), "True");
  EXPECT_EQ(Print("1 is in [1, 2]"), "True");
  EXPECT_TRUE(Fails("{{ 1 is odd is even }}"));
}

TEST(JinjaExprParser, RefusesMalformedExpressions) {
  for (const char* source :
       {"1 +",  "* 1",       "a b",         "1 if",      "a.",        "a[", "a[]",  "a[1:2:3:4]", "[1 2]", "{1}",
        "{1:}", "f(a=1, 2)", "f(a=1, a=2)", "f(**a, 1)", "f(*a, *b)", "a|", "a is", "a = 1",      "not",   "a[1, 2]"}) {
    EXPECT_TRUE(Fails(std::string("{{ ") + source + " }}")) << source;
  }
}

TEST(JinjaExprParser, NestingIsBounded) {
  for (const char* piece : {"(", "[", "{1:", "-", "not ", "a(", "a[", "1 if 1 else ", "a|d("}) {
    std::string source = "{{ ";
    for (int i = 0; i < 5000; ++i) source += piece;
    EXPECT_TRUE(Fails(source)) << piece;
  }
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  EXPECT_TRUE(Fails(sum + " }}"));
  std::string concat = "{{ 1";
  for (int i = 0; i < 1000; ++i) concat += " ~ 1";
  EXPECT_EQ(Render(concat + " }}"), std::string(1001, '1'));
}

}  // namespace
}  // namespace trivet::text
