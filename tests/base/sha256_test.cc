// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <gtest/gtest.h>

namespace trivet {
namespace {

// The examples of FIPS 180-4, and a million letters.
TEST(Sha256, PublishedExamples) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, ThePlainCodeGivesTheSame) {
  std::string text;
  for (size_t size = 0; size < 700; size += 13) {
    Sha256 plain(Sha256::Code::kPlain);
    plain.Update(std::as_bytes(std::span(text)));
    EXPECT_EQ(plain.Finish(), Sha256Hex(text)) << size;
    for (size_t i = 0; i < 13; ++i) text.push_back(static_cast<char>((size + i) * 91));
  }
  Sha256 plain(Sha256::Code::kPlain);
  plain.Update(std::as_bytes(std::span(std::string_view("abc"))));
  EXPECT_EQ(plain.Finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, PiecesMakeNoDifference) {
  std::string text;
  for (int i = 0; i < 300; ++i) text.push_back(static_cast<char>(i * 7));
  for (const size_t piece : {1, 3, 55, 56, 63, 64, 65, 299}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) {
      hash.Update(std::as_bytes(std::span(std::string_view(text).substr(at, piece))));
    }
    EXPECT_EQ(hash.Finish(), Sha256Hex(text)) << piece;
  }
}

}  // namespace
}  // namespace trivet
