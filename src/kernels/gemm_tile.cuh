// SPDX-License-Identifier: Apache-2.0
// The product of a few rows with tiles of weights, by one block: a warp has tiles of its own, a lane an output row of
// each, and all warps walk the same leaves, whose columns of x stand in shared memory. Where several blocks share the
// leaves of a tile, their sums, which are integers, meet at the end.
#pragma once

#include <cooperative_groups.h>

#include <atomic>

#include "kernels/fixed_point.h"
#include "kernels/gemm_read.cuh"

namespace trivet::kernels {

/// Where sums go, as in Gemm::Args; other blocks may add to them at the same time.
struct TileOutput {
  float* y;
  int64_t* sums_fixed;
  std::atomic<uint32_t>* flags;
};

/// What a block multiplies: leaves [leaf_begin, leaf_end) of the tiles from `tile` on.
struct TileProduct {
  const PackedMatrix& w;
  int64_t tile_bytes;
  int64_t tile;      // the block's first
  int64_t tile_end;  // tiles from here on are not written
  int leaf_begin, leaf_end;
  bool whole_chunks;  // leaves are chunks of columns
  bool cluster;       // the blocks of a cluster share the leaves, and their sums are one output
};

/// The rows that meet the tiles. Rows from `count` on repeat the last and are not written.
struct TileRows {
  int count;
  const float* x;
  const int32_t* x_rows;  // [count] rows of x, or null for those from `first` on
  int64_t first, x_stride;
  const float* scales;    // [count], or null for 1
  const int32_t* y_rows;  // [count] rows of the outputs, or null for those from `y_first` on
  int64_t y_first, y_stride;

  __device__ const float* X(int i) const {
    const int m = min(i, count - 1);
    return x + (x_rows == nullptr ? first + m : x_rows[m]) * x_stride;
  }
  __device__ float Scale(int i) const { return scales == nullptr ? 1.0F : scales[min(i, count - 1)]; }
  __device__ int64_t Output(int i) const { return (y_rows == nullptr ? y_first + i : y_rows[i]) * y_stride; }
};

/// Warps of a block; each has one tile.
inline constexpr int kTileWarps = 4;

/// Shared memory of a block. What runs once a leaf goes through it in short loops: code that is read once costs more
/// than the work in it.
template <int kRows>
struct TileShared {
  static constexpr int kColumns = 4096 / kRows;  // of x, held at once: a multiple of every chunk

