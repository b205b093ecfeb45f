// SPDX-License-Identifier: Apache-2.0
// The format table of packed weights. A matrix [N, K] is stored in tiles of 32 output rows; inside a tile, k runs
// slowest and, for each pair of k, all 32 rows stand side by side, so that a vector of outputs meets one activation at
// a time and a tile is read front to back. Quantised weights keep their codes and scales: a product decodes them on the
// way, and every element is exactly the float32 value that quant/ gives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/backend.h"
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
  kMxfp4Halves,  // as kMxfp4, but in the order that a GPU wants (MxHalves, MxHalvesAt)
};

/// The block format of `format`, or nothing where elements stand alone.
constexpr std::optional<quant::BlockFormat> BlocksOf(WeightFormat format) {
  if (format < WeightFormat::kQ4_0) return std::nullopt;
  if (format == WeightFormat::kMxfp4 || format == WeightFormat::kMxfp4Halves) return quant::BlockFormat::kMxfp4;
  if (format == WeightFormat::kFp8) return quant::BlockFormat::kFp8;
  return static_cast<quant::BlockFormat>(static_cast<int>(format) - static_cast<int>(WeightFormat::kQ4_0));
}

/// The format in which a backend keeps what the table of a checkpoint's formats (FormatFor) calls `format`.
constexpr WeightFormat FormatOn(Backend backend, WeightFormat format) {
  return backend == Backend::kCuda && format == WeightFormat::kMxfp4 ? WeightFormat::kMxfp4Halves : format;
}

/// Where the parts of one block of 32 rows stand, in bytes from its begin. Codes come in chunks of `chunk` columns that
/// share scales. E4M3 codes are bytes, [chunk][32]. Others are packed into 32-bit words, [words][32], so that one
/// vector load brings several columns of its rows, and one shift puts a column's codes where they are wanted:
///   word w holds codes w * per_word + i at bits i * code_bits; where that leaves two bits of every word (5 and 6 bits
///   a code), those of all words, lowest first, make the last `rest` codes. Nothing is wasted.
/// Signed bytes are stored with 128 added, which is then part of `bias`.
struct PackedBlock {
  int64_t scale_at = 0;       // [32], of the traits' type
  int64_t offset_at = 0;      // [32], likewise
  int64_t sub_scale_at = 0;   // [columns/sub][32] signed bytes
  int64_t sub_offset_at = 0;  // [columns/sub][32] bytes
  int64_t codes_at = 0;
  int64_t chunk_bytes = 0;
  int64_t bytes = 0;
  int64_t chunk = 0;
  int64_t words = 0;
  int per_word = 0;
  int rest = 0;
  int code_bits = 0;
  int bias = 0;
};

/// Bytes of a scale.
constexpr int64_t ScaleBytes(quant::ScaleType type) {
  return type == quant::ScaleType::kF16 ? 2 : type == quant::ScaleType::kF32 ? 4 : 1;
}

/// The parts of a block of 32 rows.
constexpr PackedBlock PackedBlockOf(const quant::BlockTraits& traits) {
  PackedBlock block;
  const int64_t scales = kTileRows * ScaleBytes(traits.scale);
  const int64_t factors = traits.has_sub() ? traits.columns / traits.sub * kTileRows : 0;
  block.code_bits = traits.code_bits;
  block.bias = traits.code == quant::CodeType::kSigned ? 128 : traits.bias;
  block.chunk = traits.sub < 32 ? traits.sub : 32;
  block.words = block.chunk * block.code_bits / 32;
  block.per_word = 32 / block.code_bits;
  block.rest = static_cast<int>(block.chunk - block.words * block.per_word);
  block.chunk_bytes = block.words * kTileRows * 4;
  block.offset_at = scales;
  block.sub_scale_at = block.offset_at + (traits.offset == quant::OffsetType::kNone ? 0 : scales);
  block.sub_offset_at = block.sub_scale_at + factors;
  block.codes_at = block.sub_offset_at + (traits.offset == quant::OffsetType::kMinus ? factors : 0);
  block.bytes = block.codes_at + traits.columns / block.chunk * block.chunk_bytes;
  return block;
}

/// Of a code as its word holds it: signed bytes gain 128.
constexpr uint32_t StoredBias(const quant::BlockTraits& traits) {
  return traits.code == quant::CodeType::kSigned ? 0x80 : 0;
}

/// Code `i` of a chunk; `word(w)` gives its words.
template <class Word>
constexpr uint32_t CodeOf(const PackedBlock& layout, int64_t i, const Word& word) {
  const uint32_t mask = (1U << layout.code_bits) - 1;
  if (i < layout.words * layout.per_word)
    return word(i / layout.per_word) >> (i % layout.per_word * layout.code_bits) & mask;
  uint32_t rest = 0;
  for (int64_t w = 0; w < layout.words; ++w) rest |= word(w) >> 30 << (2 * w);
  return rest >> ((i - layout.words * layout.per_word) * layout.code_bits) & mask;
}

/// A word of eight E2M1 codes, code i at bits 4i, with each code at bits from which one or two masks and a shift make
/// an F16 of its value times 2^-14: of either half of the word, whose codes are i = 0..3 and 4..7,
///   code 0: sign 15, magnitude 11..9    both in place
///   code 1: sign 12, magnitude 8..6     both three too low
///   code 2: sign 14, magnitude 5..3     one and six too low
///   code 3: sign 13, magnitude 2..0     two and nine too low
constexpr uint32_t MxHalves(uint32_t codes) {
  constexpr int kSign[] = {15, 12, 14, 13}, kMagnitude[] = {9, 6, 3, 0};
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) {
    const uint32_t code = codes >> (4 * i) & 15;
    word |= (code >> 3 << kSign[i % 4] | (code & 7) << kMagnitude[i % 4]) << (i / 4 * 16);
  }
  return word;
}

/// Codes i and i + 4 of such a word as a pair of F16 times 2^-14, for i = 0..3.
constexpr uint32_t MxPair(uint32_t word, int i) {
  constexpr uint32_t kWanted = 0x8E008E00U;
  // Factors are two shifts at once; what a product carries beyond its half's magnitude stays below bit 9 of the next.
  if (i == 0) return word & kWanted;
  if (i == 1) return word * 8 & kWanted;
  if (i == 2) return (word & 0x40384038U) * (64 + 2) & kWanted;
  return (word & 0x20072007U) * (512 + 4) & kWanted;
}

/// Where word `word` of a row's 32 codes stands among those of a block of 32 rows, in bytes: what a lane of a matrix
/// instruction takes, the same word of four rows, stands together, lane after lane.
constexpr int64_t MxHalvesAt(int64_t row, int64_t word) { return (row / 4 * 4 + word) * 16 + row % 4 * 4; }

/// Code i of such a word.
constexpr uint32_t MxHalvesCode(uint32_t word, int64_t i) {
  const uint32_t half = MxPair(word, static_cast<int>(i % 4)) >> (i / 4 * 16);
  return (half >> 12 & 8) | (half >> 9 & 7);
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
