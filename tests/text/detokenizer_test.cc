// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/str.h"
#include "tests/support/paths.h"
#include "text/tokenizer.h"

namespace trivet::text {
namespace {

TEST(StreamingDetokenizer, HoldsHalfCharacters) {
  const auto tokenizer = Tokenizer::Open(DemoDir());
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = tokenizer->Encode("a🙂").value();
  ASSERT_GT(ids.size(), 2U);  // the demo writes rare characters byte by byte
  StreamingDetokenizer detokenizer(&*tokenizer, false);
  EXPECT_EQ(detokenizer.Push(ids[0]), "a");
  for (size_t i = 1; i + 1 < ids.size(); ++i) EXPECT_EQ(detokenizer.Push(ids[i]), "");
  EXPECT_EQ(detokenizer.Push(ids.back()), "🙂");
  EXPECT_EQ(detokenizer.Push(ids[1]), "");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(StreamingDetokenizer, LeavesSpecialTokensOut) {
  const auto tokenizer = Tokenizer::Open(DemoDir());
  ASSERT_TRUE(tokenizer.ok());
  const TokenId end = tokenizer->IdOf("<|im_end|>").value();
  EXPECT_EQ(StreamingDetokenizer(&*tokenizer, true).Push(end), "");
  EXPECT_EQ(StreamingDetokenizer(&*tokenizer, false).Push(end), "<|im_end|>");
}

TEST(StreamingDetokenizer, PiecesOfAnyIdsAreWholeCharactersAndMakeTheDecodedText) {
  const auto tokenizer = Tokenizer::Open(DemoDir());
  ASSERT_TRUE(tokenizer.ok());
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenId> ids(1 + random() % 30);
    // Low ids are single bytes, which make the most trouble.
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % (random() % 2 == 0 ? 260 : 4100)) - 2;
    for (const bool skip_special : {false, true}) {
      StreamingDetokenizer detokenizer(&*tokenizer, skip_special);
      std::string text;
      for (const TokenId id : ids) {
        const std::string piece = detokenizer.Push(id);
        EXPECT_TRUE(IsUtf8(piece));
        text += piece;
      }
      text += detokenizer.Flush();
      EXPECT_EQ(text, tokenizer->Decode(ids, skip_special));
    }
  }
}

}  // namespace
}  // namespace trivet::text
