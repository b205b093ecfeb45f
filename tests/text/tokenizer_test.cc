// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/io/temp_dir.h"
#include "tests/support/paths.h"

namespace trivet::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A tokenizer in the manner of Llama 2: one word a text, byte tokens, a token before the text.
constexpr const char* kLlama = R"({"version": "1.0",
  "added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true},
                   {"id": 2, "content": "</s>", "special": true}, {"id": 10, "content": "<tool>", "special": false,
                    "normalized": false}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                 {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
  "pre_tokenizer": null,
  "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1]}}},
  "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
              {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "<0xC3>": 3, "<0xA9>": 4, "▁": 5, "a": 6, "b": 7, "▁a": 8, "ab": 9},
            "merges": ["▁ a", "a b"]}})";

Result<Tokenizer> Llama() { return Tokenizer::FromJson(ParseJson(kLlama, "test").value(), Json(), "llama"); }

std::vector<TokenId> Ids(const Result<Tokenizer>& tokenizer, std::string_view text, const EncodeOptions& options = {}) {
  EXPECT_TRUE(tokenizer.ok());
  if (!tokenizer.ok()) return {};
  const auto ids = tokenizer->Encode(text, options);
  EXPECT_TRUE(ids.ok());
  return ids.ok() ? *ids : std::vector<TokenId>();
}

TEST(Tokenizer, SpecialTokensAreAddedOnRequest) {
  EXPECT_THAT(Ids(Llama(), ""), ElementsAre(1));
  EXPECT_THAT(Ids(Llama(), "", {.add_special_tokens = false}), ElementsAre());
  EXPECT_THAT(Ids(Llama(), "ab aé"), ElementsAre(1, 8, 7, 8, 3, 4));
}

TEST(Tokenizer, SpecialTokensInTheTextAreReadOnRequest) {
  EXPECT_THAT(Ids(Llama(), "a</s>", {.add_special_tokens = false}), ElementsAre(8, 2));
  EXPECT_THAT(Ids(Llama(), "a</s>", {.add_special_tokens = false, .parse_special = false}), ElementsAre(8, 0));
  EXPECT_THAT(Ids(Llama(), "<tool>", {.add_special_tokens = false, .parse_special = false}), ElementsAre(10));
}

TEST(Tokenizer, DecodesWithAndWithoutSpecialTokens) {
  const auto tokenizer = Llama();
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<TokenId> ids = {1, 8, 3, 4, 3, 5, 10, 99, -1, 2};
  EXPECT_EQ(tokenizer->Decode(ids, false), "<s> a\uFFFD\uFFFD\uFFFD <tool></s>");
  EXPECT_EQ(tokenizer->Decode(ids, true), "a\uFFFD\uFFFD\uFFFD <tool>");
}

TEST(Tokenizer, KnowsItsTokens) {
  const auto tokenizer = Llama();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->vocab_size(), 11);
  EXPECT_EQ(tokenizer->IdOf("<tool>"), 10);
  EXPECT_EQ(tokenizer->IdOf("ab"), 9);
  EXPECT_FALSE(tokenizer->IdOf("zz").has_value());
  EXPECT_TRUE(tokenizer->IsSpecial(2));
  EXPECT_FALSE(tokenizer->IsSpecial(10));
  EXPECT_FALSE(tokenizer->IsSpecial(99));
  EXPECT_EQ(tokenizer->TokenText(8), "▁a");
  EXPECT_EQ(tokenizer->TokenText(99), "");
  EXPECT_EQ(tokenizer->TokenBytes(8), " a");
  EXPECT_EQ(tokenizer->TokenBytes(3), "\xC3");
  EXPECT_EQ(tokenizer->TokenBytes(2), "</s>");
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const auto tokenizer = Llama();
  ASSERT_TRUE(tokenizer.ok());
  for (const char* text : {"\xff", "a\xC3", "\xED\xA0\x80", "\xC0\x80"}) {
    const auto ids = tokenizer->Encode(text);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code, Code::kInvalid);
  }
}

TEST(Tokenizer, OpensTheDemo) {
  const auto tokenizer = Tokenizer::Open(DemoDir());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 4096);
  EXPECT_EQ(tokenizer->IdOf("<|im_end|>"), 2);
  EXPECT_TRUE(tokenizer->IsSpecial(2));
  const auto prompt = Ids(tokenizer, "<|im_start|>user\nHi<|im_end|>");
  ASSERT_GE(prompt.size(), 4U);
  EXPECT_EQ(prompt.front(), 1);
  EXPECT_EQ(prompt.back(), 2);
  EXPECT_EQ(Ids(tokenizer, "e\u0301"), Ids(tokenizer, "é"));
}

TEST(Tokenizer, TheDemoReturnsEveryText) {
  const auto tokenizer = Tokenizer::Open(DemoDir());
  ASSERT_TRUE(tokenizer.ok());
  for (const std::string text :
       {"Hello, world!  It's 12:30.\n\n  x = {1, 2}\t", "naïve Straße 東京 🙂👩‍👩‍👧 \u00a0",
        "a\r\n\r\nb   ", " ", "中\u3000文"}) {
    EXPECT_EQ(tokenizer->Decode(Ids(tokenizer, text), false), text);
    std::string bytes;
    for (const TokenId id : Ids(tokenizer, text)) bytes += tokenizer->TokenBytes(id);
    EXPECT_EQ(bytes, text);
  }
}

TEST(Tokenizer, EncodesFromManyThreadsAfterAMove) {
  auto opened = Tokenizer::Open(DemoDir());
  ASSERT_TRUE(opened.ok());
  const Tokenizer tokenizer = std::move(opened).value();
  const std::string text = "The quick brown fox jumps over 13 lazy dogs.";
  const auto expected = tokenizer.Encode(text).value();
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (int& count : equal) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) count += tokenizer.Encode(text).value() == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, testing::Each(50));
}

TEST(Tokenizer, MissingAndBrokenFilesAreErrors) {
  const TempDir dir;
  EXPECT_EQ(Tokenizer::Open(dir.Path()).error().code, Code::kNotFound);
  dir.Write("tokenizer.json", "{}");
  EXPECT_EQ(Tokenizer::Open(dir.Path()).error().code, Code::kUnsupported);
  EXPECT_THAT(Tokenizer::Open(dir.Path()).error().message, HasSubstr("tokenizer.json: model"));
  dir.Write("tokenizer.json", kLlama);
  EXPECT_TRUE(Tokenizer::Open(dir.Path()).ok());
  dir.Write("tokenizer_config.json", R"({"added_tokens_decoder": {"11": {"content": "<more>", "special": true}}})");
  EXPECT_EQ(Tokenizer::Open(dir.Path())->IdOf("<more>"), 11);
  dir.Write("tokenizer_config.json", "[");
  EXPECT_EQ(Tokenizer::Open(dir.Path()).error().code, Code::kInvalid);
}

TEST(Tokenizer, EveryMissingOrChangedMemberIsHandled) {
  const Json whole = ParseJson(kLlama, "test").value();
  for (const auto& [key, value] : whole.items()) {
    for (const char* replacement : {"null", "1", "[]", "{}", "\"x\"", R"({"type": "Nonsense"})"}) {
      Json changed = whole;
      changed[key] = ParseJson(replacement, "test").value();
      const auto tokenizer = Tokenizer::FromJson(changed, Json(), "changed");
      if (!tokenizer.ok()) continue;
      EXPECT_TRUE(tokenizer->Encode("a b é").ok());
    }
  }
  EXPECT_FALSE(Tokenizer::FromJson(Json(), Json(), "null").ok());
}

}  // namespace
}  // namespace trivet::text
