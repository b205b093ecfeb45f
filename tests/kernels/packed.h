// SPDX-License-Identifier: Apache-2.0
// Packed matrices for the kernel tests.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "kernels/weight_format.h"
#include "quant/blocks.h"
#include "quant/convert.h"
#include "tests/kernels/parity.h"

namespace trivet::kernels {

/// What a packed matrix is made of.
struct PackedShape {
  WeightFormat format = WeightFormat::kBF16;
  int64_t n = 1, k = 1, leaf = 128;
  int64_t phase = 0;  // of block formats: columns of the first block that are not the matrix'
};

/// Random blocks with scales of moderate size, now and then zero or subnormal.
inline std::vector<std::byte> RandomBlocks(quant::BlockFormat format, int64_t count, std::mt19937_64* random) {
  const quant::BlockTraits traits = quant::TraitsOf(format);
  std::vector<std::byte> bytes(static_cast<size_t>(count * traits.bytes));
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>((*random)());
    // E4M3's NaN, which loading refuses.
    if (traits.code == quant::CodeType::kE4M3 && (byte | std::byte{0x80}) == std::byte{0xFF}) byte = std::byte{0x7E};
  }
  for (int64_t b = 0; b < count; ++b) {
    std::byte* block = bytes.data() + b * traits.bytes;
    const bool small = (*random)() % 16 == 0;
    const auto half = [&] { return static_cast<uint16_t>((small ? 0 : 0x2800) | ((*random)() & 0x83FF)); };
    if (traits.scale == quant::ScaleType::kF32) {
      const float scale = std::bit_cast<float>(static_cast<uint32_t>(0x3C000000U | ((*random)() & 0x80FFFFFFU)));
      std::memcpy(block, &scale, 4);
    } else if (traits.scale == quant::ScaleType::kE8M0) {
      block[0] = static_cast<std::byte>(small ? 0 : 110 + (*random)() % 20);
    } else {
      const uint16_t scale = half(), offset = half();
      std::memcpy(block + (format == quant::BlockFormat::kQ6K ? 208 : 0), &scale, 2);
      if (traits.offset != quant::OffsetType::kNone) std::memcpy(block + 2, &offset, 2);
    }
  }
  return bytes;
}

/// A packed matrix and the memory it points to.
class Packed {
 public:
  /// Packs values [n, k] of a plain format; they lose what it cannot hold first.
  Packed(const PackedShape& shape, std::vector<float> values) : values_(std::move(values)), tiles_(Bytes(shape)) {
    Start(shape);
    const WeightFormatRow& format = FormatRow(shape.format);
    for (int64_t row = 0; row < shape.n; ++row) {
      float* source = values_.data() + row * shape.k;
      if (shape.format == WeightFormat::kF32) {
        format.store(reinterpret_cast<const std::byte*>(source), shape.k, Tile(row), row % kTileRows, 0);
        continue;
      }
      std::vector<uint16_t> halves;
      for (int64_t k = 0; k < shape.k; ++k) {
        const bool bf16 = shape.format == WeightFormat::kBF16;
        const uint32_t high = std::bit_cast<uint32_t>(source[k]) >> 16;
        halves.push_back(bf16 ? static_cast<uint16_t>(high) : quant::ToF16(source[k]));
        source[k] = bf16 ? std::bit_cast<float>(high << 16) : quant::FromF16(halves.back());
      }
      format.store(reinterpret_cast<const std::byte*>(halves.data()), shape.k, Tile(row), row % kTileRows, 0);
    }
  }
  /// Packs random values or blocks.
  Packed(const PackedShape& shape, std::mt19937_64* random)
      : Packed(shape,
               BlocksOf(shape.format).has_value() ? std::vector<float>(static_cast<size_t>(shape.n * shape.k))
                                                  : RandomValues(shape.n * shape.k, random),
               random) {}
  Packed(Packed&&) = delete;  // the matrix points into it

  const PackedMatrix& matrix() const { return matrix_; }
  /// The values it holds, [n, k].
  const std::vector<float>& values() const { return values_; }

 private:
  Packed(const PackedShape& shape, std::vector<float> values, std::mt19937_64* random)
      : Packed(BlocksOf(shape.format).has_value() ? PackedShape{WeightFormat::kF32, 0, 0, 2} : shape,
               std::move(values)) {
    const std::optional<quant::BlockFormat> blocks = BlocksOf(shape.format);
    if (!blocks.has_value()) return;
    tiles_ = Guarded<std::byte>(Bytes(shape));
    Start(shape);
    const quant::BlockTraits traits = quant::TraitsOf(*blocks);
    const int64_t count = (shape.phase + shape.k + traits.columns - 1) / traits.columns;
    std::vector<float> decoded(static_cast<size_t>(count * traits.columns));
    for (int64_t row = 0; row < shape.n; ++row) {
      const std::vector<std::byte> source = RandomBlocks(*blocks, count, random);
      quant::DecodeBlocks(*blocks, source, decoded);
      std::copy_n(decoded.begin() + shape.phase, shape.k, values_.begin() + row * shape.k);
      FormatRow(shape.format).store(source.data(), count * traits.columns, Tile(row), row % kTileRows, 0);
    }
  }

  void Start(const PackedShape& shape) {
    std::fill_n(tiles_.data(), tiles_.size(), std::byte{0});
    matrix_ = {shape.format, shape.n, shape.k, shape.leaf, tiles_.data(), shape.phase};
  }
  std::byte* Tile(int64_t row) { return tiles_.data() + row / kTileRows * matrix_.tile_bytes(); }
  static int64_t Bytes(const PackedShape& shape) {
    return PackedMatrix{shape.format, shape.n, shape.k, shape.leaf, nullptr, shape.phase}.bytes();
  }

  std::vector<float> values_;
  Guarded<std::byte> tiles_;
  PackedMatrix matrix_;
};

}  // namespace trivet::kernels
