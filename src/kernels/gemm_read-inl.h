// SPDX-License-Identifier: Apache-2.0
// How vectors of weights are read from tiles: single elements by PlainReader, blocks by ChunkReader. Included by the
// gemm's vector file once per target.
#if defined(TRIVET_KERNELS_GEMM_READ_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIVET_KERNELS_GEMM_READ_INL_H
#undef TRIVET_KERNELS_GEMM_READ_INL_H
#else
#define TRIVET_KERNELS_GEMM_READ_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>

#include "kernels/e4m3-inl.h"
#include "kernels/weight_format.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::CappedTag<float, 16> kF;
using DF = decltype(kF);
using VF = hn::Vec<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using VU = hn::Vec<DU>;
constexpr int64_t kL = hn::MaxLanes(DF());
constexpr int64_t kV = kTileRows / kL;  // vectors of one tile

/// How far ahead weights are fetched: the processor's own prefetchers stop at every page. Of 1 to 4 KB, 2 KB was best.
constexpr int64_t kAheadBytes = 2304;

/// Single elements: vector v of the tiles' outputs at columns s and s + 1.
template <WeightFormat kFormat>
struct PlainReader {
  static constexpr int64_t kColumnBytes = kTileRows * (kFormat == WeightFormat::kF32 ? 4 : 2);

  static HWY_INLINE void Load(const std::byte* const* tiles, int64_t v, int64_t s, VF& even, VF& odd) {
    const std::byte* tile = tiles[v / kV];
    const int64_t lane = v % kV * kL;
    if constexpr (kFormat == WeightFormat::kBF16) {
      const auto words = hn::Load(DU(), reinterpret_cast<const uint32_t*>(tile) + s / 2 * kTileRows + lane);
      even = hn::BitCast(kF, hn::ShiftLeft<16>(words));
      odd = hn::BitCast(kF, hn::And(words, hn::Set(DU(), 0xFFFF0000U)));
    } else if constexpr (kFormat == WeightFormat::kF16) {
      const hn::Rebind<hwy::float16_t, DF> half;
      const auto* values = reinterpret_cast<const hwy::float16_t*>(tile) + s * kTileRows + lane;
      even = hn::PromoteTo(kF, hn::Load(half, values));
      odd = hn::PromoteTo(kF, hn::Load(half, values + kTileRows));
    } else {
      const float* values = reinterpret_cast<const float*>(tile) + s * kTileRows + lane;
      even = hn::Load(kF, values);
      odd = hn::Load(kF, values + kTileRows);
    }
  }
};

/// A vector of unsigned bytes, widened to 32 bits.
HWY_INLINE VU LoadBytes(const std::byte* from) {
  return hn::PromoteTo(DU(), hn::LoadU(hn::Rebind<uint8_t, DF>(), reinterpret_cast<const uint8_t*>(from)));
}

/// A vector of signed bytes as float32.
HWY_INLINE VF LoadSignedBytes(const std::byte* from) {
  const auto bytes = hn::LoadU(hn::Rebind<int8_t, DF>(), reinterpret_cast<const int8_t*>(from));
  return hn::ConvertTo(kF, hn::PromoteTo(DI(), bytes));
}

