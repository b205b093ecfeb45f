// SPDX-License-Identifier: Apache-2.0
// Leaves of MXFP4 weights by products of bytes (mx_block.h is what they compute). Included by the gemm's vector file
// once per target.
//
// An activation's integer q is 65536 * hi + 256 * mid + low, three signed bytes (|hi| <= 64), so that its upper part is
// 256 * hi + mid. A code is a byte too, 0 to 24: the integer code of -12 to 12, and 12. Every 32-bit lane belongs to
// one output and holds four columns, and a sum over a block starts with -12 times the sum of its activations.
//
// With VNNI, four products join a 32-bit sum: exact. Elsewhere two products join a 16-bit one. Their sum is at most
// 2 * 24 * 128 = 6144, so it does not saturate, and additions wrap: the sum ends as that of 16 columns without the
// twelves, at most 16 * 12 * 128 = 24576 in magnitude, which 16 bits hold whatever was lost on the way.
#if defined(TRIVET_KERNELS_GEMM_MX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIVET_KERNELS_GEMM_MX_INL_H
#undef TRIVET_KERNELS_GEMM_MX_INL_H
#else
#define TRIVET_KERNELS_GEMM_MX_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/gemm_read-inl.h"
#include "kernels/mx_block.h"

#if HWY_TARGET != HWY_SCALAR  // whose lanes hold no four bytes
HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using VI = hn::Vec<DI>;
using D8 = hn::Repartition<uint8_t, DF>;
using V8 = hn::Vec<D8>;
using D16 = hn::Repartition<int16_t, DF>;

constexpr int64_t kMxLimbs = 3;                   // hi, mid, low
constexpr int64_t kMxRows = kL == 16 ? 4 : 3;     // with kMxVectors, the sums of a block that registers hold
constexpr int64_t kMxVectors = kL == 16 ? 2 : 1;  // of a tile at a time

/// How far ahead codes are fetched: of 2.3, 4.6, 9.2 and 16.4 KB the last two were best, and 1.4 times as fast as the
/// first, since a row takes codes twice as fast here as by chains.
constexpr int64_t kMxAheadBytes = 9216;

/// A block of activations.
///   words   bytes of columns 8 w + h + {0, 2, 4, 6}, for a word w of the weights whose bytes hold their codes in the
///           lower half (h = 0) or the upper one
///   start   what sums over the block start with
struct MxBytes {
  alignas(16) int32_t words[kMxLimbs][2][4];
  int32_t start[kMxLimbs];
  float factor;
};

#if HWY_TARGET == HWY_AVX3_DL
constexpr bool kQuads = true;
using VSums = VI;
/// Adds the products of four bytes in every lane. Highway's attributes of this target lack the instruction's 512 bits,
/// which every machine of the target has.
HWY_INLINE VSums MulAddBytes(V8 codes, VI bytes, VSums sums) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(codes.raw), "v"(bytes.raw));
  return sums;
}
HWY_INLINE VI SumOf(VSums sums) { return sums; }
#else
constexpr bool kQuads = false;
using VSums = hn::Vec<D16>;
/// Sums of products of two bytes, unsigned codes and signed activations.
HWY_INLINE VSums PairProducts(V8 codes, VI bytes) {
#if HWY_TARGET == HWY_AVX2
  return VSums{_mm256_maddubs_epi16(codes.raw, bytes.raw)};
#elif HWY_TARGET == HWY_AVX3
  return VSums{_mm512_maddubs_epi16(codes.raw, bytes.raw)};
#else
  const VSums c = hn::BitCast(D16(), codes), x = hn::BitCast(D16(), bytes);
  const VSums odd = hn::Mul(hn::ShiftRight<8>(c), hn::ShiftRight<8>(x));
  return hn::Add(odd, hn::Mul(hn::And(c, hn::Set(D16(), 255)), hn::ShiftRight<8>(hn::ShiftLeft<8>(x))));
#endif
}
HWY_INLINE VSums MulAddBytes(V8 codes, VI bytes, VSums sums) { return hn::Add(sums, PairProducts(codes, bytes)); }
HWY_INLINE VI SumOf(VSums sums) {
  const VI pairs = hn::BitCast(DI(), sums);
  return hn::Add(hn::ShiftRight<16>(pairs), hn::ShiftRight<16>(hn::ShiftLeft<16>(pairs)));
}
#endif

