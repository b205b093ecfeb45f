// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kVocab =
    R"("vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "aa": 6, "<unk>": 7, "<0xC3>": 8, "<0xA9>": 9,)"
    R"( "whole": 10, "aab": 11}, "merges": )";
constexpr const char* kMerges = R"(["b c", "a b", ["a", "bc"], "a a", "aa b"])";

Result<Bpe> Read(const std::string& text) { return Bpe::FromJson(ParseJson(text, "test").value(), "file"); }
Result<Bpe> Model(const std::string& options = "", const std::string& merges = kMerges) {
  return Read("{\"type\": \"BPE\", " + options + kVocab + merges + "}");
}

std::vector<TokenId> Ids(const Result<Bpe>& bpe, std::string_view word) {
  std::vector<TokenId> ids;
  EXPECT_TRUE(bpe.ok());
  if (!bpe.ok()) return ids;
  Bpe::Scratch scratch;
  EXPECT_TRUE(bpe->Encode(word, &scratch, &ids).ok());
  return ids;
}

TEST(Bpe, MergesByRankThenFromTheLeft) {
  const auto bpe = Model();
  EXPECT_THAT(Ids(bpe, "abc"), ElementsAre(5));      // b c first, then a bc
  EXPECT_THAT(Ids(bpe, "aaab"), ElementsAre(6, 3));  // a b outranks a a, and leaves one pair of a
  EXPECT_THAT(Ids(bpe, "aaa"), ElementsAre(6, 0));
  EXPECT_THAT(Ids(bpe, ""), ElementsAre());
}

TEST(Bpe, StaleCandidatesAreDropped) {
  EXPECT_THAT(Ids(Model("", R"(["a b", "b c", ["a", "bc"]])"), "abcbc"), ElementsAre(3, 2, 4));
}

TEST(Bpe, UnknownCharacters) {
  EXPECT_THAT(Ids(Model(), "axb"), ElementsAre(3));  // dropped without an unk_token
  EXPECT_THAT(Ids(Model(R"("unk_token": "<unk>",)"), "axxb"), ElementsAre(0, 7, 7, 1));
  EXPECT_THAT(Ids(Model(R"("unk_token": "<unk>", "fuse_unk": true,)"), "axxb"), ElementsAre(0, 7, 1));
}

TEST(Bpe, ByteFallbackNeedsAllBytes) {
  const auto bpe = Model(R"("unk_token": "<unk>", "byte_fallback": true,)");
  EXPECT_THAT(Ids(bpe, "é"), ElementsAre(8, 9));
  EXPECT_THAT(Ids(bpe, "è"), ElementsAre(7));
}

TEST(Bpe, IgnoreMergesTakesWholeWords) {
  EXPECT_THAT(Ids(Model(R"("ignore_merges": true,)"), "whole"), ElementsAre(10));
  EXPECT_THAT(Ids(Model(R"("unk_token": "<unk>", "fuse_unk": true,)"), "whole"), ElementsAre(7));
}

TEST(Bpe, MissingUnknownTokenIsAnErrorWhenNeeded) {
  const auto bpe = Model(R"("unk_token": "<none>",)");
  ASSERT_TRUE(bpe.ok());
  Bpe::Scratch scratch;
  std::vector<TokenId> ids;
  EXPECT_TRUE(bpe->Encode("abc", &scratch, &ids).ok());
  const Status status = bpe->Encode("x", &scratch, &ids);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kInvalid);
}

