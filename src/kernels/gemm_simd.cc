// SPDX-License-Identifier: Apache-2.0
// Gemm with vectors over outputs: every lane follows one output's fma chain, so the lane count changes no bit, and a
// leaf ends with a conversion per vector instead of a tree across lanes.
//
// Register budget: a block of R rows by 32 outputs keeps R * 32 / lanes accumulators, four weight vectors per pair of k
// and a broadcast. Twelve rows at 16 lanes use 24 of 32 registers, three rows at 8 lanes 12 of 16. One row alone would
// wait on its own chain (4 cycles an fma), so single rows take four tiles at a time: 8 chains at 16 lanes, 16 at 8
// lanes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::CappedTag<float, 16> kF;
using DF = decltype(kF);
using VF = hn::Vec<DF>;
constexpr int64_t kL = hn::MaxLanes(DF());
constexpr int64_t kV = kTileRows / kL;  // vectors of one tile
constexpr int64_t kMaxRows = kL == 16 ? 12 : 3;
constexpr int64_t kTilesAtOnce = 4;  // for single rows

// Weights of 32 outputs at k and k + 1.
struct BF16Pair {
  static constexpr int64_t kBytes = 2;
  static HWY_INLINE void Load(const std::byte* tile, int64_t k, int64_t v, VF& even, VF& odd) {
    const hn::RebindToUnsigned<DF> du;
    const auto words = hn::Load(du, reinterpret_cast<const uint32_t*>(tile) + k / 2 * kTileRows + v * kL);
    even = hn::BitCast(kF, hn::ShiftLeft<16>(words));
    odd = hn::BitCast(kF, hn::And(words, hn::Set(du, 0xFFFF0000U)));
  }
};

struct F32Pair {
  static constexpr int64_t kBytes = 4;
  static HWY_INLINE void Load(const std::byte* tile, int64_t k, int64_t v, VF& even, VF& odd) {
    const float* values = reinterpret_cast<const float*>(tile) + k * kTileRows + v * kL;
    even = hn::Load(kF, values);
    odd = hn::Load(kF, values + kTileRows);
  }
};

// R rows times T tiles over columns [begin, end): leaf sums to `leaf`, [R][T * 32].
template <class Pair, int64_t R, int64_t T>
HWY_INLINE void Leaf(const float* const* x, const std::byte* const* tiles, int64_t begin, int64_t end,
                     float* HWY_RESTRICT leaf) {
  VF acc[R][T * kV];
  for (int64_t r = 0; r < R; ++r) {
    for (int64_t v = 0; v < T * kV; ++v) acc[r][v] = hn::Zero(kF);
  }
  const int64_t pairs_end = begin + (end - begin) / 2 * 2;
  for (int64_t k = begin; k < pairs_end; k += 2) {
    for (int64_t v = 0; v < T * kV; ++v) {
      VF even, odd;
      Pair::Load(tiles[v / kV], k, v % kV, even, odd);
      for (int64_t r = 0; r < R; ++r) {
        acc[r][v] = hn::MulAdd(hn::Set(kF, x[r][k]), even, acc[r][v]);
        acc[r][v] = hn::MulAdd(hn::Set(kF, x[r][k + 1]), odd, acc[r][v]);
      }
    }
  }
  if (pairs_end < end) {
    for (int64_t v = 0; v < T * kV; ++v) {
      VF even, odd;
      Pair::Load(tiles[v / kV], pairs_end, v % kV, even, odd);
      for (int64_t r = 0; r < R; ++r) acc[r][v] = hn::MulAdd(hn::Set(kF, x[r][pairs_end]), even, acc[r][v]);
    }
  }
  for (int64_t r = 0; r < R; ++r) {
    for (int64_t v = 0; v < T * kV; ++v) hn::Store(acc[r][v], kF, leaf + r * T * kTileRows + v * kL);
  }
}

// Adds `count` leaf parts (a multiple of 32) to grid sums; returns their range flags.
HWY_INLINE uint32_t AddToGrid(const float* HWY_RESTRICT leaf, float scale, int64_t count, int64_t* HWY_RESTRICT sums) {
  const hn::CappedTag<double, 8> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const hn::RebindToSigned<decltype(dd)> di;
  const auto limit = hn::Set(df, kLeafLimit);
  const auto magic = hn::Set(dd, kRoundingMagic);
  const auto magic_bits = hn::BitCast(di, magic);
  auto inside = hn::Le(hn::Zero(df), limit);
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(dd))) {
    auto part = hn::Mul(hn::Load(df, leaf + i), hn::Set(df, scale));
    const auto fits = hn::Le(hn::Abs(part), limit);
    inside = hn::And(inside, fits);
    const auto bound = hn::IfThenElse(hn::Lt(part, hn::Zero(df)), hn::Neg(limit), limit);  // as ToGrid has it for NaN
    part = hn::IfThenElse(fits, part, bound);
    const auto shifted = hn::MulAdd(hn::PromoteTo(dd, part), hn::Set(dd, kGridScale), magic);
    const auto grid = hn::Sub(hn::BitCast(di, shifted), magic_bits);
    hn::Store(hn::Add(hn::Load(di, sums + i), grid), di, sums + i);
  }
  if (HWY_LIKELY(hn::AllTrue(df, inside))) return kInRange;
  uint32_t flags = kInRange;
  for (int64_t i = 0; i < count; ++i) flags |= RangeOf(scale * leaf[i]);
  return flags;
}

