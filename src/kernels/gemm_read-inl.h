// SPDX-License-Identifier: Apache-2.0
// How vectors of weights are read from tiles: one reader per kind of format, all with the same two calls. Included by
// the gemm's vector file once per target.
//   Reader<T> reader;                      reads T tiles
//   end = reader.Begin(tiles, s)           s: storage column; valid for columns [s, end)
//   reader.Load(v, s, even, odd)           vector v of the T * kV: 's outputs at s and s + 1
#if defined(TRIVET_KERNELS_GEMM_READ_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIVET_KERNELS_GEMM_READ_INL_H
#undef TRIVET_KERNELS_GEMM_READ_INL_H
#else
#define TRIVET_KERNELS_GEMM_READ_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

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

/// Single elements: a column needs nothing but its place.
template <WeightFormat kFormat>
struct PlainReader {
  template <int64_t T>
  struct Of {
    const std::byte* const* tiles = nullptr;

    HWY_INLINE int64_t Begin(const std::byte* const* from, int64_t) {
      tiles = from;
      return std::numeric_limits<int64_t>::max();
    }
    HWY_INLINE void Load(int64_t v, int64_t s, VF& even, VF& odd) const {
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

/// E2M1 codes 0..15.
HWY_INLINE VF FromE2M1(VU code) {
  if constexpr (kL >= 8) {
    HWY_ALIGN static constexpr float kValues[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                                    -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    const VF table = hn::Load(kF, kValues);
    if constexpr (kL == 16) return hn::TableLookupLanes(table, hn::IndicesFromVec(kF, code));
    const VU sign = hn::ShiftLeft<28>(hn::And(code, hn::Set(DU(), 8)));
    const VF magnitude = hn::TableLookupLanes(table, hn::IndicesFromVec(kF, hn::And(code, hn::Set(DU(), 7))));
    return hn::BitCast(kF, hn::Or(sign, hn::BitCast(DU(), magnitude)));
  } else {
    // Twice the value: m for magnitudes m below 4, else (m % 2 + 2) times 2 or 4.
    const VU m = hn::And(code, hn::Set(DU(), 7));
    const VU two = hn::Set(DU(), 2);
    const VU large =
        hn::Shl(hn::Or(hn::And(m, hn::Set(DU(), 1)), two), hn::Sub(hn::ShiftRight<1>(m), hn::Set(DU(), 1)));
    const auto is_large = hn::RebindMask(DU(), hn::Gt(hn::BitCast(DI(), m), hn::Set(DI(), 3)));
    const VU twice = hn::IfThenElse(is_large, large, m);
    const VF magnitude = hn::Mul(hn::ConvertTo(kF, hn::BitCast(DI(), twice)), hn::Set(kF, 0.5F));
    return hn::Or(magnitude, hn::BitCast(kF, hn::ShiftLeft<28>(hn::And(code, hn::Set(DU(), 8)))));
  }
}

/// E4M3 codes without NaN, divided by 256: the exponent and mantissa bits as those of an F16, whose bias is 8 larger.
/// F16's conversion is exact for subnormals too.
HWY_INLINE VF FromE4M3Over256(const std::byte* from) {
  const hn::Rebind<int16_t, DF> d16;
  const auto bytes = hn::LoadU(hn::Rebind<int8_t, DF>(), reinterpret_cast<const int8_t*>(from));
  const auto wide = hn::ShiftLeft<7>(hn::PromoteTo(d16, bytes));  // bits 15 and 14 both hold the sign
  const auto half = hn::And(wide, hn::Set(d16, static_cast<int16_t>(0xBF80)));
  return hn::PromoteTo(kF, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), half));
}

/// Blocks of codes with scales. Products of scale and integer code are exact, so that a fused addition of the offset
/// rounds once, as the definition's separate addition does.
template <quant::BlockFormat kFormat>
struct BlockReader {
  static constexpr quant::BlockTraits kTraits = quant::TraitsOf(kFormat);
  static constexpr PackedBlock kLayout = PackedBlockOf(kTraits);
  static constexpr bool kOffset = kTraits.offset != quant::OffsetType::kNone;

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

