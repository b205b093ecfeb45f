// SPDX-License-Identifier: Apache-2.0
// One element of a packed tile as float32: what a stored weight means, for processors and devices alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/weight_format.h"
#include "quant/blocks.h"
#include "quant/convert.h"

namespace trivet::kernels {

/// What element (row, k) of a tile of blocks is made of.
template <WeightFormat kFormat>
constexpr quant::BlockElement PartsOf(const std::byte* tile, int64_t row, int64_t k) {
  constexpr quant::BlockTraits kTraits = quant::TraitsOf(*BlocksOf(kFormat));
  constexpr PackedBlock kLayout = PackedBlockOf(kTraits);
  constexpr int64_t kScale = ScaleBytes(kTraits.scale);
  const std::byte* block = tile + k / kTraits.columns * kLayout.bytes;
  k %= kTraits.columns;
  quant::BlockElement element;
  std::memcpy(&element.scale, block + kLayout.scale_at + row * kScale, kScale);
  if (kTraits.offset != quant::OffsetType::kNone) {
    std::memcpy(&element.offset, block + kLayout.offset_at + row * kScale, kScale);
  }
  if (kTraits.has_sub()) {
    const int64_t at = k / kTraits.sub * kTileRows + row;
    element.sub_scale = std::to_integer<int8_t>(block[kLayout.sub_scale_at + at]);
    if (kTraits.offset == quant::OffsetType::kMinus) {
      element.sub_offset = std::to_integer<uint8_t>(block[kLayout.sub_offset_at + at]);
    }
  }
  const std::byte* codes = block + kLayout.codes_at + k / kLayout.chunk * kLayout.chunk_bytes;
  k %= kLayout.chunk;
  if constexpr (kTraits.code == quant::CodeType::kE4M3) {
    element.code = std::to_integer<uint8_t>(codes[k * kTileRows + row]);
  } else {
    const auto word = [codes, row](int64_t w) {
      uint32_t bits = 0;
      constexpr bool kHalves = kFormat == WeightFormat::kMxfp4Halves;
      std::memcpy(&bits, codes + (kHalves ? MxHalvesAt(row, w) : (w * kTileRows + row) * 4), 4);
      return bits;
    };
    if constexpr (kFormat == WeightFormat::kMxfp4Halves) {
      element.code = static_cast<uint8_t>(MxHalvesCode(word(k / kLayout.per_word), k % kLayout.per_word));
    } else {
      element.code = static_cast<uint8_t>(CodeOf(kLayout, k, word) ^ StoredBias(kTraits));
    }
  }
  return element;
}

/// Element (row, k) of a tile of blocks.
template <WeightFormat kFormat>
constexpr float LoadBlocks(const std::byte* tile, int64_t row, int64_t k) {
  return quant::Value(quant::TraitsOf(*BlocksOf(kFormat)), PartsOf<kFormat>(tile, row, k));
}

/// Element (row, k) of a tile, exact.
template <WeightFormat kFormat>
constexpr float LoadElement(const std::byte* tile, int64_t row, int64_t k) {
  if constexpr (kFormat == WeightFormat::kF32) {
    float value = 0;
    std::memcpy(&value, tile + (k * kTileRows + row) * 4, 4);
    return value;
  } else if constexpr (BlocksOf(kFormat).has_value()) {
    return LoadBlocks<kFormat>(tile, row, k);
  } else {
    constexpr bool kPairs = kFormat == WeightFormat::kBF16;
    uint16_t bits = 0;
    std::memcpy(&bits, tile + (kPairs ? (k / 2 * kTileRows + row) * 2 + k % 2 : k * kTileRows + row) * 2, 2);
    return kPairs ? quant::FromBF16(bits) : quant::FromF16(bits);
  }
}

/// Bytes of a tile that stores `columns` columns.
template <WeightFormat kFormat>
constexpr int64_t TileBytes(int64_t columns) {
  if constexpr (BlocksOf(kFormat).has_value()) {
    constexpr quant::BlockTraits kTraits = quant::TraitsOf(*BlocksOf(kFormat));
    return (columns + kTraits.columns - 1) / kTraits.columns * PackedBlockOf(kTraits).bytes;
  } else {
    return (columns + 1) / 2 * 2 * kTileRows * (kFormat == WeightFormat::kF32 ? 4 : 2);
  }
}

}  // namespace trivet::kernels
