// SPDX-License-Identifier: Apache-2.0
// Gemm with vectors over outputs: every lane follows one output's fma chain, so the lane count changes no bit, and a
// leaf ends with a conversion per vector instead of a tree across lanes.
//
// Register budget: a block of R rows by 32 outputs keeps R * 32 / lanes accumulators, four weight vectors per pair of k
// and a broadcast. Twelve rows at 16 lanes use 24 of 32 registers, three rows at 8 lanes 12 of 16. One row alone would
// wait on its own chain (4 cycles an fma), so single rows take four tiles at a time: 8 chains at 16 lanes, 16 at 8
// lanes. Blocks go tile by tile: decoding lies between the additions of a chain, needs the registers, and reads memory
// fastest front to back.
//
// Block formats are decoded on the way for single rows. More rows share one decoding: a leaf of a tile becomes a panel
// of float32 in the first-level cache, and the rows meet it as they would meet an F32 matrix.
#define HWY_WANT_AVX3_DL  // VNNI
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <algorithm>
#include <memory>

#include "kernels/gemm.h"
#include "kernels/gemm_mx-inl.h"
#include "kernels/gemm_read-inl.h"
#include "kernels/mx_block.h"
#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kMaxRows = kL == 16 ? 12 : 3;
constexpr int64_t kTilesAtOnce = 4;     // for single rows
constexpr int64_t kPanelRows = 96;      // rows that share a decoded panel
constexpr int64_t kPanelColumns = 256;  // 32 KB of float32
constexpr int64_t kMostColumns = 32;    // of a chunk

// One leaf: columns [begin, end) of rows from m.
struct LeafPlace {
  int64_t begin, end, m;
};

// R rows times T tiles over columns [begin, end): leaf sums to `leaf`, [R][T * 32]. With kFetch the tiles come from
// memory and are fetched ahead; a single row is over before that would help.
template <class Reader, int64_t R, int64_t T, bool kFetch>
HWY_INLINE void Leaf(const float* const* x, const std::byte* const* tiles, int64_t begin, int64_t end,
                     float* HWY_RESTRICT leaf) {
  VF acc[R][T * kV];
  for (int64_t r = 0; r < R; ++r) {
    for (int64_t v = 0; v < T * kV; ++v) acc[r][v] = hn::Zero(kF);
  }
  int64_t k = begin;
  for (; k + 2 <= end; k += 2) {
    if constexpr (R == 1) {
      for (int64_t v = 0; v < T * kV; ++v) {
        VF even, odd;
        Reader::Load(tiles, v, k, even, odd);
        acc[0][v] = hn::MulAdd(hn::Set(kF, x[0][k]), even, acc[0][v]);
        acc[0][v] = hn::MulAdd(hn::Set(kF, x[0][k + 1]), odd, acc[0][v]);
      }
    } else {
      // One activation at a time, so that accumulators keep the registers.
      VF weights[2][T * kV];
      for (int64_t v = 0; v < T * kV; ++v) Reader::Load(tiles, v, k, weights[0][v], weights[1][v]);
      if constexpr (kFetch) {
        const std::byte* ahead = tiles[0] + k * Reader::kColumnBytes + kAheadBytes;
        for (int64_t line = 0; line < 2 * Reader::kColumnBytes; line += 64) hwy::Prefetch(ahead + line);
      }
      for (int64_t odd = 0; odd < 2; ++odd) {
        for (int64_t r = 0; r < R; ++r) {
          const VF activation = hn::Set(kF, x[r][k + odd]);
          for (int64_t v = 0; v < T * kV; ++v) acc[r][v] = hn::MulAdd(activation, weights[odd][v], acc[r][v]);
        }
      }
    }
  }
  // Only the matrix' last column can stand alone.
  for (; k < end; ++k) {
    for (int64_t v = 0; v < T * kV; ++v) {
      VF even, odd;
      Reader::Load(tiles, v, k, even, odd);
      for (int64_t r = 0; r < R; ++r) acc[r][v] = hn::MulAdd(hn::Set(kF, x[r][k]), even, acc[r][v]);
    }
  }
  for (int64_t r = 0; r < R; ++r) {
    for (int64_t v = 0; v < T * kV; ++v) hn::Store(acc[r][v], kF, leaf + r * T * kTileRows + v * kL);
  }
}

