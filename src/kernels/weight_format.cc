// SPDX-License-Identifier: Apache-2.0
#include "kernels/weight_format.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "kernels/weight_element.h"

namespace trivet::kernels {
namespace {

using quant::BlockFormat;

void StoreBF16(const std::byte* source, int64_t count, std::byte* tile, int64_t row, int64_t k) {
  int64_t i = 0;
  for (; k % 2 == 0 && i + 2 <= count; i += 2) {  // whole words
    std::memcpy(tile + ((k + i) / 2 * kTileRows + row) * 4, source + i * 2, 4);
  }
  for (; i < count; ++i) {
    const int64_t column = k + i;
    std::memcpy(tile + ((column / 2 * kTileRows + row) * 2 + column % 2) * 2, source + i * 2, 2);
  }
}

template <int64_t kBytes>
void StorePlain(const std::byte* source, int64_t count, std::byte* tile, int64_t row, int64_t k) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(tile + ((k + i) * kTileRows + row) * kBytes, source + i * kBytes, kBytes);
  }
}

// The codes of a block as words, where they only have to be copied: bytes, and nibbles that stand in pairs. Null for
// other formats.
template <BlockFormat kFormat>
const std::byte* WordsIn(const std::byte* block) {
  if constexpr (kFormat == BlockFormat::kMxfp4) return block + 1;
  if constexpr (kFormat == BlockFormat::kQ8_0) return block + 2;
  return nullptr;
}

// The words of a chunk of codes.
template <BlockFormat kFormat>
void PackWords(const uint8_t* codes, uint32_t* words) {
  constexpr quant::BlockTraits kTraits = quant::TraitsOf(kFormat);
  constexpr PackedBlock kLayout = PackedBlockOf(kTraits);
  for (int64_t w = 0; w < kLayout.words; ++w) {
    const uint8_t* from = codes + w * kLayout.per_word;
    uint32_t word = 0;
    for (int i = 0; i < kLayout.per_word; ++i) word |= (from[i] ^ StoredBias(kTraits)) << (i * kLayout.code_bits);
    words[w] = word;
  }
  uint32_t rest = 0;
  for (int i = 0; i < kLayout.rest; ++i) {
    rest |= static_cast<uint32_t>(codes[kLayout.words * kLayout.per_word + i]) << (i * kLayout.code_bits);
  }
  for (int64_t w = 0; kLayout.rest > 0 && w < kLayout.words; ++w) words[w] |= rest >> (2 * w) << 30;
}

// MxHalves, two codes at a time.
uint32_t SpreadCodes(uint32_t codes) {
  static constexpr auto kPairs = [] {
    std::array<std::array<uint16_t, 256>, 2> pairs = {};  // codes 0 and 1, codes 2 and 3
    for (uint32_t pair = 0; pair < 256; ++pair) {
      pairs[0][pair] = static_cast<uint16_t>(MxHalves(pair));
      pairs[1][pair] = static_cast<uint16_t>(MxHalves(pair << 8));
    }
    return pairs;
  }();
  const auto half = [](uint32_t four) -> uint32_t { return kPairs[0][four & 0xFF] | kPairs[1][four >> 8 & 0xFF]; };
  return half(codes) | half(codes >> 16) << 16;
}

// Stores the codes of a block; `block` is null where `source` holds them as words.
template <WeightFormat kWeights>
void StoreCodes(const std::byte* source, const quant::Block* block, std::byte* codes, int64_t row) {
  constexpr BlockFormat kFormat = *BlocksOf(kWeights);
  constexpr quant::BlockTraits kTraits = quant::TraitsOf(kFormat);
  constexpr PackedBlock kLayout = PackedBlockOf(kTraits);
  for (int64_t i = 0; i < kTraits.columns; i += kLayout.chunk, codes += kLayout.chunk_bytes) {
    if constexpr (kTraits.code == quant::CodeType::kE4M3) {
      for (int64_t j = 0; j < kLayout.chunk; ++j) codes[j * kTileRows + row] = std::byte{block->code[i + j]};
    } else {
      uint32_t words[kLayout.words];
      if (const std::byte* from = WordsIn<kFormat>(source); from != nullptr) {
        std::memcpy(words, from, sizeof(words));
        for (uint32_t& word : words) word ^= StoredBias(kTraits) * 0x01010101U;
        if constexpr (kWeights == WeightFormat::kMxfp4Halves) {
          for (uint32_t& word : words) word = SpreadCodes(word);
        }
      } else {
        PackWords<kFormat>(block->code + i, words);
      }
      for (int64_t w = 0; w < kLayout.words; ++w) {
        constexpr bool kHalves = kWeights == WeightFormat::kMxfp4Halves;
        std::memcpy(codes + (kHalves ? MxHalvesAt(row, w) : (w * kTileRows + row) * 4), words + w, 4);
      }
    }
  }
}

