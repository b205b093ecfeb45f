// SPDX-License-Identifier: Apache-2.0
#include "text/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/text/gguf_metadata.h"
#include "text/tokenizer.h"

namespace trivet::text {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Result<Tokenizer> Read(const Json& metadata) {
  TRY_ASSIGN(const Json document, GgufTokenizerJson(metadata, "FILE"));
  return Tokenizer::FromJson(document, Json(), "FILE");
}

std::vector<TokenId> Ids(const Json& metadata, std::string_view text, const EncodeOptions& options = {false, true}) {
  const Result<Tokenizer> tokenizer = Read(metadata);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? tokenizer->Encode(text, options).value() : std::vector<TokenId>();
}

std::string Message(const Json& metadata) {
  const Result<Tokenizer> tokenizer = Read(metadata);
  return tokenizer.ok() ? "accepted" : tokenizer.error().message;
}

Json With(Json metadata, const std::string& key, const Json& value) {
  metadata[key] = value;
  return metadata;
}

Json Without(Json metadata, const std::string& key) {
  metadata.erase(key);
  return metadata;
}

TEST(GgufTokenizer, ScoresDecideMerges) {
  const Json plain = With(SentencePieceMetadata(), "tokenizer.ggml.add_space_prefix", false);
  EXPECT_THAT(Ids(plain, "abc"), ElementsAre(263));  // ab, then abc
  EXPECT_THAT(Ids(plain, "abcbc"), ElementsAre(263, 261));
  EXPECT_THAT(Ids(plain, "bcab"), ElementsAre(261, 260));
  // Equal scores: the leftmost pair first.
  Json equal = plain;
  for (size_t id : {260, 261, 262, 263}) equal["tokenizer.ggml.scores"][id] = -1;
  EXPECT_THAT(Ids(equal, "abcb"), ElementsAre(263, 267));
}

TEST(GgufTokenizer, TextGetsASpaceInFront) {
  const Json metadata = SentencePieceMetadata();
  EXPECT_THAT(Ids(metadata, "ab"), ElementsAre(269, 260));
  EXPECT_THAT(Ids(metadata, "ac"), ElementsAre(262, 268));
  EXPECT_THAT(Ids(metadata, ""), ElementsAre());
  const Result<Tokenizer> tokenizer = Read(metadata);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->Decode(Ids(metadata, "ac ab"), false), "ac ab");
}

TEST(GgufTokenizer, UnknownCharactersAreBytes) {
  const Json plain = With(SentencePieceMetadata(), "tokenizer.ggml.add_space_prefix", false);
  EXPECT_THAT(Ids(plain, "é"), ElementsAre(4 + 0xC3, 4 + 0xA9));
  EXPECT_THAT(Ids(plain, "aéb"), ElementsAre(266, 4 + 0xC3, 4 + 0xA9, 267));
  // Without a byte it is the unknown token, once for a run.
  Json lacking = plain;
  lacking["tokenizer.ggml.tokens"][4 + 0xA9] = "filler";
  lacking["tokenizer.ggml.token_type"][4 + 0xA9] = 1;
  EXPECT_THAT(Ids(lacking, "aééb"), ElementsAre(266, 0, 267));
}

TEST(GgufTokenizer, ControlTokensComeFromTheParserOnly) {
  const Json plain = With(SentencePieceMetadata(), "tokenizer.ggml.add_space_prefix", false);
  EXPECT_THAT(Ids(plain, "<s>"), ElementsAre(1));
  EXPECT_THAT(Ids(plain, "<s>", {false, false}), ElementsAre(264, 272));
  EXPECT_THAT(Ids(plain, "a  b", {false, false}), ElementsAre(266, 3, 267));  // user-defined ones always
  const Result<Tokenizer> tokenizer = Read(plain);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_TRUE(tokenizer->IsSpecial(1));
  EXPECT_FALSE(tokenizer->IsSpecial(3));
}

