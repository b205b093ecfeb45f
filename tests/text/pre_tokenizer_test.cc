// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<PreTokenizer> Read(std::string_view text) {
  return PreTokenizer::FromJson(ParseJson(text, "test").value(), "file");
}

std::vector<std::string> Words(std::string_view json, std::string text, bool at_start = true) {
  const auto pre_tokenizer = Read(json);
  EXPECT_TRUE(pre_tokenizer.ok()) << json;
  return pre_tokenizer.ok() ? pre_tokenizer->Split(std::move(text), at_start).value() : std::vector<std::string>();
}

std::vector<std::string> SplitBy(const std::string& behavior, const std::string& invert = "false") {
  return Words(
      R"({"type": "Split", "pattern": {"Regex": "-"}, "behavior": ")" + behavior + R"(", "invert": )" + invert + "}",
      "the-final--countdown");
}

TEST(PreTokenizer, NullLeavesOneWord) {
  EXPECT_THAT(Words("null", "a b"), ElementsAre("a b"));
  EXPECT_THAT(Words("null", ""), ElementsAre());
}

TEST(PreTokenizer, SplitHasFiveBehaviors) {
  EXPECT_THAT(SplitBy("Isolated"), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(SplitBy("Removed"), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(SplitBy("MergedWithPrevious"), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(SplitBy("MergedWithNext"), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(SplitBy("Contiguous"), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(SplitBy("Removed", "true"), ElementsAre("-", "-", "-"));
}

TEST(PreTokenizer, ByteLevelMapsBytesAndSplitsOnRequest) {
  EXPECT_THAT(Words(R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true})", "é's  b"),
              ElementsAre("ĠÃ©", "'s", "Ġ", "Ġb"));
  EXPECT_THAT(Words(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})", " a b"),
              ElementsAre("ĠaĠb"));
}

TEST(PreTokenizer, MetaspaceMarksWords) {
  EXPECT_THAT(Words(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})", "a b", false),
              ElementsAre("▁a", "▁b"));
  EXPECT_THAT(Words(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})", "a b"),
              ElementsAre("▁a", "▁b"));
  EXPECT_THAT(Words(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})", "a b", false),
              ElementsAre("a", "▁b"));
  EXPECT_THAT(Words(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "never", "split": false})", "a b"),
              ElementsAre("a_b"));
}

TEST(PreTokenizer, TheOtherTypes) {
  EXPECT_THAT(Words(R"({"type": "Digits", "individual_digits": true})", "a12½"), ElementsAre("a", "1", "2", "½"));
  EXPECT_THAT(Words(R"({"type": "Digits", "individual_digits": false})", "a12½"), ElementsAre("a", "12½"));
  EXPECT_THAT(Words(R"({"type": "Whitespace"})", "a\u200d1-- b"), ElementsAre("a\u200d1", "--", "b"));
  EXPECT_THAT(Words(R"({"type": "WhitespaceSplit"})", "a-\u3000b "), ElementsAre("a-", "b"));
  EXPECT_THAT(Words(R"({"type": "Punctuation"})", "a$«b"), ElementsAre("a", "$", "«", "b"));
}

TEST(PreTokenizer, SequencesRunInOrder) {
  EXPECT_THAT(Words(R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
      {"type": "Digits", "individual_digits": true}]})",
                    "a1 b"),
              ElementsAre("a", "1", "b"));
}

TEST(PreTokenizer, RefusesByName) {
  const auto pre_tokenizer = Read(R"({"type": "UnicodeScripts"})");
  ASSERT_FALSE(pre_tokenizer.ok());
  EXPECT_EQ(pre_tokenizer.error().code, Code::kUnsupported);
  EXPECT_THAT(pre_tokenizer.error().message, HasSubstr("UnicodeScripts"));
  EXPECT_FALSE(Read(R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Dropped"})").ok());
  EXPECT_FALSE(Read(R"({"type": "Split", "behavior": "Isolated"})").ok());
  EXPECT_FALSE(Read(R"({"type": "Metaspace", "replacement": "ab"})").ok());
}

}  // namespace
}  // namespace trivet::text