  template <int64_t T>
  struct Of {
    const std::byte* blocks[T];
    int64_t begin = 0;  // storage column of the blocks' first
    VF scale[T * kV];
    VF offset[kOffset ? T * kV : 1];

    HWY_INLINE int64_t Begin(const std::byte* const* tiles, int64_t s) {
      begin = s / kTraits.columns * kTraits.columns;
      const int64_t sub = (s - begin) / kTraits.sub;
      for (int64_t t = 0; t < T; ++t) {
        const std::byte* block = blocks[t] = tiles[t] + s / kTraits.columns * kLayout.bytes;
        for (int64_t v = 0; v < kV; ++v) {
          const int64_t row = v * kL, at = t * kV + v;
          scale[at] = LoadScale(block + kLayout.scale_at, row);
          if constexpr (kTraits.has_sub()) {
            const std::byte* factors = block + kLayout.sub_scale_at + sub * kTileRows + row;
            scale[at] = hn::Mul(scale[at], LoadSignedBytes(factors));
          }
          if constexpr (kOffset) offset[at] = LoadScale(block + kLayout.offset_at, row);
          if constexpr (kTraits.offset == quant::OffsetType::kMinus) {
            const VU factors = LoadBytes(block + kLayout.sub_offset_at + sub * kTileRows + row);
            offset[at] = hn::Neg(hn::Mul(offset[at], hn::ConvertTo(kF, hn::BitCast(DI(), factors))));
          }
        }
      }
      return begin + (sub + 1) * kTraits.sub;
    }

    HWY_INLINE VF Apply(int64_t v, VF code) const {
      if constexpr (kOffset) return hn::MulAdd(scale[v], code, offset[v]);
      return hn::Mul(scale[v], code);
    }

    static HWY_INLINE VF Meaning(VU code) {
      if constexpr (kTraits.code == quant::CodeType::kE2M1) return FromE2M1(code);
      return hn::ConvertTo(kF, hn::Sub(hn::BitCast(DI(), code), hn::Set(DI(), kTraits.bias)));
    }

    HWY_INLINE void Load(int64_t v, int64_t s, VF& even, VF& odd) const {
      const std::byte* block = blocks[v / kV];
      const int64_t row = v % kV * kL, k = s - begin;
      if constexpr (kLayout.low_bits == 8) {
        const std::byte* codes = block + kLayout.low_at + k * kTileRows + row;
        if constexpr (kTraits.code == quant::CodeType::kE4M3) {
          even = Apply(v, FromE4M3Over256(codes));
          odd = Apply(v, FromE4M3Over256(codes + kTileRows));
        } else {
          even = Apply(v, LoadSignedBytes(codes));
          odd = Apply(v, LoadSignedBytes(codes + kTileRows));
        }
      } else {
        const VU low = LoadBytes(block + kLayout.low_at + k / 2 * kTileRows + row);
        VU code0 = hn::And(low, hn::Set(DU(), 15));
        VU code1 = hn::ShiftRight<4>(low);
        if constexpr (kLayout.high_bits > 0) {
          constexpr int64_t kPairs = 4 / kLayout.high_bits;  // in one byte
          const VU high = LoadBytes(block + kLayout.high_at + k / (2 * kPairs) * kTileRows + row);
          const int shift = kLayout.high_bits * static_cast<int>(k / 2 % kPairs);
          const VU mask = hn::Set(DU(), ((1U << kLayout.high_bits) - 1) << 4);
          code0 = hn::Or(code0, hn::And(hn::ShiftRightSame(high, shift), mask));
          code1 = hn::Or(code1, hn::And(hn::ShiftLeftSame(high, 4 - shift), mask));
        }
        even = Apply(v, Meaning(code0));
        odd = Apply(v, Meaning(code1));
      }
    }
  };
};

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