  int64_t totals[kTileWarps][kRows][kWarp];
  float leaves[kTileWarps][kRows][kWarp];
  float x[kRows][kColumns];
};

/// The larger one; a NaN where one is.
__device__ inline float LargerOrNaN(float a, float b) {
  float larger = 0;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

/// ToGrid of a sum that is known to be in range: the product is exact, so one rounding is left here too.
__device__ inline int64_t ToGridInRange(float leaf) {
  return __double_as_longlong(std::fma(static_cast<double>(leaf), +kGridScale, +kRoundingMagic)) -
         std::bit_cast<int64_t>(+kRoundingMagic);
}

/// Brings the sums of a warp's lanes into the grid's range, as ToGrid does with one of them, and reports those outside.
///   counts(v)  whether sum number v is one that is written
///   sum(v)     a reference to it
template <int kSums, class Counts, class Sum>
__device__ inline void LimitLeaf(const Counts& counts, const Sum& sum, uint32_t* flags) {
  float most = 0;
#pragma unroll
  for (int v = 0; v < kSums; ++v) most = LargerOrNaN(most, std::fabs(sum(v)));
  if (__all_sync(kAllLanes, most <= kLeafLimit) != 0) return;
#pragma unroll
  for (int v = 0; v < kSums; ++v) {
    const uint32_t met = RangeOf(sum(v));
    if (counts(v)) *flags |= met;
    if (met != kInRange) sum(v) = sum(v) < 0 ? -kLeafLimit : +kLeafLimit;
  }
}

/// Adds a leaf's sum to a total.
__device__ inline void AddLeaf(float scale, float leaf, int64_t* total, uint32_t* flags) {
  *total += ToGrid(scale * leaf, flags);
}

/// Adds the total of one output to its sum; `at` is its place.
__device__ inline void AddTotal(const TileOutput& out, int64_t at, int64_t total) {
  atomicAdd(reinterpret_cast<unsigned long long*>(out.sums_fixed + at), static_cast<unsigned long long>(total));
}

/// Writes the total of one output, or adds it to its sum.
__device__ inline void WriteTotal(const TileOutput& out, int64_t at, int64_t total) {
  if (out.y == nullptr) return AddTotal(out, at, total);
  out.y[at] = FromGrid(total);
}

/// One warp's chains, one for each row and lane.
template <WeightFormat kFormat, int kRows>
struct LeafChains {
  using Reader = ChunkReader<kFormat>;
  using Shared = TileShared<kRows>;
  static constexpr int kColumns = Reader::kColumns;
  static constexpr int kAhead = Reader::kAhead;
  static_assert(Shared::kColumns % kColumns == 0);

  const TileProduct& product;
  const TileRows& rows;
  Shared& shared;
  const std::byte* tile;
  float sums[kRows] = {};
  uint32_t flags = kInRange;
  int left;  // columns of the leaf that are still to come
  Reader ring[kAhead];

  __device__ LeafChains(const TileProduct& p, const TileRows& r, Shared& s)
      : product(p), rows(r), shared(s), left(static_cast<int>(p.w.leaf)) {
    const int64_t number = p.tile + threadIdx.y;
    tile = p.w.data + (number < p.tile_end ? number : p.tile_end - 1) * p.tile_bytes;
#pragma unroll
    for (int i = 0; i < kRows; ++i) shared.totals[threadIdx.y][i][threadIdx.x] = 0;
  }

  __device__ void EndLeaf() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      shared.leaves[threadIdx.y][i][threadIdx.x] = sums[i];
      sums[i] = 0;
    }
#pragma unroll 1
    for (int i = 0; i < kRows; ++i) {
      AddLeaf(rows.Scale(i), shared.leaves[threadIdx.y][i][threadIdx.x], &shared.totals[threadIdx.y][i][threadIdx.x],
              &flags);
    }
    left = static_cast<int>(product.w.leaf);
  }

  // Takes a chunk's weights times the columns of x from `column` on, where they stand in shared memory.
  template <int q, bool kUsual>
  __device__ void Fours(int column) {
    if constexpr (q < kColumns / 4) {
      float weights[4];
      ring[0].template Four<q, kUsual>(weights);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float4 x = *reinterpret_cast<const float4*>(&shared.x[i][column + 4 * q]);
        float sum = std::fma(x.x, weights[0], sums[i]);
        sum = std::fma(x.y, weights[1], sum);
        sum = std::fma(x.z, weights[2], sum);
        sums[i] = std::fma(x.w, weights[3], sum);
      }
      Fours<q + 1, kUsual>(column);
    }
  }

  // Chunks [number, end), whose columns stand in shared memory from `column` on; loads go on up to `last`.
  __device__ void Chunks(int number, int end, int last, int column) {
#pragma unroll 1
    for (; number < end; ++number, column += kColumns) {
      ring[0].Begin();
      if (ring[0].Usual()) {
        Fours<0, true>(column);
      } else {
        Fours<0, false>(column);
      }
#pragma unroll
      for (int d = 0; d + 1 < kAhead; ++d) ring[d] = ring[d + 1];
      if (number + kAhead < last) ring[kAhead - 1].Load(tile, number + kAhead);
      left -= kColumns;
      if (left == 0) EndLeaf();
    }
  }

  // `count` columns from `first` on, one by one; they stand in shared memory from `column` on.
  __device__ void Elements(int first, int count, int column) {
    const int64_t row = Reader::RowOf(static_cast<int>(threadIdx.x));
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      const float weight = LoadElement<kFormat>(tile, row, product.w.phase + first + k);
#pragma unroll
      for (int i = 0; i < kRows; ++i) sums[i] = std::fma(shared.x[i][column + k], weight, sums[i]);
      if (--left == 0) EndLeaf();
    }
  }
};