template <WeightFormat kWeights>
void StoreBlocks(const std::byte* source, int64_t count, std::byte* tile, int64_t row, int64_t k) {
  constexpr BlockFormat kFormat = *BlocksOf(kWeights);
  constexpr quant::BlockTraits kTraits = quant::TraitsOf(kFormat);
  constexpr PackedBlock kLayout = PackedBlockOf(kTraits);
  constexpr int64_t kScale = ScaleBytes(kTraits.scale);
  CHECK(k % kTraits.columns == 0 && count % kTraits.columns == 0);
  for (int64_t b = 0; b < count / kTraits.columns; ++b, source += kTraits.bytes) {
    std::byte* out = tile + (k / kTraits.columns + b) * kLayout.bytes;
    if (WordsIn<kFormat>(source) != nullptr) {
      std::memcpy(out + kLayout.scale_at + row * kScale, source, kScale);
      StoreCodes<kWeights>(source, nullptr, out + kLayout.codes_at, row);
      continue;
    }
    const quant::Block block = quant::Unpack(kFormat, source);
    std::memcpy(out + kLayout.scale_at + row * kScale, &block.scale, kScale);
    if (kTraits.offset != quant::OffsetType::kNone) {
      std::memcpy(out + kLayout.offset_at + row * kScale, &block.offset, kScale);
    }
    for (int64_t s = 0; kTraits.has_sub() && s < kTraits.columns / kTraits.sub; ++s) {
      const auto sub = static_cast<size_t>(s);
      out[kLayout.sub_scale_at + s * kTileRows + row] = static_cast<std::byte>(block.sub_scale[sub]);
      if (kTraits.offset == quant::OffsetType::kMinus) {
        out[kLayout.sub_offset_at + s * kTileRows + row] = static_cast<std::byte>(block.sub_offset[sub]);
      }
    }
    StoreCodes<kWeights>(source, &block, out + kLayout.codes_at, row);
  }
}

template <WeightFormat kFormat>
constexpr WeightFormatRow BlockRow(std::string_view name) {
  constexpr quant::BlockTraits kTraits = quant::TraitsOf(*BlocksOf(kFormat));
  return {kFormat, name, kTraits.columns, PackedBlockOf(kTraits).bytes, StoreBlocks<kFormat>, LoadElement<kFormat>};
}

constexpr WeightFormatRow kFormats[] = {
    {WeightFormat::kBF16, "bf16", 2, 2 * kTileRows * 2, StoreBF16, LoadElement<WeightFormat::kBF16>},
    {WeightFormat::kF16, "f16", 2, 2 * kTileRows * 2, StorePlain<2>, LoadElement<WeightFormat::kF16>},
    {WeightFormat::kF32, "f32", 2, 2 * kTileRows * 4, StorePlain<4>, LoadElement<WeightFormat::kF32>},
    BlockRow<WeightFormat::kQ4_0>("q4_0"),
    BlockRow<WeightFormat::kQ4_1>("q4_1"),
    BlockRow<WeightFormat::kQ5_0>("q5_0"),
    BlockRow<WeightFormat::kQ5_1>("q5_1"),
    BlockRow<WeightFormat::kQ8_0>("q8_0"),
    BlockRow<WeightFormat::kQ4K>("q4_k"),
    BlockRow<WeightFormat::kQ5K>("q5_k"),
    BlockRow<WeightFormat::kQ6K>("q6_k"),
    BlockRow<WeightFormat::kMxfp4>("mxfp4"),
    BlockRow<WeightFormat::kFp8>("fp8"),
    BlockRow<WeightFormat::kMxfp4Halves>("mxfp4_halves"),
};

}  // namespace

const WeightFormatRow& FormatRow(WeightFormat format) {
  const WeightFormatRow& row = kFormats[static_cast<size_t>(format)];
  CHECK(row.format == format);
  return row;
}

std::span<const WeightFormatRow> Formats() { return kFormats; }

const WeightFormatRow* FormatFor(tensor::DType dtype) {
  if (dtype == tensor::DType::kBF16) return &FormatRow(WeightFormat::kBF16);
  if (dtype == tensor::DType::kF16) return &FormatRow(WeightFormat::kF16);
  if (dtype == tensor::DType::kF32) return &FormatRow(WeightFormat::kF32);
  const std::optional<BlockFormat> blocks = quant::BlockFormatOf(dtype);
  for (const WeightFormatRow& row : kFormats) {
    if (blocks.has_value() &&
        BlocksOf(row.format) == (blocks == BlockFormat::kMxfp4Gguf ? BlockFormat::kMxfp4 : blocks)) {
      return &row;
    }
  }
  return nullptr;
}

float Element(const PackedMatrix& matrix, int64_t row, int64_t column) {
  const std::byte* tile = matrix.data + row / kTileRows * matrix.tile_bytes();
  return FormatRow(matrix.format).load(tile, row % kTileRows, matrix.phase + column);
}

}  // namespace trivet::kernels