TEST(GgufTokenizer, TokensAroundATextFollowTheFlags) {
  const EncodeOptions whole;
  EXPECT_THAT(Ids(SentencePieceMetadata(), "ac", whole), ElementsAre(1, 262, 268));
  Json metadata = With(SentencePieceMetadata(), "tokenizer.ggml.add_bos_token", false);
  metadata["tokenizer.ggml.add_eos_token"] = true;
  EXPECT_THAT(Ids(metadata, "ac", whole), ElementsAre(262, 268, 2));
  EXPECT_THAT(Ids(ByteLevelMetadata(), "ab", whole), ElementsAre(256));
  Json llama = With(ByteLevelMetadata(), "tokenizer.ggml.pre", "llama-bpe");
  llama["tokenizer.ggml.bos_token_id"] = 259;
  EXPECT_THAT(Ids(llama, "ab", whole), ElementsAre(259, 256));  // this way to split implies it
}

TEST(GgufTokenizer, ByteLevelMergesByRank) {
  const Json metadata = ByteLevelMetadata();
  EXPECT_THAT(Ids(metadata, "abc abc"), ElementsAre(257, ' ', 257));
  EXPECT_THAT(Ids(metadata, "ab ac"), ElementsAre(256, 258, 'c'));
  EXPECT_THAT(Ids(metadata, "<think>ab<|end|>"), ElementsAre(260, 256, 259));
  EXPECT_EQ(Ids(metadata, "<|end|>", {false, false}).size(), 7U);
  const Result<Tokenizer> tokenizer = Read(metadata);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->Decode(Ids(metadata, "abc é<think>"), true), "abc é<think>");
}

TEST(GgufTokenizer, EveryWayToSplitReads) {
  for (const char* pre : {"default", "gpt-2", "llama-bpe", "qwen2", "qwen35", "deepseek-v3", "gpt-4o"}) {
    Json metadata = With(ByteLevelMetadata(), "tokenizer.ggml.pre", pre);
    metadata["tokenizer.ggml.bos_token_id"] = 259;
    EXPECT_THAT(Ids(metadata, "ab abc1"), ElementsAre(256, ' ', 257, '1')) << pre;
  }
  EXPECT_THAT(Message(With(ByteLevelMetadata(), "tokenizer.ggml.pre", "tekken")),
              AllOf(HasSubstr("FILE: \"tokenizer.ggml.pre\": expected one of default, gpt-2,"), HasSubstr("tekken")));
}

// A key of a sound file, what it is changed to (null: taken away), and what the message says.
struct Defect {
  const char* key;
  Json value;
  const char* says;
};

TEST(GgufTokenizer, DefectsOfSentencePieceAreNamed) {
  Json long_list = SentencePieceMetadata()["tokenizer.ggml.tokens"];
  long_list.push_back("ab");
  Json not_text = long_list, not_utf8 = long_list;
  not_text[5] = 5;
  not_utf8[5] = "\xff\xfe";
  Json scores = SentencePieceMetadata()["tokenizer.ggml.scores"], types = scores;
  scores[262] = std::numeric_limits<double>::quiet_NaN();
  types = SentencePieceMetadata()["tokenizer.ggml.token_type"];
  types[262] = 7;
  Json byte_types = SentencePieceMetadata()["tokenizer.ggml.token_type"];
  byte_types[262] = 6;
  const std::vector<Defect> defects = {
      {"tokenizer.ggml.model", Json(), "expected llama or gpt2, found none"},
      {"tokenizer.ggml.model", "bert", "found bert"},
      {"tokenizer.ggml.tokens", Json(), "expected an array, found none"},
      {"tokenizer.ggml.tokens", "a", "expected an array, found string"},
      {"tokenizer.ggml.tokens", Json::array(), "expected 1 to"},
      {"tokenizer.ggml.tokens", long_list, "expected every token once, found \"ab\" again at 273"},
      {"tokenizer.ggml.tokens", not_text, "expected strings, found number at 5"},
      {"tokenizer.ggml.tokens", not_utf8, "expected text in UTF-8"},
      {"tokenizer.ggml.scores", Json(), "\"tokenizer.ggml.scores\": expected an array, found none"},
      {"tokenizer.ggml.scores", {1.0, 2.0}, "expected 273 elements, one for every token, found 2"},
      {"tokenizer.ggml.scores", scores, "expected a finite number"},
      {"tokenizer.ggml.token_type", {1}, "expected 273 elements, one for every token, found 1"},
      {"tokenizer.ggml.token_type", types, "expected types from 1 to 6, found 7 at 262"},
      {"tokenizer.ggml.token_type", byte_types, "expected byte tokens called <0x00> to <0xFF>"},
      {"tokenizer.ggml.bos_token_id", 273, "expected an id below 273, the number of tokens, found 273"},
      {"tokenizer.ggml.eos_token_id", -1, "\"tokenizer.ggml.eos_token_id\": expected an id"},
      {"tokenizer.ggml.eot_token_id", "x", "\"tokenizer.ggml.eot_token_id\": expected an id"},
      {"tokenizer.ggml.unknown_token_id", 1.5, "\"tokenizer.ggml.unknown_token_id\": expected an id"},
      {"tokenizer.ggml.add_bos_token", 1, "add_bos_token"},
      {"tokenizer.ggml.add_space_prefix", "no", "add_space_prefix"},
      {"tokenizer.ggml.remove_extra_whitespaces", true, "expected false, found true"},
      {"tokenizer.ggml.pre", "qwen2", "expected default, found qwen2"},
  };
  for (const Defect& defect : defects) {
    const Json sound = SentencePieceMetadata();
    const Json changed = defect.value.is_null() ? Without(sound, defect.key) : With(sound, defect.key, defect.value);
    EXPECT_THAT(Message(changed), AllOf(HasSubstr("FILE: "), HasSubstr(defect.says))) << defect.key;
  }
  Json no_bos =
      With(Without(SentencePieceMetadata(), "tokenizer.ggml.bos_token_id"), "tokenizer.ggml.add_bos_token", true);
  EXPECT_THAT(Message(no_bos),
              HasSubstr("\"tokenizer.ggml.bos_token_id\": expected an id, as the token is to be added"));
  Json neither = Without(SentencePieceMetadata(), "tokenizer.ggml.unknown_token_id");
  neither["tokenizer.ggml.token_type"][0] = 1;
  neither["tokenizer.ggml.tokens"][4] = "filler";
  neither["tokenizer.ggml.token_type"][4] = 1;
  EXPECT_THAT(Message(neither), HasSubstr("expected tokens for all bytes, or an unknown token, found neither"));
}