// Whole chunks of a tile as float32, [chunks * columns of a chunk][32].
template <quant::BlockFormat kFormat>
HWY_NOINLINE void DecodeChunks(const std::byte* tile, int64_t first, int64_t chunks, float* HWY_RESTRICT panel) {
  ChunkReader<kFormat> reader;
  for (int64_t chunk = first; chunk < first + chunks; ++chunk, panel += reader.kColumns * kTileRows) {
    reader.Begin(tile, chunk);
    reader.ForEach([&](int64_t column, int64_t v, VF weights)
                       HWY_ATTR { hn::Store(weights, kF, panel + column * kTileRows + v * kL); });
  }
}

// One row times a tile of blocks over columns [begin, end), which are stored from begin + phase on.
template <quant::BlockFormat kFormat>
HWY_INLINE void BlockLeaf(const float* x, const std::byte* tile, int64_t phase, const LeafPlace& place,
                          float* HWY_RESTRICT leaf) {
  using Reader = ChunkReader<kFormat>;
  VF acc[kV];
  for (VF& a : acc) a = hn::Zero(kF);
  Reader reader;
  for (int64_t k = place.begin; k < place.end;) {
    const int64_t chunk = (k + phase) / Reader::kColumns, first = chunk * Reader::kColumns - phase;
    const int64_t stop = std::min(first + Reader::kColumns, place.end);
    if (HWY_LIKELY(stop - k == Reader::kColumns)) {
      const float* from = x + k;
      reader.Begin(tile, chunk);
      reader.ForEach([&](int64_t column, int64_t v, VF weights)
                         HWY_ATTR { acc[v] = hn::MulAdd(hn::Set(kF, from[column]), weights, acc[v]); });
    } else {
      // A part of a chunk, where a leaf ends inside one.
      HWY_ALIGN float panel[kMostColumns * kTileRows];
      DecodeChunks<kFormat>(tile, chunk, 1, panel);
      for (int64_t column = k; column < stop; ++column) {
        for (int64_t v = 0; v < kV; ++v) {
          const VF weights = hn::Load(kF, panel + (column - first) * kTileRows + v * kL);
          acc[v] = hn::MulAdd(hn::Set(kF, x[column]), weights, acc[v]);
        }
      }
    }
    k = stop;
  }
  for (int64_t v = 0; v < kV; ++v) hn::Store(acc[v], kF, leaf + v * kL);
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

// Writes `rows` rows of T tiles: total is the exact or the fast sum of the leaves of each.
template <int64_t T>
HWY_INLINE void Write(const Gemm::Args& args, int64_t m, int64_t rows, int64_t n, const int64_t* fixed,
                      const float* fast) {
  const int64_t count = std::min(T * kTileRows, args.w->n - n);
  for (int64_t r = 0; r < rows; ++r) {
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

// Where leaves of a group of rows add up.
struct Totals {
  int64_t* fixed;
  float* fast;
};

// Adds the leaf sums of R rows times T tiles, [R][T * 32], to `totals`; returns range flags.
template <int64_t R, int64_t T>
HWY_INLINE uint32_t AddLeaf(const Gemm::Args& args, const float* HWY_RESTRICT leaf, int64_t m, const Totals& totals) {
  uint32_t flags = kInRange;
  if (args.numerics == Numerics::kExact) {
    for (int64_t r = 0; r < R; ++r) {
      const float scale = args.row_scale == nullptr ? 1.0F : args.row_scale[m + r];
      const int64_t at = r * T * kTileRows;
      flags |= AddToGrid(leaf + at, scale, T * kTileRows, totals.fixed + at);
    }
  } else {
    for (int64_t i = 0; i < R * T * kTileRows; i += kL) {
      hn::Store(hn::Add(hn::Load(kF, totals.fast + i), hn::Load(kF, leaf + i)), kF, totals.fast + i);
    }
  }
  return flags;
}

HWY_INLINE const float* RowOf(const Gemm::Args& args, int64_t m) {
  return args.x + (args.x_rows == nullptr ? m : args.x_rows[m]) * args.x_stride;
}

// R rows from m, T tiles from `tile`; leaf(x, tiles, place, sums) computes a leaf's sums.
template <int64_t R, int64_t T, class LeafFn>
HWY_INLINE void Tiles(const Gemm::Args& args, int64_t m, int64_t tile, const LeafFn& leaf_sums) {
  const PackedMatrix& w = *args.w;
  const std::byte* tiles[T];
  const int64_t tile_bytes = w.tile_bytes();
  for (int64_t t = 0; t < T; ++t) tiles[t] = w.data + (tile + t) * tile_bytes;
  const float* x[R];
  for (int64_t r = 0; r < R; ++r) x[r] = RowOf(args, m + r);
  HWY_ALIGN int64_t fixed[R * T * kTileRows] = {};
  HWY_ALIGN float fast[R * T * kTileRows] = {};
  uint32_t flags = kInRange;
  for (int64_t k = 0; k < w.k; k += w.leaf) {
    HWY_ALIGN float leaf[R * T * kTileRows];
    leaf_sums(x, tiles, LeafPlace{k, std::min(k + w.leaf, w.k), m}, leaf);
    flags |= AddLeaf<R, T>(args, leaf, m, {fixed, fast});
  }
  if (flags != kInRange) args.flags->fetch_or(flags, std::memory_order_relaxed);
  Write<T>(args, m, R, tile * kTileRows, fixed, fast);
}

template <class Reader, int64_t R, int64_t T>
HWY_NOINLINE void Plain(const Gemm::Args& args, int64_t m, int64_t tile) {
  Tiles<R, T>(args, m, tile,
              [](const float* const* x, const std::byte* const* tiles, const LeafPlace& place, float* leaf)
                  HWY_ATTR { Leaf<Reader, R, T, true>(x, tiles, place.begin, place.end, leaf); });
}

template <quant::BlockFormat kFormat>
HWY_NOINLINE void Blocks(const Gemm::Args& args, int64_t m, int64_t tile) {
  const int64_t phase = args.w->phase;
  Tiles<1, 1>(args, m, tile,
              [phase](const float* const* x, const std::byte* const* tiles, const LeafPlace& place, float* leaf)
                  HWY_ATTR { BlockLeaf<kFormat>(x[0], tiles[0], phase, place, leaf); });
}

template <class Reader, int64_t R>
HWY_INLINE void Rows(const Gemm::Args& args, int64_t m, int64_t rows, int64_t tile) {
  if (rows == R) {
    Plain<Reader, R, 1>(args, m, tile);
  } else if constexpr (R > 1) {
    Rows<Reader, R - 1>(args, m, rows, tile);
  }
}

template <WeightFormat kFormat>
HWY_INLINE void PlainTiles(const Gemm::Args& args) {
  using Reader = PlainReader<kFormat>;
  int64_t tile = args.tile_begin;
  if (args.m == 1) {
    for (; tile + kTilesAtOnce <= args.tile_end; tile += kTilesAtOnce) Plain<Reader, 1, kTilesAtOnce>(args, 0, tile);
  }
  // Blocks as even as can be: a row or two left over would wait for their chains, and decode the tile again.
  const int64_t blocks = (args.m + kMaxRows - 1) / kMaxRows;
  for (; tile < args.tile_end; ++tile) {
    for (int64_t b = 0, m = 0; b < blocks; ++b) {
      const int64_t rows = (args.m - m) / (blocks - b);
      Rows<Reader, kMaxRows>(args, m, rows, tile);
      m += rows;
    }
  }
}

// Whole chunks of a tile as float32, and how many columns a chunk has.
struct Decoder {
  void (*chunks)(const std::byte* tile, int64_t first, int64_t chunks, float* panel);
  int64_t columns;
};

// The leaf [begin, end) of R rows against a panel of it.
template <int64_t R>
HWY_NOINLINE uint32_t PanelLeaf(const Gemm::Args& args, const float* panel, const LeafPlace& place,
                                const Totals& totals) {
  const float* x[R];
  for (int64_t r = 0; r < R; ++r) x[r] = RowOf(args, place.m + r) + place.begin;
  const auto* tile = reinterpret_cast<const std::byte*>(panel);
  HWY_ALIGN float leaf[R * kTileRows];
  Leaf<PlainReader<WeightFormat::kF32>, R, 1, false>(x, &tile, 0, place.end - place.begin, leaf);
  return AddLeaf<R, 1>(args, leaf, place.m, totals);
}

template <int64_t R>
HWY_INLINE uint32_t PanelRows(const Gemm::Args& args, int64_t rows, const float* panel, const LeafPlace& place,
                              const Totals& totals) {
  if (rows == R) return PanelLeaf<R>(args, panel, place, totals);
  if constexpr (R > 1) return PanelRows<R - 1>(args, rows, panel, place, totals);
  return kInRange;
}

// Rows [m, m + rows) of one tile, at most kPanelRows of them.
HWY_NOINLINE void PanelTile(const Gemm::Args& args, const Decoder& decoder, int64_t m, int64_t rows, int64_t tile) {
  const PackedMatrix& w = *args.w;
  HWY_ALIGN float panel[(kPanelColumns + 2 * kMostColumns) * kTileRows];  // chunks on the borders come whole
  HWY_ALIGN int64_t fixed[kPanelRows * kTileRows];
  HWY_ALIGN float fast[kPanelRows * kTileRows];
  std::fill_n(fixed, rows * kTileRows, 0);
  std::fill_n(fast, rows * kTileRows, 0.0F);
  uint32_t flags = kInRange;
  for (int64_t k = 0; k < w.k; k += w.leaf) {
    const int64_t end = std::min(k + w.leaf, w.k);
    const int64_t first = (k + w.phase) / decoder.columns, last = (end + w.phase - 1) / decoder.columns;
    decoder.chunks(w.data + tile * w.tile_bytes(), first, last + 1 - first, panel);
    const float* leaf = panel + (k + w.phase - first * decoder.columns) * kTileRows;
    for (int64_t r = 0; r < rows; r += kMaxRows) {
      flags |= PanelRows<kMaxRows>(args, std::min(kMaxRows, rows - r), leaf, {k, end, m + r},
                                   {fixed + r * kTileRows, fast + r * kTileRows});
    }
  }
  if (flags != kInRange) args.flags->fetch_or(flags, std::memory_order_relaxed);
  Write<1>(args, m, rows, tile * kTileRows, fixed, fast);
}

template <quant::BlockFormat kFormat>
HWY_INLINE void BlockTiles(const Gemm::Args& args) {
  constexpr Decoder kDecoder{DecodeChunks<kFormat>, ChunkReader<kFormat>::kColumns};
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    for (int64_t m = 0; m < args.m; m += kPanelRows) {
      const int64_t rows = std::min(kPanelRows, args.m - m);
      // A leaf longer than a panel goes without one, row by row.
      if (rows > 1 && args.w->leaf <= kPanelColumns) {
        PanelTile(args, kDecoder, m, rows, tile);
      } else {
        for (int64_t r = 0; r < rows; ++r) Blocks<kFormat>(args, m + r, tile);
      }
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
void MxTiles(const Gemm::Args& args) { GemmRef(args); }
#else
// R rows from m, of which `x` holds the blocks, times one tile.
template <int64_t R>
HWY_NOINLINE void MxBlocks(const Gemm::Args& args, const MxBytes* x, int64_t m, int64_t tile) {
  const int64_t blocks = (args.w->k + kMxColumns - 1) / kMxColumns;
  Tiles<R, 1>(args, m, tile,
              [x, blocks](const float* const*, const std::byte* const* tiles, const LeafPlace& place, float* leaf)
                  HWY_ATTR {
                    const int64_t first = place.begin / kMxColumns, end = (place.end + kMxColumns - 1) / kMxColumns;
                    constexpr int64_t kBytes = PackedBlockOf(quant::TraitsOf(quant::BlockFormat::kMxfp4)).bytes;
                    MxLeaf<R>(x + first, blocks, tiles[0] + first * kBytes, end - first, leaf);
                  });
}

template <int64_t R>
HWY_INLINE void MxSomeRows(const Gemm::Args& args, const MxBytes* x, int64_t m, int64_t rows, int64_t tile) {
  if (rows == R) return MxBlocks<R>(args, x, m, tile);
  if constexpr (R > 1) MxSomeRows<R - 1>(args, x, m, rows, tile);
}

void MxTiles(const Gemm::Args& args) {
  const int64_t k = args.w->k, blocks = (k + kMxColumns - 1) / kMxColumns;
  const auto x = std::make_unique_for_overwrite<MxBytes[]>(static_cast<size_t>(std::min(kPanelRows, args.m) * blocks));
  for (int64_t first = 0; first < args.m; first += kPanelRows) {
    const int64_t end = std::min(first + kPanelRows, args.m);
    for (int64_t m = first; m < end; ++m) PrepareRow(RowOf(args, m), k, x.get() + (m - first) * blocks);
    for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
      for (int64_t m = first; m < end; m += kMxRows) {
        MxSomeRows<kMxRows>(args, x.get() + (m - first) * blocks, m, std::min(kMxRows, end - m), tile);
      }
    }
  }
}

#endif

void GemmSimd(const Gemm::Args& args) {
  using quant::BlockFormat;
  switch (args.w->format) {
    case WeightFormat::kBF16:
      return PlainTiles<WeightFormat::kBF16>(args);
    case WeightFormat::kF16:
      return PlainTiles<WeightFormat::kF16>(args);
    case WeightFormat::kF32:
      return PlainTiles<WeightFormat::kF32>(args);
    case WeightFormat::kQ4_0:
      return BlockTiles<BlockFormat::kQ4_0>(args);
    case WeightFormat::kQ4_1:
      return BlockTiles<BlockFormat::kQ4_1>(args);
    case WeightFormat::kQ5_0:
      return BlockTiles<BlockFormat::kQ5_0>(args);
    case WeightFormat::kQ5_1:
      return BlockTiles<BlockFormat::kQ5_1>(args);
    case WeightFormat::kQ8_0:
      return BlockTiles<BlockFormat::kQ8_0>(args);
    case WeightFormat::kQ4K:
      return BlockTiles<BlockFormat::kQ4K>(args);
    case WeightFormat::kQ5K:
      return BlockTiles<BlockFormat::kQ5K>(args);
    case WeightFormat::kQ6K:
      return BlockTiles<BlockFormat::kQ6K>(args);
    case WeightFormat::kMxfp4:
      if (MxServes(*args.w)) return MxTiles(args);
      return BlockTiles<BlockFormat::kMxfp4>(args);
    case WeightFormat::kFp8:
      return BlockTiles<BlockFormat::kFp8>(args);
    case WeightFormat::kMxfp4Halves:
      return GemmRef(args);  // no processor keeps weights so (FormatOn)
  }
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trivet::kernels {

std::span<const KernelRow<Gemm>> Gemm::Rows() {
  static constexpr KernelRow<Gemm> kRows[] = {
#if HWY_TARGETS & HWY_AVX3_DL
    {"gemm/avx512vnni", HWY_AVX3_DL, N_AVX3_DL::GemmSimd},
#endif
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
