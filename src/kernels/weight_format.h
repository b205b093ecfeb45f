// SPDX-License-Identifier: Apache-2.0
// The format table of packed weights. A matrix [N, K] is stored in tiles of 32 output rows; inside a tile, k runs
// slowest and, for each pair of k, all 32 rows stand side by side, so that a vector of outputs meets one activation at
// a time and a tile is read front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace trivet::kernels {

/// Output rows of one tile: two 16-lane vectors, four 8-lane ones.
inline constexpr int64_t kTileRows = 32;

/// How elements are stored in a tile.
enum class WeightFormat : int32_t {
  kBF16,  // [K/2][32][2] 16-bit: one 32-bit word holds a row's elements k and k + 1
  kF32,   // [K][32]
};

/// One row of the format table.
struct WeightFormatRow {
  WeightFormat format;
  std::string_view name;
  int64_t element_bytes;
  /// Stores `count` consecutive elements of one output row, given as the checkpoint has them.
  ///   tile  the row's tile;  row  0..31;  k  first column
  void (*store)(const std::byte* source, int64_t count, std::byte* tile, int64_t row, int64_t k);
  /// Element (row, k) of a tile as float32, exact.
  float (*load)(const std::byte* tile, int64_t row, int64_t k);
};

/// The row of `format`.
const WeightFormatRow& FormatRow(WeightFormat format);

/// The format that keeps values of `dtype` exactly, or null when none does. F16 widens to kF32.
const WeightFormatRow* FormatFor(tensor::DType dtype);

/// A packed matrix in memory that somebody else owns.
///   data  [ceil(N / 32)] tiles, 64-byte aligned; rows beyond N and columns beyond K hold zeros
struct PackedMatrix {
  WeightFormat format = WeightFormat::kBF16;
  int64_t n = 0;     // output rows
  int64_t k = 0;     // columns
  int64_t leaf = 0;  // leaf length along k: even; the last leaf may be shorter
  const std::byte* data = nullptr;

  int64_t tiles() const { return (n + kTileRows - 1) / kTileRows; }
  /// Columns in storage: k rounded up to a pair.
  int64_t k_stored() const { return (k + 1) / 2 * 2; }
  int64_t tile_bytes() const { return k_stored() * kTileRows * FormatRow(format).element_bytes; }
  int64_t bytes() const { return tiles() * tile_bytes(); }
};

/// Element (row, column) of a packed matrix, exact.
float Element(const PackedMatrix& matrix, int64_t row, int64_t column);

}  // namespace trivet::kernels
