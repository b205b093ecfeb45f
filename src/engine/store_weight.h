// SPDX-License-Identifier: Apache-2.0
// From a checkpoint's carriers to packed tiles: which format a stored weight takes, and its rows as the blocks which
// that format stores, codes and scales put together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/stored_weight.h"
#include "kernels/weight_format.h"
#include "quant/blocks.h"

namespace trivet::engine {

/// The packed format of a weight.
kernels::WeightFormat FormatOf(const checkpoint::StoredWeight& weight);

/// The block format in which RowBlocks gives rows of a weight that has one.
quant::BlockFormat BlocksOf(const checkpoint::StoredWeight& weight);

/// Whether every element of a weight is stored by itself.
bool IsElement(const checkpoint::StoredWeight& weight);

/// Columns that are stored as one: a slice is read in whole units, so that a cut inside a block keeps the block, with
/// the same scales, on both of its sides.
int64_t UnitColumns(const checkpoint::StoredWeight& weight);

/// Bytes of `cols` columns of one row in the weight's tensor, scales aside; cols end a storage unit or the row.
int64_t CodeBytes(const checkpoint::StoredWeight& weight, int64_t cols);

/// Puts rows of codes and their scales together. One weight and one run of rows and columns at a time.
class RowBlocks {
 public:
  /// Reads the scales of rows [row, row + rows).
  /// Errors:  kIo and those of Checkpoint::Read; kInvalid for scales that are not finite or absurdly large.
  Status Start(const checkpoint::Checkpoint& checkpoint, const checkpoint::StoredWeight& weight, int64_t row,
               int64_t rows);

  /// Columns [col, col + cols) of `row` as WeightFormatRow::store takes them, from the codes of these columns. Valid
  /// until the next call.
  ///   col    a multiple of the format's columns;  cols  likewise, or up to the row's end
  ///   count  receives the columns to store: cols rounded up to whole units
  /// Errors:  kInvalid for codes that are not a number.
  Result<std::span<const std::byte>> Row(int64_t row, int64_t col, int64_t cols, std::span<const std::byte> codes,
                                         int64_t* count);

  /// The same columns as float32, `count` of them. Valid until the next call.
  /// Errors:  those of Row.
  Result<std::span<const float>> Values(int64_t row, int64_t col, int64_t cols, std::span<const std::byte> codes);

 private:
  Error BadValue(const char* what) const;

  checkpoint::StoredWeight weight_;
  int64_t first_scale_row_ = 0;
  std::vector<std::byte> scale_bytes_;
  std::vector<float> scales_;  // of kFp8
  std::vector<std::byte> blocks_;
  std::vector<float> values_;
};

}  // namespace trivet::engine