TEST(GgufTokenizer, DefectsOfByteLevelAreNamed) {
  const std::vector<Defect> defects = {
      {"tokenizer.ggml.merges", Json(), "\"tokenizer.ggml.merges\": expected an array, found none"},
      {"tokenizer.ggml.merges", {"a b", 1}, "expected strings, found number at 1"},
      {"tokenizer.ggml.merges", {"a x"}, "found no \"ax\""},
      {"tokenizer.ggml.merges", {"zz b"}, "found no \"zz\""},
      {"tokenizer.ggml.merges", {"ab"}, "expected \"left right\""},
      {"tokenizer.ggml.add_space_prefix", true, "expected false, found true"},
  };
  for (const Defect& defect : defects) {
    const Json sound = ByteLevelMetadata();
    const Json changed = defect.value.is_null() ? Without(sound, defect.key) : With(sound, defect.key, defect.value);
    EXPECT_THAT(Message(changed), AllOf(HasSubstr("FILE: "), HasSubstr(defect.says))) << defect.key;
  }
  Json lacking = ByteLevelMetadata();
  lacking["tokenizer.ggml.tokens"][0x41] = "filler";
  EXPECT_THAT(Message(lacking), HasSubstr("expected a token for every byte, found none for 0x41"));
}

TEST(GgufTokenizer, SpecialTokensByName) {
  const Result<Json> tokens = GgufSpecialTokens(SentencePieceMetadata(), "FILE");
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(*tokens, Json({{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}));
  EXPECT_FALSE(GgufSpecialTokens(With(SentencePieceMetadata(), "tokenizer.ggml.bos_token_id", 999), "FILE").ok());
}

TEST(GgufTokenizer, TemplatesByName) {
  const Json none = Json::object();
  EXPECT_FALSE(GgufChatTemplate(none, false, "FILE").value().has_value());
  const Json one = {{"tokenizer.chat_template", "plain"}};
  EXPECT_EQ(GgufChatTemplate(one, true, "FILE").value(), "plain");
  const Json two = With(one, "tokenizer.chat_template.tool_use", "tools");
  EXPECT_EQ(GgufChatTemplate(two, false, "FILE").value(), "plain");
  EXPECT_EQ(GgufChatTemplate(two, true, "FILE").value(), "tools");
  EXPECT_FALSE(GgufChatTemplate({{"tokenizer.chat_template", 1}}, false, "FILE").ok());
}

}  // namespace
}  // namespace trivet::text
