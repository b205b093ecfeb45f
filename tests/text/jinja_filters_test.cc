// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_filters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

using ::testing::HasSubstr;

TEST(JinjaFilters, Texts) {
  EXPECT_EQ(Print("' a '|trim ~ 'ab'|upper ~ 'AB'|lower ~ 'aB'|capitalize ~ 'xax'|trim('x')"), "aABabAba");
  EXPECT_EQ(Print("\"they're x-y (z\"|title"), "They're X-Y (Z");
  EXPECT_EQ(Print("'aab'|replace('a', 'x', 1)"), "xab");
  EXPECT_EQ(Print("5|string ~ none|upper ~ missing|upper"), "5NONE");
  EXPECT_EQ(Print("'a b_c, d'|wordcount"), "3");
  EXPECT_EQ(Print("'[' ~ 'a'|center(4) ~ ']'"), "[ a  ]");
  EXPECT_EQ(Print("'foo bar baz qux'|truncate(9)"), "foo...");
}

TEST(JinjaFilters, Indent) {
  EXPECT_EQ(Print("'a\\n\\nb'|indent(2)"), "a\n\n  b");
  EXPECT_EQ(Print("'a\\n\\nb'|indent('>', true, true)"), ">a\n>\n>b");
  EXPECT_EQ(Print("'a\\n'|indent"), "a\n");
  EXPECT_TRUE(Fails("{{ 5|indent }}"));
}

TEST(JinjaFilters, Numbers) {
  EXPECT_EQ(Print("['12'|int, ' 1_0 '|int, '12.7'|int, 'x'|int, 'x'|int(5), '1f'|int(base=16), 3.9|int, none|int]"),
            "[12, 10, 12, 0, 5, 31, 3, 0]");
  EXPECT_EQ(Print("['1.5'|float, 'x'|float, 'inf'|float, '-1e3'|float]"), "[1.5, 0.0, inf, -1000.0]");
  EXPECT_EQ(Print("[2.5|round, 3.5|round, 2.675|round(2), 5|round, 4.2|round(0, 'ceil'), 1250|round(-2)]"),
            "[2.0, 4.0, 2.67, 5, 5.0, 1200]");
  EXPECT_EQ(Print("[-3|abs, -0.0|abs, true|abs]"), "[3, 0.0, 1]");
  EXPECT_TRUE(Fails("{{ '99999999999999999999'|int }}"));
  EXPECT_TRUE(Fails("{{ missing|int }}"));
  EXPECT_TRUE(Fails("{{ 'a'|abs }}"));
}

TEST(JinjaFilters, Default) {
  EXPECT_EQ(Print("missing|default('a') ~ none|default('b') ~ ''|d('c', true) ~ missing|d"), "aNonec");
}

TEST(JinjaFilters, Escape) { EXPECT_EQ(Print("'<'|e ~ '<'|safe ~ '<'|e|e ~ '<'|e|forceescape"), "&lt;<&lt;&amp;lt;"); }

TEST(JinjaFilters, FormatAndLength) {
  EXPECT_EQ(Print("'%s %s'|format(1, 2) ~ '%(a)s'|format(a=3)"), "1 23");
  EXPECT_EQ(Print("['h\u00e9'|length, [1]|count, {}|length, missing|length]"), "[2, 1, 0, 0]");
  EXPECT_TRUE(Fails("{{ 5|length }}"));
}

TEST(JinjaFilters, UnknownOnesFail) {
  EXPECT_TRUE(Fails("{{ 1|nosuch }}"));
  EXPECT_TRUE(Fails("{{ [1]|map('nosuch')|list }}"));
  EXPECT_THAT(Render("{{ 'a'|upper(1) }}"), HasSubstr("upper"));
}

}  // namespace
}  // namespace trivet::text