/// What sums start with, from sums over the lanes of bytes of even columns: both halves of a lane, or those whose
/// columns are a lane's first two in the low 16 bits and the others above.
HWY_INLINE int32_t StartOf(VI even, VI odd) {
  const VI both = hn::Add(even, odd);
  if constexpr (kQuads) return -12 * hn::GetLane(hn::SumOfLanes(DI(), both));
  const auto second = hn::Eq(hn::And(hn::Iota(DI(), 0), hn::Set(DI(), 2)), hn::Set(DI(), 2));
  const int32_t first_sum = hn::GetLane(hn::SumOfLanes(DI(), hn::IfThenZeroElse(second, both)));
  const int32_t second_sum = hn::GetLane(hn::SumOfLanes(DI(), hn::IfThenElseZero(second, both)));
  return static_cast<int32_t>(static_cast<uint32_t>(-12 * second_sum) << 16 |
                              (static_cast<uint32_t>(-12 * first_sum) & 0xFFFF));
}

/// The block of 32 activations.
HWY_INLINE void PrepareBlock(const float* HWY_RESTRICT x, MxBytes* HWY_RESTRICT block) {
  constexpr int64_t kPairs = kMxColumns / 2 / kL;  // of vectors of even and odd columns
  VF even[kPairs], odd[kPairs];
  VU largest = hn::Zero(DU());
  const VU magnitude = hn::Set(DU(), 0x7FFFFFFFU);
  for (int64_t p = 0; p < kPairs; ++p) {
    hn::LoadInterleaved2(kF, x + p * 2 * kL, even[p], odd[p]);
    largest = hn::Max(largest, hn::And(hn::BitCast(DU(), even[p]), magnitude));
    largest = hn::Max(largest, hn::And(hn::BitCast(DU(), odd[p]), magnitude));
  }
  const uint32_t most = hn::GetLane(hn::MaxOfLanes(DU(), largest));
  if (!MxFinite(most)) *block = {};
  block->factor = MxFactor(most);
  if (!MxFinite(most)) return;
  const VF to_integer = hn::Set(kF, MxToInteger(MxExponent(most)));
  VI even_sum[kMxLimbs], odd_sum[kMxLimbs];
  for (int64_t limb = 0; limb < kMxLimbs; ++limb) even_sum[limb] = odd_sum[limb] = hn::Zero(DI());
  const hn::Rebind<int8_t, DF> d8;
  for (int64_t p = 0; p < kPairs; ++p) {
    VI even_q = hn::NearestInt(hn::Mul(even[p], to_integer)), odd_q = hn::NearestInt(hn::Mul(odd[p], to_integer));
    for (int64_t limb = kMxLimbs; limb-- > 0;) {
      const VI even_byte = hn::ShiftRight<24>(hn::ShiftLeft<24>(even_q));
      const VI odd_byte = hn::ShiftRight<24>(hn::ShiftLeft<24>(odd_q));
      auto* to = reinterpret_cast<int8_t*>(block->words[limb]) + p * kL;
      hn::StoreU(hn::DemoteTo(d8, even_byte), d8, to);
      hn::StoreU(hn::DemoteTo(d8, odd_byte), d8, to + kMxColumns / 2);
      even_sum[limb] = hn::Add(even_sum[limb], even_byte);
      odd_sum[limb] = hn::Add(odd_sum[limb], odd_byte);
      even_q = hn::ShiftRight<8>(hn::Sub(even_q, even_byte));
      odd_q = hn::ShiftRight<8>(hn::Sub(odd_q, odd_byte));
    }
  }
  for (int64_t limb = 0; limb < kMxLimbs; ++limb) block->start[limb] = StartOf(even_sum[limb], odd_sum[limb]);
}

/// The blocks of a row of `k` activations.
HWY_INLINE void PrepareRow(const float* HWY_RESTRICT x, int64_t k, MxBytes* HWY_RESTRICT blocks) {
  for (; k >= kMxColumns; k -= kMxColumns, x += kMxColumns) PrepareBlock(x, blocks++);
  if (k == 0) return;
  HWY_ALIGN float padded[kMxColumns] = {};
  std::copy_n(x, k, padded);
  PrepareBlock(padded, blocks);
}

