// SPDX-License-Identifier: Apache-2.0
#include "engine/stored_slices.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace trivet::engine {
namespace {

using Places = std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>>;

// From a place in the local tensor to the one in the source.
void AddPlaces(const plan::Slice& slice, Places* places) {
  for (int64_t row = 0; row < slice.rows; ++row) {
    for (int64_t col = 0; col < slice.cols; ++col) {
      const std::pair to(slice.dst_row + (slice.transposed ? col : row),
                         slice.dst_col + (slice.transposed ? row : col));
      const std::pair from(slice.src_row + row * slice.row_step, slice.src_col + col * slice.col_step);
      EXPECT_TRUE(places->emplace(to, from).second);
    }
  }
}

TEST(StoredSlices, EveryElementComesFromWhereItIsStored) {
  checkpoint::TensorInfo info;
  info.row_order = {4, 3, 2, 2};
  info.col_order = {0, 2, 4, 1};
  for (const bool transposed : {false, true}) {
    for (const plan::Slice& slice :
         {plan::Slice{"x", 0, 0, 28, 16, 5, 7, 1, 1, transposed}, plan::Slice{"x", 3, 2, 11, 9, 0, 0, 1, 1, transposed},
          plan::Slice{"x", 1, 0, 9, 5, 2, 1, 3, 2, transposed}}) {
      Places logical, stored;
      AddPlaces(slice, &logical);
      for (const plan::Slice& piece : StoredSlices(slice, info)) AddPlaces(piece, &stored);
      for (auto& [to, from] : logical) {
        from = {info.row_order.Stored(from.first), info.col_order.Stored(from.second)};
      }
      EXPECT_EQ(stored, logical);
    }
  }
}

TEST(StoredSlices, RunsAreAsLongAsTheyCanBe) {
  checkpoint::TensorInfo info;
  EXPECT_EQ(StoredSlices({"x", 0, 0, 64, 8, 0, 0}, info).size(), 1U);
  info.row_order = {0, 2, 16, 1};  // rotary pairs of heads of 32
  const std::vector<plan::Slice> pieces = StoredSlices({"x", 32, 0, 32, 8, 0, 0}, info);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[1].src_row, 33);
  EXPECT_EQ(pieces[1].row_step, 2);
  EXPECT_EQ(pieces[1].dst_row, 16);
}

}  // namespace
}  // namespace trivet::engine