// Writes R rows of T tiles: total is the exact or the fast sum of the leaves of each.
template <int64_t R, int64_t T>
HWY_INLINE void Write(const Gemm::Args& args, int64_t m, int64_t n, const int64_t* fixed, const float* fast) {
  const int64_t count = std::min(T * kTileRows, args.w->n - n);
  for (int64_t r = 0; r < R; ++r) {
    const int64_t row = args.y_rows == nullptr ? m + r : args.y_rows[m + r];
    const int64_t at = row * args.y_stride + n;
    const int64_t* total = fixed + r * T * kTileRows;
    const float* total_fast = fast + r * T * kTileRows;
    if (args.y != nullptr && args.numerics == Numerics::kExact) {
      for (int64_t i = 0; i < count; ++i) args.y[at + i] = FromGrid(total[i]);
    } else if (args.y != nullptr) {
      for (int64_t i = 0; i < count; ++i) args.y[at + i] = total_fast[i];
    } else if (args.numerics == Numerics::kExact) {
      for (int64_t i = 0; i < count; ++i) args.sums_fixed[at + i] += total[i];
    } else {
      const float scale = args.row_scale == nullptr ? 1.0F : args.row_scale[m + r];
      for (int64_t i = 0; i < count; ++i) args.sums_fast[at + i] += scale * total_fast[i];
    }
  }
}

// R rows from m, T tiles from `tile`.
template <class Pair, int64_t R, int64_t T>
HWY_NOINLINE void Block(const Gemm::Args& args, int64_t m, int64_t tile) {
  const PackedMatrix& w = *args.w;
  const int64_t tile_bytes = w.k_stored() * kTileRows * Pair::kBytes;
  const std::byte* tiles[T];
  for (int64_t t = 0; t < T; ++t) tiles[t] = w.data + (tile + t) * tile_bytes;
  const float* x[R];
  for (int64_t r = 0; r < R; ++r) {
    x[r] = args.x + (args.x_rows == nullptr ? m + r : args.x_rows[m + r]) * args.x_stride;
  }
  HWY_ALIGN float leaf[R * T * kTileRows];
  HWY_ALIGN int64_t fixed[R * T * kTileRows] = {};
  HWY_ALIGN float fast[R * T * kTileRows] = {};
  uint32_t flags = kInRange;
  for (int64_t k = 0; k < w.k; k += w.leaf) {
    Leaf<Pair, R, T>(x, tiles, k, std::min(k + w.leaf, w.k), leaf);
    if (args.numerics == Numerics::kExact) {
      for (int64_t r = 0; r < R; ++r) {
        const float scale = args.row_scale == nullptr ? 1.0F : args.row_scale[m + r];
        const int64_t at = r * T * kTileRows;
        flags |= AddToGrid(leaf + at, scale, T * kTileRows, fixed + at);
      }
    } else {
      for (int64_t i = 0; i < R * T * kTileRows; i += kL) {
        hn::Store(hn::Add(hn::Load(kF, fast + i), hn::Load(kF, leaf + i)), kF, fast + i);
      }
    }
  }
  if (flags != kInRange) args.flags->fetch_or(flags, std::memory_order_relaxed);
  Write<R, T>(args, m, tile * kTileRows, fixed, fast);
}

template <class Pair, int64_t R>
HWY_INLINE void Rows(const Gemm::Args& args, int64_t m, int64_t rows, int64_t tile) {
  if (rows == R) {
    Block<Pair, R, 1>(args, m, tile);
  } else if constexpr (R > 1) {
    Rows<Pair, R - 1>(args, m, rows, tile);
  }
}

template <class Pair>
HWY_INLINE void AllTiles(const Gemm::Args& args) {
  int64_t tile = args.tile_begin;
  if (args.m == 1) {
    for (; tile + kTilesAtOnce <= args.tile_end; tile += kTilesAtOnce) Block<Pair, 1, kTilesAtOnce>(args, 0, tile);
  }
  for (; tile < args.tile_end; ++tile) {
    for (int64_t m = 0; m < args.m; m += kMaxRows) {
      Rows<Pair, kMaxRows>(args, m, std::min(kMaxRows, args.m - m), tile);
    }
  }
}

void GemmSimd(const Gemm::Args& args) {
  if (args.w->format == WeightFormat::kBF16) {
    AllTiles<BF16Pair>(args);
  } else {
    AllTiles<F32Pair>(args);
  }
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trivet::kernels {

std::span<const KernelRow<Gemm>> Gemm::Rows() {
  static constexpr KernelRow<Gemm> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"gemm/avx512", HWY_AVX3, N_AVX3::GemmSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"gemm/avx2", HWY_AVX2, N_AVX2::GemmSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"gemm/neon", HWY_NEON, N_NEON::GemmSimd},
#endif
    {"gemm/ref", 0, GemmRef},
  };
  return kRows;
}

}  // namespace trivet::kernels
#endif