/// Codes of a vector of words: those of the lower halves of their bytes, and of the upper ones.
HWY_INLINE void LoadCodes(const uint32_t* words, V8& lower, V8& upper) {
  HWY_ALIGN static constexpr uint8_t kTwelveMore[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  const V8 table = hn::LoadDup128(D8(), kTwelveMore), mask = hn::Set(D8(), 15);
  const VU word = hn::LoadU(DU(), words);
  lower = hn::TableLookupBytes(table, hn::And(hn::BitCast(D8(), word), mask));
  upper = hn::TableLookupBytes(table, hn::And(hn::BitCast(D8(), hn::ShiftRight<4>(word)), mask));
}

/// R rows times a tile over `count` blocks from `block`: leaf sums to `leaf`, [R][32].
///   x  the rows' first blocks, `stride` apart
template <int64_t R>
HWY_INLINE void MxLeaf(const MxBytes* x, int64_t stride, const std::byte* block, int64_t count,
                       float* HWY_RESTRICT leaf) {
  constexpr PackedBlock kLayout = PackedBlockOf(quant::TraitsOf(quant::BlockFormat::kMxfp4));
  VF leaves[R][kV];
  for (int64_t r = 0; r < R; ++r) {
    for (int64_t v = 0; v < kV; ++v) leaves[r][v] = hn::Zero(kF);
  }
  for (const MxBytes* const end = x + count; x < end; ++x, block += kLayout.bytes) {
    const auto* words = reinterpret_cast<const uint32_t*>(block + kLayout.codes_at);
    for (int64_t first = 0; first < kV; first += kMxVectors) {
      VSums sums[R][kMxVectors][kMxLimbs];
      for (int64_t r = 0; r < R; ++r) {
        for (int64_t limb = 0; limb < kMxLimbs; ++limb) {
          const VI start = hn::Set(DI(), x[r * stride].start[limb]);
          for (int64_t v = 0; v < kMxVectors; ++v) sums[r][v][limb] = hn::BitCast(hn::DFromV<VSums>(), start);
        }
      }
      for (int64_t w = 0; w < kLayout.words; ++w) {
        V8 codes[2][kMxVectors];
        for (int64_t v = 0; v < kMxVectors; ++v) {
          const uint32_t* from = words + w * kTileRows + (first + v) * kL;
          LoadCodes(from, codes[0][v], codes[1][v]);
          if ((first + v) * kL % 16 == 0) hwy::Prefetch(from + kMxAheadBytes / 4);
        }
        for (int64_t half = 0; half < 2; ++half) {
          for (int64_t r = 0; r < R; ++r) {
            for (int64_t limb = 0; limb < kMxLimbs; ++limb) {
              const VI bytes = hn::Set(DI(), x[r * stride].words[limb][half][w]);
              for (int64_t v = 0; v < kMxVectors; ++v) {
                sums[r][v][limb] = MulAddBytes(codes[half][v], bytes, sums[r][v][limb]);
              }
            }
          }
        }
      }
      for (int64_t v = 0; v < kMxVectors; ++v) {
        const VF scale = hn::BitCast(kF, hn::ShiftLeft<23>(LoadBytes(block + kLayout.scale_at + (first + v) * kL)));
        for (int64_t r = 0; r < R; ++r) {
          const VF s = hn::Mul(scale, hn::Set(kF, x[r * stride].factor));
          const VI high = hn::Add(hn::ShiftLeft<8>(SumOf(sums[r][v][0])), SumOf(sums[r][v][1]));
          const VI sum = hn::Add(hn::ShiftLeft<8>(high), SumOf(sums[r][v][2]));
          leaves[r][first + v] = hn::MulAdd(hn::ConvertTo(kF, sum), s, leaves[r][first + v]);
        }
      }
    }
  }
  for (int64_t r = 0; r < R; ++r) {
    for (int64_t v = 0; v < kV; ++v) hn::Store(leaves[r][v], kF, leaf + r * kTileRows + v * kL);
  }
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
