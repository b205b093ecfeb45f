// SPDX-License-Identifier: Apache-2.0
#include "text/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Tokens = std::vector<std::string>;

constexpr const char* kByteLevel = R"({"type": "ByteLevel"})";
constexpr const char* kFallback = R"({"type": "ByteFallback"})";
constexpr const char* kLlama = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

Result<Decoder> Read(std::string_view text) { return Decoder::FromJson(ParseJson(text, "test").value(), "file"); }

// What each token makes certain, and what the end does.
Tokens Pieces(std::string_view json, const Tokens& tokens) {
  const auto decoder = Read(json);
  EXPECT_TRUE(decoder.ok()) << json;
  if (!decoder.ok()) return {};
  Decoder::Stream stream(&*decoder);
  Tokens pieces;
  for (const std::string& token : tokens) stream.Push(token, &pieces.emplace_back());
  stream.Flush(&pieces.emplace_back());
  return pieces;
}

std::string Decode(std::string_view json, const Tokens& tokens) {
  std::string text;
  for (const std::string& piece : Pieces(json, tokens)) text += piece;
  return text;
}

TEST(Decoder, WithoutOneTokensAreJoinedBySpaces) { EXPECT_EQ(Decode("null", {"a", "b", "c"}), "a b c"); }

TEST(Decoder, ByteLevelHoldsIncompleteCharacters) {
  EXPECT_THAT(Pieces(kByteLevel, {"Ġa", "Ã", "©", "<｜x｜>"}), ElementsAre(" a", "", "é", "<｜x｜>", ""));
  EXPECT_THAT(Pieces(kByteLevel, {"Ã", "b"}), ElementsAre("", "\uFFFDb", ""));
  EXPECT_THAT(Pieces(kByteLevel, {"ð", "Ł"}), ElementsAre("", "", "\uFFFD"));  // F0 9F: one cut character
  EXPECT_THAT(Pieces(kByteLevel, {"ÿ", "©"}), ElementsAre("\uFFFD", "\uFFFD", ""));
  EXPECT_THAT(Pieces(kByteLevel, {"í", "ł"}), ElementsAre("", "\uFFFD\uFFFD", ""));  // ED A0 can become nothing
}

TEST(Decoder, ByteFallbackJudgesWholeRuns) {
  EXPECT_EQ(Decode(kFallback, {"<0xC3>", "<0xA9>", "a", "<0x41>"}), "éaA");
  EXPECT_EQ(Decode(kFallback, {"<0xC3>", "<0xA9>", "<0xC3>", "a"}), "\uFFFD\uFFFD\uFFFDa");
  EXPECT_EQ(Decode(kFallback, {"<0xe9>", "<0xZZ>"}), "\uFFFD<0xZZ>");
}

TEST(Decoder, LlamaStripsOneSpaceAtTheStart) {
  EXPECT_THAT(Pieces(kLlama, {"▁", "▁a", "▁b"}), ElementsAre("", " a", " b", ""));
  EXPECT_EQ(Decode(kLlama, {"<s>", "▁a"}), "<s> a");
}

TEST(Decoder, StripCutsEveryTokenOrTheFusedText) {
  EXPECT_EQ(Decode(R"({"type": "Strip", "content": "_", "start": 1, "stop": 1})", {"__a_", "_b", "c__"}), "_abc_");
  EXPECT_THAT(Pieces(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Strip", "content": "_", "start": 1, "stop": 2}]})",
                     {"_", "_a", "__", "_", "b_"}),
              ElementsAre("", "_a", "", "_", "__b", ""));
  EXPECT_EQ(Decode(R"({"type": "Strip", "content": "_", "start": -1, "stop": 9})", {"_", "__"}), "");
}

TEST(Decoder, MetaspaceDropsTheMarksOfTheFirstToken) {
  EXPECT_EQ(Decode(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})", {"▁a", "▁b▁"}), "a b ");
  EXPECT_EQ(Decode(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})", {"▁a", "▁b"}), " a b");
}

TEST(Decoder, ReplaceWaitsForWholeTokens) {
  EXPECT_EQ(Decode(R"({"type": "Replace", "pattern": {"String": "ab"}, "content": "z"})", {"abab", "a", "b"}), "zzab");
  EXPECT_EQ(Decode(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Replace", "pattern": {"String": "ab"}, "content": "z"}]})",
                   {"abab", "a", "b"}),
            "zzz");
}

TEST(Decoder, AStreamCanBeUsedAgain) {
  const auto decoder = Read(kLlama);
  ASSERT_TRUE(decoder.ok());
  Decoder::Stream stream(&*decoder);
  for (int i = 0; i < 2; ++i) {
    std::string text;
    stream.Push("▁a", &text);
    stream.Push("<0xC3>", &text);
    stream.Flush(&text);
    EXPECT_EQ(text, "a\uFFFD");
  }
}

TEST(Decoder, BytesOfOneToken) {
  EXPECT_EQ(Read(kByteLevel)->Bytes("Ã"), "\xC3");
  EXPECT_EQ(Read(kByteLevel)->Bytes("<｜x｜>"), "<｜x｜>");
  EXPECT_EQ(Read(kLlama)->Bytes("<0xE4>"), "\xE4");
  EXPECT_EQ(Read(kLlama)->Bytes("▁a"), " a");
  EXPECT_EQ(Read(R"({"type": "Strip", "content": "_", "start": 1, "stop": 1})")->Bytes("_a__"), "a_");
  EXPECT_EQ(Read("null")->Bytes("a"), "a");
}

TEST(Decoder, RefusesByName) {
  for (const char* text :
       {R"({"type": "WordPiece"})", R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""})"}) {
    const auto decoder = Read(text);
    ASSERT_FALSE(decoder.ok()) << text;
    EXPECT_EQ(decoder.error().code, Code::kUnsupported);
    EXPECT_THAT(decoder.error().message, HasSubstr("file: decoder: "));
  }
  for (const char* text : {R"({"type": "Strip"})", R"({"type": "Strip", "content": "ab"})", R"({"type": "Replace"})"}) {
    const auto decoder = Read(text);
    ASSERT_FALSE(decoder.ok()) << text;
    EXPECT_EQ(decoder.error().code, Code::kInvalid);
  }
}

}  // namespace
}  // namespace trivet::text
