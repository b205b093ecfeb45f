// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Added tokens over a vocabulary of two, with a normalizer that makes lower case.
Result<AddedTokens> Read(const std::string& list, const std::string& config = "null") {
  const auto parse = [](const std::string& text) { return ParseJson(text, "test").value(); };
  const Json tokenizer = parse("{\"added_tokens\": " + list + "}");
  const Json tokenizer_config = parse(config);
  const auto model = Bpe::FromJson(parse(R"({"vocab": {"a": 0, "b": 1}, "merges": []})"), "test");
  const auto normalizer = Normalizer::FromJson(parse(R"({"type": "Lowercase"})"), "test");
  return AddedTokens::FromJson({tokenizer, tokenizer_config, *model, *normalizer}, "file");
}

// The segments of `text`, tokens as numbers in brackets.
std::vector<std::string> Segments(const Result<AddedTokens>& added, std::string_view text,
                                  AddedTokens::Pass pass = AddedTokens::Pass::kRaw, bool parse_special = true) {
  std::vector<std::string> segments;
  EXPECT_TRUE(added.ok());
  if (!added.ok()) return segments;
  for (const AddedTokens::Segment& segment : added->Split(text, pass, parse_special)) {
    segments.push_back(segment.token.has_value()
                           ? "[" + std::to_string(*segment.token) + "]"
                           : std::string(text.substr(segment.begin, segment.end - segment.begin)));
  }
  return segments;
}

TEST(PrefixTree, FindsTheLongestKey) {
  PrefixTree tree;
  tree.Add("ab", 1);
  tree.Add("abcd", 2);
  tree.Add("ab", 3);
  tree.Add("", 4);
  EXPECT_EQ(tree.Longest("xabc", 1)->value, 1);
  EXPECT_EQ(tree.Longest("xabc", 1)->length, 2U);
  EXPECT_EQ(tree.Longest("abcd", 0)->value, 2);
  EXPECT_FALSE(tree.Longest("xabc", 0).has_value());
}

TEST(AddedTokens, LeftmostThenLongest) {
  const auto added =
      Read(R"([{"id": 2, "content": "<|", "special": true}, {"id": 3, "content": "<|x|>", "special": true},
      {"id": 4, "content": "|>y", "special": true}])");
  EXPECT_THAT(Segments(added, "a<|x|>y<|x"), ElementsAre("a", "[3]", "y", "[2]", "x"));
  EXPECT_THAT(Segments(added, ""), ElementsAre());
  EXPECT_THAT(Segments(added, "a<|x|>", AddedTokens::Pass::kRaw, false), ElementsAre("a<|x|>"));
}

TEST(AddedTokens, SingleWordNeedsNoWordBeside) {
  const auto added = Read(R"([{"id": 2, "content": "it", "single_word": true, "normalized": false}])");
  EXPECT_THAT(Segments(added, "it bit it- ité 1it it"), ElementsAre("[2]", " bit ", "[2]", "- ité 1it ", "[2]"));
}

TEST(AddedTokens, StripTakesSpaceAlong) {
  const auto added = Read(R"([{"id": 2, "content": "<l>", "lstrip": true, "special": true},
      {"id": 3, "content": "<r>", "rstrip": true, "special": true}])");
  EXPECT_THAT(Segments(added, "a \u3000<l> b <r> \n c"), ElementsAre("a", "[2]", " b ", "[3]", "c"));
  EXPECT_THAT(Segments(added, "<r> \n <l>"), ElementsAre("[3]", "[2]"));
}

TEST(AddedTokens, NormalizedOnesMatchNormalizedText) {
  const auto added = Read(R"([{"id": 2, "content": "THE", "normalized": true}])");
  EXPECT_THAT(Segments(added, "the THE"), ElementsAre("the THE"));
  EXPECT_THAT(Segments(added, "the THE", AddedTokens::Pass::kNormalized), ElementsAre("[2]", " THE"));
  EXPECT_EQ(added->OfId(2)->content, "THE");
  EXPECT_EQ(added->OfId(2)->piece, "the");
}

TEST(AddedTokens, LookUp) {
  const auto added = Read(R"([{"id": 1, "content": "b"}, {"id": 2, "content": "<s>", "special": true}])");
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->IdOf("<s>"), 2);
  EXPECT_EQ(added->IdOf("b"), 1);
  EXPECT_FALSE(added->IdOf("a").has_value());
  EXPECT_TRUE(added->OfId(2)->special);
  EXPECT_EQ(added->OfId(0), nullptr);
  EXPECT_EQ(added->id_end(), 3);
}

TEST(AddedTokens, TheConfigMayHoldMore) {
  const auto added = Read(R"([{"id": 2, "content": "<s>", "special": true}])", R"({"added_tokens_decoder": {
      "4": {"content": "<b>", "special": true}, "2": {"content": "<s>", "special": false},
      "3": {"content": "<a>", "special": true}}})");
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->IdOf("<a>"), 3);
  EXPECT_EQ(added->IdOf("<b>"), 4);
  EXPECT_TRUE(added->OfId(2)->special);
}

TEST(AddedTokens, IdsMustAgreeWithTheVocabulary) {
  for (const char* list : {R"([{"id": 5, "content": "<s>"}])", R"([{"id": 2, "content": "a"}])",
                           R"([{"id": 2, "content": "<s>"}, {"id": 2, "content": "<t>"}])",
                           R"([{"id": -1, "content": "<s>"}])", R"([{"id": 9999999999, "content": "<s>"}])"}) {
    const auto added = Read(list);
    ASSERT_FALSE(added.ok()) << list;
    EXPECT_EQ(added.error().code, Code::kInvalid);
    EXPECT_THAT(added.error().message, HasSubstr("file: added_tokens"));
  }
}

TEST(AddedTokens, MalformedEntriesAreErrors) {
  for (const char* list :
       {"{}", "[1]", R"([{"content": "x"}])", R"([{"id": 2}])", R"([{"id": 2, "content": "x", "special": 1}])",
        R"([{"id": 2, "content": "x"}, {"id": 2, "content": "x", "lstrip": true}])"}) {
    EXPECT_FALSE(Read(list).ok()) << list;
  }
  EXPECT_TRUE(Read("null").ok());
  EXPECT_FALSE(Read("[]", R"({"added_tokens_decoder": {"two": {"content": "x"}}})").ok());
}

}  // namespace
}  // namespace trivet::text
