// SPDX-License-Identifier: Apache-2.0
// Packed matrices for the kernel tests.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/weight_format.h"
#include "tests/kernels/parity.h"

namespace trivet::kernels {

/// What a packed matrix is made of.
struct PackedShape {
  WeightFormat format = WeightFormat::kBF16;
  int64_t n = 1, k = 1, leaf = 128;
};

/// A packed matrix and the memory it points to.
class Packed {
 public:
  /// Packs values [n, k]; for kBF16 they lose their low 16 bits first.
  Packed(const PackedShape& shape, std::vector<float> values) : values_(std::move(values)), tiles_(Bytes(shape)) {
    std::fill_n(tiles_.data(), tiles_.size(), std::byte{0});
    matrix_ = {shape.format, shape.n, shape.k, shape.leaf, tiles_.data()};
    const WeightFormatRow& format = FormatRow(shape.format);
    for (int64_t row = 0; row < shape.n; ++row) {
      float* source = values_.data() + row * shape.k;
      std::byte* tile = tiles_.data() + row / kTileRows * matrix_.tile_bytes();
      if (shape.format == WeightFormat::kF32) {
        format.store(reinterpret_cast<const std::byte*>(source), shape.k, tile, row % kTileRows, 0);
        continue;
      }
      std::vector<uint16_t> halves;
      for (int64_t k = 0; k < shape.k; ++k) {
        const uint32_t high = std::bit_cast<uint32_t>(source[k]) >> 16;
        halves.push_back(static_cast<uint16_t>(high));
        source[k] = std::bit_cast<float>(high << 16);
      }
      format.store(reinterpret_cast<const std::byte*>(halves.data()), shape.k, tile, row % kTileRows, 0);
    }
  }
  Packed(const PackedShape& shape, std::mt19937_64* random) : Packed(shape, RandomValues(shape.n * shape.k, random)) {}
  Packed(Packed&&) = delete;  // the matrix points into it

  const PackedMatrix& matrix() const { return matrix_; }
  /// The values it holds, [n, k].
  const std::vector<float>& values() const { return values_; }

 private:
  static int64_t Bytes(const PackedShape& shape) {
    return PackedMatrix{shape.format, shape.n, shape.k, shape.leaf, nullptr}.bytes();
  }

  std::vector<float> values_;
  Guarded<std::byte> tiles_;
  PackedMatrix matrix_;
};

}  // namespace trivet::kernels
