// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/text/render.h"
#include "text/jinja_methods.h"

namespace trivet::text {
namespace {

TEST(JinjaStringMethods, StripSplitJoin) {
  EXPECT_EQ(Print("'  a b '.strip() ~ '|' ~ 'xax'.lstrip('x') ~ '|' ~ 'xax'.rstrip('x')"), "a b|ax|xa");
  EXPECT_EQ(Print("'a,b,c'.split(',', 1) + 'a b'.split() + 'a,b,c'.rsplit(',', maxsplit=1)"),
            "['a', 'b,c', 'a', 'b', 'a,b', 'c']");
  EXPECT_EQ(Print("'a\\nb'.splitlines() + 'a\\nb'.splitlines(true)"), "['a', 'b', 'a\\n', 'b']");
  EXPECT_EQ(Print("', '.join(['a', 'b'])"), "a, b");
  EXPECT_EQ(Print("'a-b-c'.partition('-') + 'a-b-c'.rpartition('-')"), "('a', '-', 'b-c', 'a-b', '-', 'c')");
  EXPECT_TRUE(Fails("{{ 'a'.split('') }}"));
  EXPECT_TRUE(Fails("{{ 'a'.join([1]) }}"));
}

TEST(JinjaStringMethods, FindAndTest) {
  EXPECT_EQ(
      Print("['h\u00e9llo'.find('l'), 'hello'.rfind('l'), 'a'.find('b'), 'hello'.find('l', 3), 'aaa'.count('a')]"),
      "[2, 3, -1, 3, 3]");
  EXPECT_EQ(
      Print("['abc'.startswith('a'), 'abc'.endswith(('x', 'c')), 'abc'.startswith('b', 1), 'abc'.startswith('', 4)]"),
      "[True, True, True, False]");
  EXPECT_EQ(Print("['12'.isdigit(), 'ab'.isalpha(), 'Ab'.isupper(), ''.isalpha()]"), "[True, True, False, False]");
  EXPECT_TRUE(Fails("{{ 'abc'.index('z') }}"));
  EXPECT_TRUE(Fails("{{ 'abc'.startswith(1) }}"));
}

TEST(JinjaStringMethods, Change) {
  EXPECT_EQ(Print("'aXa'.replace('a', 'b', 1) ~ 'ab'.upper() ~ 'AB'.lower() ~ 'a b'.title() ~ 'aB'.capitalize()"),
            "bXaABabA BAb");
  EXPECT_EQ(Print("'abc'.removeprefix('a') ~ 'abc'.removesuffix('c') ~ 'abc'.removesuffix('x')"), "bcababc");
  EXPECT_EQ(Print("'[' ~ 'a'.center(4) ~ 'a'.ljust(3, '*') ~ 'a'.rjust(3) ~ '-5'.zfill(4) ~ ']'"), "[ a  a**  a-005]");
  EXPECT_EQ(Print("'a\\tb'.expandtabs(4)"), "a   b");
  EXPECT_TRUE(Fails("{{ 'a'.center(100000000) }}"));
  EXPECT_TRUE(Fails("{{ ('a' * 100000).replace('a', 'b' * 1000) }}"));
}

TEST(JinjaStringMethods, ArgumentsAreChecked) {
  EXPECT_TRUE(Fails("{{ 'a'.upper(1) }}"));
  EXPECT_TRUE(Fails("{{ 'a'.strip(chars='a') }}"));
  EXPECT_TRUE(Fails("{{ 'a'.replace('a') }}"));
  EXPECT_TRUE(Fails("{{ 'a'.replace('a', 1) }}"));
}

TEST(JinjaStringMethods, MarkupEscapesWhatItTakesIn) {
  EXPECT_EQ(Print("('<'|safe) + '<'"), "<&lt;");
  EXPECT_EQ(Print("('a'|safe).replace('a', '<')"), "&lt;");
  EXPECT_EQ(Print("('<'|safe).join(['>', '&'|safe])"), "&gt;<&");
  EXPECT_EQ(Print("('{}'|safe).format('<') ~ ('%s'|safe) % '<'"), "&lt;&lt;");
}

}  // namespace
}  // namespace trivet::text
