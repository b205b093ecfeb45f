// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace trivet {
namespace {

uint64_t HashText(std::string_view text) { return Hash64(std::as_bytes(std::span(text.data(), text.size()))); }

TEST(Hash, KnownAnswers) {
  EXPECT_EQ(HashText(""), 0x2d06800538d394c2u);
  EXPECT_EQ(HashText("a"), 0xe6c632b61e964e1fu);
  EXPECT_EQ(HashText("abc"), 0x78af5f94892f3950u);
}

TEST(Hash, EveryByteAndTheLengthCount) {
  std::vector<std::byte> bytes(300);
  const uint64_t zero = Hash64(bytes);
  for (std::byte& byte : bytes) {
    byte = std::byte{1};
    EXPECT_NE(Hash64(bytes), zero);
    byte = std::byte{0};
  }
  EXPECT_NE(Hash64(std::span(bytes).first(299)), zero);
}

TEST(Hash128, KnownAnswersAndText) {
  EXPECT_EQ(Hex(Hash128(std::string_view())), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Hex(Hash128(std::string_view("abc"))), "06b05ab6733a618578af5f94892f3950");
  const Digest digest = Hash128(std::string_view("abc"));
  EXPECT_EQ(ParseDigest(Hex(digest)), digest);
  EXPECT_EQ(ParseDigest("06b05ab6733a618578af5f94892f395"), std::nullopt);
  EXPECT_EQ(ParseDigest("06b05ab6733a618578af5f94892f395G"), std::nullopt);
}

TEST(Hash128, ASumCarriesAndHasNoOrder) {
  const Digest all{~uint64_t{0}, 3}, one{1, 0};
  EXPECT_EQ(Add(all, one), (Digest{0, 4}));
  EXPECT_EQ(Add(one, all), Add(all, one));
}

}  // namespace
}  // namespace trivet