/// Puts columns [column, end) of the rows into shared memory.
template <int kRows>
__device__ void HoldColumns(const TileRows& rows, int column, int end, TileShared<kRows>& shared) {
  const int thread = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  constexpr int kThreads = kTileWarps * kWarp;
#pragma unroll 1
  for (int i = 0; i < kRows; ++i) {
    const float* from = rows.X(i) + column;
    float* to = shared.x[i];
    int done = 0;
    if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
      done = (end - column) / 4 * 4;
#pragma unroll 4
      for (int k = thread * 4; k < done; k += kThreads * 4) {
        *reinterpret_cast<float4*>(to + k) = *reinterpret_cast<const float4*>(from + k);
      }
    }
#pragma unroll 1
    for (int k = done + thread; k < end - column; k += kThreads) to[k] = from[k];
  }
}

/// The sum of the totals that stand in `shared` as number `i` of the `ways` warps that share a tile, over all blocks of
/// a cluster where that is asked for. Of these warps and blocks one writes it; to the others it is of no use.
template <class Shared>
__device__ int64_t SharedTotal(Shared& shared, int i, int ways, [[maybe_unused]] bool cluster, bool* writes) {
  const int warp = static_cast<int>(threadIdx.y), first = warp / ways * ways;
  const auto of_block = [&](const Shared& block) {
    int64_t total = 0;
    for (int w = first; w < first + ways; ++w) total += block.totals[w][i][threadIdx.x];
    return total;
  };
  *writes = i % ways == warp - first;
#if __CUDA_ARCH__ >= 900
  if (cluster) {
    const cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
    const unsigned blocks = group.num_blocks();
    *writes &= static_cast<unsigned>(i + first) / static_cast<unsigned>(ways) % blocks == group.block_rank();
    int64_t total = 0;
    for (unsigned block = 0; block < blocks && *writes; ++block)
      total += of_block(*group.map_shared_rank(&shared, block));
    return total;
  }
#endif
  return of_block(shared);
}

/// Waits for all blocks of a cluster.
__device__ inline void SyncCluster() {
#if __CUDA_ARCH__ >= 900
  cooperative_groups::this_cluster().sync();
#endif
}

/// Multiplies; every thread of a block of (32, kTileWarps) calls it.
template <WeightFormat kFormat, int kRows>
__device__ void MultiplyTiles(const TileProduct& product, const TileRows& rows, const TileOutput& out) {
  using Chains = LeafChains<kFormat, kRows>;
  using Shared = TileShared<kRows>;
  __shared__ __align__(16) Shared shared;
  const int leaf = static_cast<int>(product.w.leaf), begin = product.leaf_begin * leaf;
  const int end = min(product.leaf_end * leaf, static_cast<int>(product.w.k));
  int number = (static_cast<int>(product.w.phase) + begin) / Chains::kColumns;  // of the next chunk
  const int last = number + (product.whole_chunks ? (end - begin) / Chains::kColumns : 0);
  Chains chains(product, rows, shared);
#pragma unroll
  for (int d = 0; d < Chains::kAhead; ++d) {
    if (number + d < last) chains.ring[d].Load(chains.tile, number + d);
  }
  AwaitPrevious();
#pragma unroll 1
  for (int column = begin; column < end; column += Shared::kColumns) {
    const int stop = min(column + Shared::kColumns, end);
    const int whole = product.whole_chunks ? (stop - column) / Chains::kColumns : 0;
    if (column > begin) __syncthreads();
    HoldColumns(rows, column, stop, shared);
    __syncthreads();
    chains.Chunks(number, number + whole, last, 0);
    number += whole;
    const int done = whole * Chains::kColumns;
    if (column + done < stop) chains.Elements(column + done, stop - column - done, done);
  }
  if (chains.left != leaf) chains.EndLeaf();
  if (product.cluster) SyncCluster();
  const int64_t tile = product.tile + threadIdx.y;
  const int64_t n = tile * kTileRows + Chains::Reader::RowOf(static_cast<int>(threadIdx.x));
  // Rows of a tile beyond the matrix hold zeros or the rest of a block: they raise nothing.
  const bool real = tile < product.tile_end && n < product.w.n;
#pragma unroll 1
  for (int i = 0; i < rows.count; ++i) {
    bool writes = true;
    const int64_t total = SharedTotal(shared, i, 1, product.cluster, &writes);
    if (real && writes) WriteTotal(out, rows.Output(i) + n, total);
  }
  if (chains.flags != kInRange && real) {
    atomicOr(reinterpret_cast<uint32_t*>(out.flags), chains.flags);
  }
  if (product.cluster) SyncCluster();  // nobody leaves while others read
}

}  // namespace trivet::kernels