/// E2M1 codes in the low four bits, for vectors too short for a table of 16.
HWY_INLINE VF FromE2M1(VU code) {
  const VF sign = hn::BitCast(kF, hn::And(hn::ShiftLeft<28>(code), hn::Set(DU(), 0x80000000U)));
  if constexpr (kL == 8) {
    HWY_ALIGN static constexpr float kMagnitudes[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    const auto index = hn::IndicesFromVec(kF, hn::And(code, hn::Set(DU(), 7)));
    return hn::Or(sign, hn::TableLookupLanes(hn::Load(kF, kMagnitudes), index));
  } else {
    // Twice the value: m for magnitudes m below 4, else (m % 2 + 2) times 2 or 4.
    const VU m = hn::And(code, hn::Set(DU(), 7));
    const VU two = hn::Set(DU(), 2);
    const VU large =
        hn::Shl(hn::Or(hn::And(m, hn::Set(DU(), 1)), two), hn::Sub(hn::ShiftRight<1>(m), hn::Set(DU(), 1)));
    const auto is_large = hn::RebindMask(DU(), hn::Gt(hn::BitCast(DI(), m), hn::Set(DI(), 3)));
    const VU twice = hn::IfThenElse(is_large, large, m);
    return hn::Or(sign, hn::Mul(hn::ConvertTo(kF, hn::BitCast(DI(), twice)), hn::Set(kF, 0.5F)));
  }
}

/// How a code in a 32-bit lane becomes a float32.
enum class Decoding {
  kBytes,     // E4M3: a byte of its own
  kTable,     // four bits, sixteen lanes: a lookup, which ignores the bits above
  kMantissa,  // the code as the upper mantissa bits of 1 + code / 2^bits: no conversion; the offset takes the 1 back
  kConvert,   // masked and converted
};

/// Chunks of columns of a tile that share scales. Products of scale and integer code are exact, and so are the
/// differences that take a bias back: every weight is rounded once, as its definition rounds it. Only the sign of a
/// zero weight is lost, which no sum shows.
///   Begin(tile, chunk)   chunk number `chunk` of the tile
///   ForEach(sink)        sink(column of the chunk, vector, weights), columns ascending
template <quant::BlockFormat kFormat>
struct ChunkReader {
  static constexpr quant::BlockTraits kTraits = quant::TraitsOf(kFormat);
  static constexpr PackedBlock kLayout = PackedBlockOf(kTraits);
  static constexpr int64_t kColumns = kLayout.chunk;
  static constexpr int kBits = kLayout.code_bits;
  static constexpr bool kAdds = kTraits.offset != quant::OffsetType::kNone;
  static constexpr Decoding kDecoding = kTraits.code == quant::CodeType::kE4M3 ? Decoding::kBytes
                                        : kL == 16 && kBits == 4               ? Decoding::kTable
                                        : kL == 16                             ? Decoding::kMantissa
                                                                               : Decoding::kConvert;
  static constexpr bool kInteger =
      kTraits.code == quant::CodeType::kUnsigned || kTraits.code == quant::CodeType::kSigned;
  // What stands in a lane has a multiple of the scale too much.
  static constexpr bool kBiased =
      kInteger && !kAdds && (kDecoding == Decoding::kMantissa || kDecoding == Decoding::kConvert);

  const std::byte* codes;
  VF scale[kV];
  VF offset[kAdds || kBiased ? kV : 1];

  HWY_INLINE void Begin(const std::byte* tile, int64_t chunk) {
    constexpr int64_t kChunks = kTraits.columns / kColumns;  // of a block
    const int64_t in_block = chunk % kChunks;
    const int64_t sub = in_block * kColumns / kTraits.sub;
    const std::byte* block = tile + chunk / kChunks * kLayout.bytes;
    codes = block + kLayout.codes_at + in_block * kLayout.chunk_bytes;
    for (int64_t v = 0; v < kV; ++v) BeginVector(block, sub, v);
  }

  template <class Sink>
  HWY_INLINE void ForEach(const Sink& sink) const {
    if constexpr (kDecoding == Decoding::kBytes) {
      for (int64_t column = 0; column < kColumns; ++column) {
        for (int64_t v = 0; v < kV; ++v) {
          const std::byte* from = codes + column * kTileRows + v * kL;
          sink(column, v, hn::Mul(scale[v], FromE4M3Over256(kF, from)));
        }
      }
    } else {
      VU word[kV], rest[kV];
      for (int64_t w = 0; w < kLayout.words; ++w) {
        for (int64_t v = 0; v < kV; ++v) {
          const auto* from = reinterpret_cast<const uint32_t*>(codes) + w * kTileRows + v * kL;
          word[v] = hn::LoadU(DU(), from);
          if (v * kL % 16 == 0) hwy::Prefetch(from + kAheadBytes / 4);
          if constexpr (kLayout.rest > 0) {
            // The upper two bits of all words end as the upper bits of `rest`, those of the first word lowest.
            const VU upper = hn::Set(DU(), 0xC0000000U);
            rest[v] = w == 0 ? hn::And(word[v], upper) : hn::OrAnd(hn::ShiftRight<2>(rest[v]), word[v], upper);
          }
        }
        Codes<0, 0, kLayout.per_word>(word, w * kLayout.per_word, sink);
      }
      if constexpr (kLayout.rest > 0) {
        Codes<32 - 2 * kLayout.words, 0, kLayout.rest>(rest, kLayout.words * kLayout.per_word, sink);
      }
    }
  }

 private:
  // Scales of the lanes whose first is `row`; those at E8M0 and F16 have 1 and 2 bytes.
  static HWY_INLINE VF LoadScale(const std::byte* scales, int64_t row) {
    if constexpr (kTraits.scale == quant::ScaleType::kF16) {
      const auto* halves = reinterpret_cast<const hwy::float16_t*>(scales) + row;
      return hn::PromoteTo(kF, hn::LoadU(hn::Rebind<hwy::float16_t, DF>(), halves));
    } else if constexpr (kTraits.scale == quant::ScaleType::kE8M0) {
      // Byte 0 is the subnormal 2^-127.
      const VU bits = hn::ShiftLeft<23>(LoadBytes(scales + row));
      return hn::BitCast(kF, hn::Max(bits, hn::Set(DU(), 0x00400000U)));
    } else {
      // FromE4M3Over256 leaves a factor of 256.
      return hn::Mul(hn::LoadU(kF, reinterpret_cast<const float*>(scales) + row), hn::Set(kF, 256.0F));
    }
  }

  HWY_INLINE void BeginVector(const std::byte* block, int64_t sub, int64_t v) {
    const int64_t row = v * kL;
    scale[v] = LoadScale(block + kLayout.scale_at, row);
    if constexpr (kTraits.has_sub()) {
      scale[v] = hn::Mul(scale[v], LoadSignedBytes(block + kLayout.sub_scale_at + sub * kTileRows + row));
    }
    if constexpr (kAdds) offset[v] = LoadScale(block + kLayout.offset_at, row);
    if constexpr (kTraits.offset == quant::OffsetType::kMinus) {
      const VU factors = LoadBytes(block + kLayout.sub_offset_at + sub * kTileRows + row);
      offset[v] = hn::Neg(hn::Mul(offset[v], hn::ConvertTo(kF, hn::BitCast(DI(), factors))));
    }
    constexpr int kOne = kDecoding == Decoding::kMantissa ? 1 << kBits : 0;
    if constexpr (kBiased) offset[v] = hn::Mul(scale[v], hn::Set(kF, -static_cast<float>(kOne + kLayout.bias)));
    if constexpr (kDecoding == Decoding::kMantissa) {
      scale[v] = hn::Mul(scale[v], hn::Set(kF, static_cast<float>(kOne)));
    }
  }

  // Codes [J, J + kCount) of `words`, which begin at bit kFrom; the first is column `column`.
  template <int kFrom, int J, int kCount, class Sink>
  HWY_INLINE void Codes(const VU* words, int64_t column, const Sink& sink) const {
    if constexpr (J < kCount) {
      for (int64_t v = 0; v < kV; ++v) sink(column + J, v, Weight<kFrom + J * kBits>(v, words[v]));
      Codes<kFrom, J + 1, kCount>(words, column, sink);
    }
  }

  // The weights whose codes begin at bit kBit of `words`.
  template <int kBit>
  HWY_INLINE VF Weight(int64_t v, VU words) const {
    const VU mask = hn::Set(DU(), (1U << kBits) - 1);
    if constexpr (kDecoding == Decoding::kTable) {
      VU index = hn::ShiftRight<kBit>(words);
      if constexpr (HWY_IS_DEBUG_BUILD != 0) index = hn::And(index, mask);  // which checks indices
      const VF code = hn::TableLookupLanes(hn::Load(kF, kTable), hn::IndicesFromVec(kF, index));
      return kAdds ? hn::MulAdd(scale[v], code, offset[v]) : hn::Mul(scale[v], code);
    } else if constexpr (kDecoding == Decoding::kMantissa) {
      constexpr int kPlace = 23 - kBits;
      const VF one = hn::Set(kF, 1.0F);
      const VU upper = hn::Set(DU(), ((1U << kBits) - 1) << kPlace);
      VU placed = words;
      if constexpr (kBit < kPlace) placed = hn::ShiftLeft<kPlace - kBit>(words);
      if constexpr (kBit > kPlace) placed = hn::ShiftRight<kBit - kPlace>(words);
      const VF code = hn::BitCast(kF, hn::OrAnd(hn::BitCast(DU(), one), placed, upper));
      return hn::MulAdd(scale[v], kAdds ? hn::Sub(code, one) : code, offset[v]);
    } else if constexpr (kInteger) {
      const VU code = hn::And(hn::ShiftRight<kBit>(words), mask);
      return hn::MulAdd(scale[v], hn::ConvertTo(kF, hn::BitCast(DI(), code)), offset[v]);
    } else {
      return hn::Mul(scale[v], FromE2M1(hn::ShiftRight<kBit>(words)));
    }
  }

  // The meanings of four-bit codes.
  struct Table {
    float values[16];
  };
  static constexpr Table MakeTable() {
    constexpr float kMagnitudes[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    Table table{};
    for (int i = 0; i < 16; ++i) {
      const float e2m1 = i < 8 ? kMagnitudes[i] : -kMagnitudes[i - 8];
      table.values[i] = kInteger ? static_cast<float>(i - kLayout.bias) : e2m1;
    }
    return table;
  }
  HWY_ALIGN static constexpr Table kMeanings = MakeTable();
  static constexpr const float* kTable = kMeanings.values;
};

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
