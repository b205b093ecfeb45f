// SPDX-License-Identifier: Apache-2.0
// The format table of packed weights. A matrix [N, K] is stored in tiles of 32 output rows; inside a tile, k runs
// slowest and, for each pair of k, all 32 rows stand side by side, so that a vector of outputs meets one activation at
// a time and a tile is read front to back. Quantised weights keep their codes and scales: a product decodes them on the
// way, and every element is exactly the float32 value that quant/ gives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/blocks.h"
#include "tensor/dtype.h"

namespace trivet::kernels {

/// Output rows of one tile: two 16-lane vectors, four 8-lane ones.
inline constexpr int64_t kTileRows = 32;

/// How elements are stored in a tile: single elements, or blocks of columns with scales (PackedBlock).
enum class WeightFormat : int32_t {
  kBF16,  // [K/2][32][2] 16-bit: one 32-bit word holds a row's elements k and k + 1
  kF16,   // [K][32]
  kF32,   // [K][32]
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4K,
  kQ5K,
  kQ6K,
  kMxfp4,
  kFp8,
};

/// Where the parts of one block of 32 rows stand, in bytes from its begin. Codes of `low_bits` + `high_bits` bits are
/// split into two planes:
///   low 4   [columns/2][32] bytes: a row's elements k (low nibble) and k + 1
///   low 8   [columns][32] bytes
///   high b  [columns*b/8][32] bytes: a row's elements k .. k + 8/b - 1. Of pair p of them the even element's bits
///   begin at
///           bit 4 + b * p and the odd one's at bit b * p, so that one shift and one mask put either above a nibble.
struct PackedBlock {
  int64_t scale_at = 0;       // [32], of the traits' type
  int64_t offset_at = 0;      // [32], likewise
  int64_t sub_scale_at = 0;   // [columns/sub][32] signed bytes
  int64_t sub_offset_at = 0;  // [columns/sub][32] bytes
  int64_t low_at = 0;
  int64_t high_at = 0;
  int64_t bytes = 0;
  int low_bits = 4;
  int high_bits = 0;
};

/// The parts of a block of 32 rows.
constexpr PackedBlock PackedBlockOf(const quant::BlockTraits& traits) {
  PackedBlock block;
  const int64_t scale_bytes = traits.scale == quant::ScaleType::kF16   ? 2
                              : traits.scale == quant::ScaleType::kF32 ? 4
                                                                       : 1;
  const int64_t scales = kTileRows * scale_bytes;
  const int64_t factors = traits.has_sub() ? traits.columns / traits.sub * kTileRows : 0;
  block.low_bits = traits.code_bits == 8 ? 8 : 4;
  block.high_bits = traits.code_bits - block.low_bits;
  block.offset_at = scales;
  block.sub_scale_at = block.offset_at + (traits.offset == quant::OffsetType::kNone ? 0 : scales);
  block.sub_offset_at = block.sub_scale_at + factors;
  block.low_at = block.sub_offset_at + (traits.offset == quant::OffsetType::kMinus ? factors : 0);
  block.high_at = block.low_at + traits.columns * kTileRows * block.low_bits / 8;
  block.bytes = block.high_at + traits.columns * kTileRows * block.high_bits / 8;
  return block;
}

/// One row of the format table.
struct WeightFormatRow {
  WeightFormat format;
  std::string_view name;
  int64_t columns;     // of a storage unit: 2, or those of a block
  int64_t unit_bytes;  // of a storage unit of 32 rows
  /// Stores `count` consecutive elements of one output row. Single elements are given as the checkpoint has them,
  /// blocks in the byte order of quant::BlockFormat; then k and count are multiples of `columns`.
  ///   tile  the row's tile;  row  0..31;  k  first column
  void (*store)(const std::byte* source, int64_t count, std::byte* tile, int64_t row, int64_t k);
  /// Element (row, k) of a tile as float32, exact.
  float (*load)(const std::byte* tile, int64_t row, int64_t k);
};

/// The row of `format`.
const WeightFormatRow& FormatRow(WeightFormat format);

/// The whole table, in the order of the enumerators.
std::span<const WeightFormatRow> Formats();

/// The format that keeps values of `dtype` exactly, or null when none does.
const WeightFormatRow* FormatFor(tensor::DType dtype);

/// A packed matrix in memory that somebody else owns.
///   data  [ceil(N / 32)] tiles, 64-byte aligned; rows beyond N and columns beyond K hold zeros, or the rest of a block
struct PackedMatrix {
  WeightFormat format = WeightFormat::kBF16;
  int64_t n = 0;     // output rows
  int64_t k = 0;     // columns
  int64_t leaf = 0;  // leaf length along k: even; the last leaf may be shorter
  const std::byte* data = nullptr;
  int64_t phase =
      0;  // column 0 is stored as column `phase`: even, less than a block. A cut inside a block keeps all of it

  int64_t tiles() const { return (n + kTileRows - 1) / kTileRows; }
  int64_t tile_bytes() const {
    const WeightFormatRow& row = FormatRow(format);
    return (phase + k + row.columns - 1) / row.columns * row.unit_bytes;
  }
  int64_t bytes() const { return tiles() * tile_bytes(); }
};

/// Element (row, column) of a packed matrix, exact.
float Element(const PackedMatrix& matrix, int64_t row, int64_t column);

}  // namespace trivet::kernels