TEST(Bpe, LongRunsTakeNoQuadraticTime) {
  EXPECT_EQ(Ids(Model(), std::string(1'000'000, 'a')).size(), 500'000U);
  EXPECT_EQ(Ids(Model(), std::string(300'000, 'a') + "b").size(), 150'001U);
}

TEST(Bpe, PiecesAndIds) {
  const auto bpe = Model();
  ASSERT_TRUE(bpe.ok());
  EXPECT_EQ(bpe->Find("abc"), 5);
  EXPECT_FALSE(bpe->Find("x").has_value());
  EXPECT_EQ(bpe->Piece(3), "ab");
  EXPECT_EQ(bpe->Piece(-1), "");
  EXPECT_EQ(bpe->Piece(12), "");
  EXPECT_EQ(bpe->id_end(), 12);
}

TEST(Bpe, OlderFilesHaveNoTypeAndAVersionLine) {
  const auto bpe = Read(std::string("{") + kVocab + R"(["#version: 0.2", "a b"]})");
  EXPECT_THAT(Ids(bpe, "ab"), ElementsAre(3));
}

TEST(Bpe, RefusesWhatItDoesNotDo) {
  for (const char* text : {R"({"type": "Unigram", "vocab": []})", R"({"type": "WordPiece", "vocab": {}})", "{}"}) {
    const auto bpe = Read(text);
    ASSERT_FALSE(bpe.ok()) << text;
    EXPECT_EQ(bpe.error().code, Code::kUnsupported);
  }
  for (const char* option :
       {R"("dropout": 0.1,)", R"("continuing_subword_prefix": "##",)", R"("end_of_word_suffix": "</w>",)"}) {
    const auto bpe = Model(option);
    ASSERT_FALSE(bpe.ok()) << option;
    EXPECT_EQ(bpe.error().code, Code::kUnsupported);
  }
}

TEST(Bpe, RefusesMergesOutsideTheVocabulary) {
  for (const char* merges : {R"(["a x"])", R"(["x a"])", R"(["c c"])"}) {
    const auto bpe = Model("", merges);
    ASSERT_FALSE(bpe.ok()) << merges;
    EXPECT_EQ(bpe.error().code, Code::kInvalid);
    EXPECT_THAT(bpe.error().message, HasSubstr("file: model: merges"));
  }
}

constexpr const char* kScored =
    R"({"vocab": {"a": 0, "b": 1, "ab": 2, "é": 3, "aé": 4, "<unk>": 5, "x": 6}, "scores": )";

TEST(Bpe, ScoresInPlaceOfMerges) {
  const auto bpe = Read(std::string(kScored) + R"([0, 0, -1, null, -0.5, null, null], "unk_token": "<unk>"})");
  EXPECT_THAT(Ids(bpe, "abaé"), ElementsAre(2, 4));  // a character without a piece of its own still joins one
  EXPECT_THAT(Ids(bpe, "aab"), ElementsAre(0, 2));
  EXPECT_THAT(Ids(bpe, "xéx"), ElementsAre(5, 5, 5));  // null: text never becomes it
  EXPECT_EQ(Ids(bpe, std::string(300'000, 'a') + "b").size(), 300'000U);
}

TEST(Bpe, MalformedScoresAreErrors) {
  for (const char* scores : {"[0]", "{}", R"([0, 0, 0, 0, 0, 0, "1"])", "[0, 0, 0, 0, 0, 0, 0, 0]"}) {
    EXPECT_FALSE(Read(kScored + std::string(scores) + "}").ok()) << scores;
  }
  EXPECT_FALSE(Read(kScored + std::string(R"([0, 0, 0, 0, 0, 0, 0], "merges": 1})")).ok());
}

TEST(Bpe, MalformedFilesAreErrors) {
  for (const char* merges : {R"(["ab"])", R"(["a b c"])", R"([["a"]])", R"([1])", R"({})"}) {
    EXPECT_FALSE(Model("", merges).ok()) << merges;
  }
  for (const char* vocab : {R"({"a": -1})", R"({"a": 1.5})", R"({"a": "0"})", R"({"a": 4000000000})",
                            R"({"a": 99999999999999})", R"({"a": 0, "b": 0})", "[]"}) {
    EXPECT_FALSE(Read(std::string(R"({"type": "BPE", "merges": [], "vocab": )") + vocab + "}").ok()) << vocab;
  }
}

}  // namespace
}  // namespace trivet::text
