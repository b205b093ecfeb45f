// SPDX-License-Identifier: Apache-2.0
#include "kernels/weight_format.h"

#include <cstring>

#include "base/check.h"

namespace trivet::kernels {
namespace {

void StoreBF16(const std::byte* source, int64_t count, std::byte* tile, int64_t row, int64_t k) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t column = k + i;
    std::memcpy(tile + ((column / 2 * kTileRows + row) * 2 + column % 2) * 2, source + i * 2, 2);
  }
}

float LoadBF16(const std::byte* tile, int64_t row, int64_t k) {
  uint16_t bits = 0;
  std::memcpy(&bits, tile + ((k / 2 * kTileRows + row) * 2 + k % 2) * 2, 2);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, 4);
  return value;
}

void StoreF32(const std::byte* source, int64_t count, std::byte* tile, int64_t row, int64_t k) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(tile + ((k + i) * kTileRows + row) * 4, source + i * 4, 4);
}

float LoadF32(const std::byte* tile, int64_t row, int64_t k) {
  float value = 0;
  std::memcpy(&value, tile + (k * kTileRows + row) * 4, 4);
  return value;
}

constexpr WeightFormatRow kFormats[] = {
    {WeightFormat::kBF16, "bf16", 2, StoreBF16, LoadBF16},
    {WeightFormat::kF32, "f32", 4, StoreF32, LoadF32},
};

}  // namespace

const WeightFormatRow& FormatRow(WeightFormat format) {
  for (const WeightFormatRow& row : kFormats) {
    if (row.format == format) return row;
  }
  CHECK(false);
  return kFormats[0];
}

const WeightFormatRow* FormatFor(tensor::DType dtype) {
  if (dtype == tensor::DType::kBF16) return &FormatRow(WeightFormat::kBF16);
  if (dtype == tensor::DType::kF32 || dtype == tensor::DType::kF16) return &FormatRow(WeightFormat::kF32);
  return nullptr;
}

float Element(const PackedMatrix& matrix, int64_t row, int64_t column) {
  const std::byte* tile = matrix.data + row / kTileRows * matrix.tile_bytes();
  return FormatRow(matrix.format).load(tile, row % kTileRows, column);
}

}  // namespace trivet::kernels
