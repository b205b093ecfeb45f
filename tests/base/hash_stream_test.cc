// SPDX-License-Identifier: Apache-2.0
#include "base/hash_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace trivet {
namespace {

TEST(HashStream, PiecesMakeNoDifference) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 3000; ++i) bytes.push_back(static_cast<std::byte>(i * 7 + i / 256));
  HashStream stream;
  for (const size_t size : {0, 1, 16, 17, 240, 241, 1024, 3000}) {
    const auto all = std::span<const std::byte>(bytes).first(size);
    for (const size_t piece : {1, 7, 240, 1024}) {
      stream.Reset();
      for (size_t at = 0; at < size; at += piece) stream.Update(all.subspan(at, std::min(piece, size - at)));
      EXPECT_EQ(stream.Finish(), Hash128(all)) << size << ' ' << piece;
    }
  }
}

}  // namespace
}  // namespace trivet
