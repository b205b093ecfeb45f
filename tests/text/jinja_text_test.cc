// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::text::jinja {
namespace {

using ::testing::ElementsAre;

TEST(JinjaText, CodePoints) {
  EXPECT_EQ(CountCodePoints("h\u00e9\U0001F600"), 3);
  EXPECT_EQ(ByteOffset("h\u00e9x", 2), 3U);
  EXPECT_EQ(ByteOffset("h\u00e9x", 9), 4U);
  EXPECT_THAT(Characters("h\u00e9"), ElementsAre("h", "\u00e9"));
}

TEST(JinjaText, LetterCase) {
  EXPECT_EQ(Upper("stra\u00dfe \ufb01"), "STRASSE FI");
  EXPECT_EQ(Lower("\u0391\u03a3 \u03a3 \u0391\u03a3\u0392"), "\u03b1\u03c2 \u03c3 \u03b1\u03c3\u03b2");
  EXPECT_EQ(Lower("\u0130"), "i\u0307");
  EXPECT_EQ(Title("they're b1ll's \u01c6"), "They'Re B1Ll'S \u01c5");
  EXPECT_EQ(Capitalize("hELLO wORLD"), "Hello world");
  EXPECT_EQ(SwapCase("aB\u00df"), "AbSS");
  EXPECT_EQ(CaseFold("\u00dfA"), "ssa");
}

TEST(JinjaText, Classes) {
  EXPECT_TRUE(IsAll("a\u00e9", TextClass::kAlpha));
  EXPECT_FALSE(IsAll("a\u0301", TextClass::kAlpha));
  EXPECT_TRUE(IsAll("1\u00b2\u0662", TextClass::kDigit));
  EXPECT_FALSE(IsAll("\u00b2", TextClass::kDecimal));
  EXPECT_FALSE(IsAll("", TextClass::kDigit));
  EXPECT_TRUE(IsAll("", TextClass::kAscii));
  EXPECT_TRUE(IsAll("A 1", TextClass::kUpper));
  EXPECT_FALSE(IsAll("1", TextClass::kUpper));
  EXPECT_TRUE(IsAll("Ab Cd", TextClass::kTitle));
  EXPECT_FALSE(IsAll("AB", TextClass::kTitle));
  EXPECT_TRUE(IsSpace(0x1c));
  EXPECT_FALSE(IsSpace(0x200b));
}

TEST(JinjaText, Strip) {
  EXPECT_EQ(Strip(" \u00a0a b\n"), "a b");
  EXPECT_EQ(Strip("xxaxx", {true, false}, "x"), "axx");
  EXPECT_EQ(Strip("\u00e9a\u00e9", {}, "\u00e9"), "a");
  EXPECT_EQ(Strip(" a ", {}, ""), " a ");
}

TEST(JinjaText, Split) {
  EXPECT_THAT(SplitOn("a,b,,c", ",", {}), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(SplitOn("a,b,c", ",", {1, false}), ElementsAre("a", "b,c"));
  EXPECT_THAT(SplitOn("a,b,c", ",", {1, true}), ElementsAre("a,b", "c"));
  EXPECT_THAT(SplitOn("aaa", "aa", {-1, true}), ElementsAre("a", ""));
  EXPECT_THAT(SplitSpace("  a  b ", {}), ElementsAre("a", "b"));
  EXPECT_THAT(SplitSpace("  a  b c ", {1, false}), ElementsAre("a", "b c "));
  EXPECT_THAT(SplitSpace("  a  b c ", {1, true}), ElementsAre("  a  b", "c"));
  EXPECT_THAT(SplitSpace(" ", {}), ElementsAre());
  EXPECT_THAT(SplitLines("a\r\nb\u2028c\n", false), ElementsAre("a", "b", "c"));
  EXPECT_THAT(SplitLines("a\n\nb", true), ElementsAre("a\n", "\n", "b"));
}

TEST(JinjaText, FindCountReplace) {
  EXPECT_EQ(Find("abcabc", "bc", 2), 4U);
  EXPECT_EQ(FindLast("abcabc", "bc"), 4U);
  EXPECT_EQ(FindLast("abc", "x"), std::string_view::npos);
  EXPECT_EQ(CountOccurrences("aaaa", "aa"), 2);
  EXPECT_EQ(CountOccurrences("\u00e9x", ""), 3);
  EXPECT_EQ(Replace("aaa", {"a", "bb", 2}, 100), "bbbba");
  EXPECT_EQ(Replace("\u00e9x", {"", "-", -1}, 100), "-\u00e9-x-");
  EXPECT_EQ(Replace("ab", {"", "-", 2}, 100), "-a-b");
  EXPECT_EQ(Replace("aaaa", {"a", "bb", -1}, 5), std::nullopt);
}

TEST(JinjaText, SearchTakesLinearTime) {
  const std::string text(1 << 20, 'a');
  const std::string needle = std::string(1 << 19, 'a') + "b";
  EXPECT_EQ(Find(text, needle), std::string_view::npos);
  EXPECT_EQ(FindLast(text, "b" + std::string(1 << 19, 'a')), std::string_view::npos);
}

}  // namespace
}  // namespace trivet::text::jinja
