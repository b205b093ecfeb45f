// SPDX-License-Identifier: Apache-2.0
#include "text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The pieces of `text`, matches in brackets.
std::vector<std::string> Pieces(const Regex& regex, std::string_view text) {
  std::vector<std::string> pieces;
  const auto spans = regex.Split(text);
  EXPECT_TRUE(spans.ok());
  if (!spans.ok()) return pieces;
  for (const Span& span : *spans) {
    const std::string piece(text.substr(span.begin, span.end - span.begin));
    pieces.push_back(span.match ? "[" + piece + "]" : piece);
  }
  return pieces;
}

std::vector<std::string> Pieces(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern, "test");
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.error().message;
  return regex.ok() ? Pieces(*regex, text) : std::vector<std::string>();
}

TEST(Regex, SplitsIntoMatchesAndGaps) {
  EXPECT_THAT(Pieces("b+", "abbcb"), ElementsAre("a", "[bb]", "c", "[b]"));
  EXPECT_THAT(Pieces("x", "abc"), ElementsAre("abc"));
  EXPECT_THAT(Pieces("x", ""), ElementsAre());
  EXPECT_THAT(Pieces("a|ab", "ab"), ElementsAre("[a]", "b"));  // the first alternative, not the longest
}

TEST(Regex, EmptyMatchesAdvance) {
  EXPECT_THAT(Pieces("x*", "axb"), ElementsAre("[]", "a", "[x]", "b", "[]"));
  EXPECT_THAT(Pieces("(?=b)", "éb"), ElementsAre("é", "[]", "b"));
}

TEST(Regex, WordsOfGpt2) {
  EXPECT_THAT(Pieces(R"('s| ?\p{L}+| ?\p{N}+|\s+(?!\S)|\s+)", "it's  éa 12 \n"),
              ElementsAre("[it]", "['s]", "[ ]", "[ éa]", "[ 12]", "[ \n]"));
}

TEST(Regex, CaseFoldsAsUnicodeDoes) {
  EXPECT_THAT(Pieces("(?i:'s)", "'S'\u017f's"), ElementsAre("['S]", "['\u017f]", "['s]"));
}

TEST(Regex, SpaceAndWordFollowTheFilesDialect) {
  EXPECT_THAT(Pieces(R"(\s)", "a\u180eb\u0085\u3000"), ElementsAre("a\u180eb", "[\u0085]", "[\u3000]"));
  EXPECT_THAT(Pieces(R"(\w+)", "a\u0301_1-²½"), ElementsAre("[a\u0301_1]", "-", "[²½]"));
  EXPECT_THAT(Pieces(R"([\w]+)", "a²"), ElementsAre("[a]", "²"));
  EXPECT_THAT(Pieces(R"(\h+)", "xA0 "), ElementsAre("x", "[A0]", " "));
  EXPECT_THAT(Pieces(R"(^.)", "a\nb"), ElementsAre("[a]", "\n", "[b]"));
}

TEST(Regex, TranslatesIntervalsAndNumbers) {
  EXPECT_EQ(Regex::Translate(R"(a{,2}b{1,3}?c{x}d{2}\u4e2d\x41\x{1F600}\p{Han}\p{^L}[\s\v])", "test").value(),
            R"(a{0,2}b{1,3}?c\{x}d{2}\x{4e2d}\x{41}\x{1F600}\p{sc:Han}\p{^L}[\p{White_Space}\x0b])");
}

TEST(Regex, RefusesWhatItDoesNotKnow) {
  for (const char* pattern : {R"(\1)",          R"(\G)",      R"(\R)",     R"(\K)",          R"([a[b]])", R"([a&&b])",
                              R"([[:alpha:]])", R"([\W])",    R"(a(?i)b)", R"((?<name>a))",  R"((?m:a))", R"((*UTF))",
                              R"(a{2}?)",       R"(a{1,2}+)", R"(\pL)",    R"(\xff)",        R"(\x{)",    R"([a)",
                              R"([])",          R"(\)",       R"(\p{L1})", R"(\p{Nonsense})"}) {
    const auto regex = Regex::Compile(pattern, "file");
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.error().code, Code::kUnsupported) << pattern;
    EXPECT_THAT(regex.error().message, HasSubstr("file: "));
  }
}

TEST(Regex, RefusesMalformedExpressions) {
  for (const char* pattern : {"(a", "a)", "*", "[b-a]", "a**"}) {
    const auto regex = Regex::Compile(pattern, "file");
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.error().code, Code::kInvalid) << pattern;
  }
}

TEST(Regex, LiteralsMatchThemselves) {
  const auto regex = Regex::Literal(".*", "test");
  ASSERT_TRUE(regex.ok());
  EXPECT_THAT(Pieces(*regex, "a.*b"), ElementsAre("a", "[.*]", "b"));
  EXPECT_FALSE(Regex::Literal("", "test").ok());
}

TEST(Regex, TooMuchBacktrackingIsAnError) {
  const auto regex = Regex::Compile("(a+a+)+[bc]", "test");
  ASSERT_TRUE(regex.ok());
  const auto spans = regex->Split(std::string(40, 'a'));
  ASSERT_FALSE(spans.ok());
  EXPECT_EQ(spans.error().code, Code::kCapacity);
}

TEST(Regex, DeepGroupsOnLongTextsFallBackFromTheFixedStack) {
  const auto regex = Regex::Compile("(?:(a)|(b))+c", "test");
  ASSERT_TRUE(regex.ok());
  const std::string text = std::string(20'000, 'a') + "c";
  EXPECT_THAT(Pieces(*regex, text), ElementsAre("[" + text + "]"));
}

}  // namespace
}  // namespace trivet::text
