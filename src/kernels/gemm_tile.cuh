// SPDX-License-Identifier: Apache-2.0
// The product of some rows with one tile of weights by one block: a lane is an output row of the tile, a warp takes
// leaves in turn, and leaf sums meet in shared memory.
#pragma once

#include <atomic>

#include "kernels/cuda_launch.cuh"
#include "kernels/fixed_point.h"
#include "kernels/weight_element.h"

namespace trivet::kernels {

inline constexpr int kTileWarps = 8;
inline constexpr int kTileThreads = kTileWarps * kWarp;

/// A tile and how its sums are made.
struct TileProduct {
  const PackedMatrix& w;
  const std::byte* data;  // the tile's begin
  int64_t tile;           // its number
  Numerics numerics = Numerics::kExact;
};

/// The rows that meet it. Entries from `count` on repeat a row and are not written.
template <int kRows>
struct TileRows {
  int count;
  const float* x[kRows];
  float scale[kRows];
  int64_t at[kRows];  // where the row's outputs begin
};

/// Where sums go, as in Gemm::Args; exact sums may be added to by other blocks at the same time.
struct TileOutput {
  float* y;
  int64_t* sums_fixed;
  float* sums_fast;
  std::atomic<uint32_t>* flags;
};

/// The chains of one leaf: columns [begin, end) of output row `lane`.
template <WeightFormat kFormat, int kRows>
__device__ void LeafSums(const TileProduct& product, const TileRows<kRows>& rows, int64_t begin, int64_t end,
                         float (&sums)[kRows]) {
  for (float& sum : sums) sum = 0;
  for (int64_t k = begin; k < end; ++k) {
    const float weight = LoadElement<kFormat>(product.data, threadIdx.x, product.w.phase + k);
#pragma unroll
    for (int i = 0; i < kRows; ++i) sums[i] = std::fma(rows.x[i][k], weight, sums[i]);
  }
}

/// Multiplies; every thread of the block calls it.
template <WeightFormat kFormat, int kRows>
__device__ void MultiplyTile(const TileProduct& product, const TileRows<kRows>& rows, const TileOutput& out) {
  __shared__ float leaves[kTileWarps][kRows][kWarp];
  __shared__ int64_t totals[kTileWarps][kRows][kWarp];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t n = product.tile * kTileRows + lane;
  const bool exact = product.numerics == Numerics::kExact;
  int64_t fixed[kRows] = {};
  float fast[kRows] = {};
  uint32_t flags = kInRange;
  for (int64_t round = 0; round < product.w.k; round += kTileWarps * product.w.leaf) {
    const int64_t begin = round + warp * product.w.leaf, end = std::min(begin + product.w.leaf, product.w.k);
    float sums[kRows];
    LeafSums<kFormat, kRows>(product, rows, begin, end, sums);
    for (int i = 0; i < kRows && begin < end; ++i) {
      if (exact) {
        fixed[i] += ToGrid(rows.scale[i] * sums[i], &flags);
      } else {
        leaves[warp][i][lane] = sums[i];
      }
    }
    if (exact) continue;
    // Float sums are added in ascending order: one warp adds a round's leaves.
    __syncthreads();
    const int64_t held = std::min<int64_t>(kTileWarps, (product.w.k - round + product.w.leaf - 1) / product.w.leaf);
    for (int i = 0; i < kRows && warp == 0; ++i) {
      for (int64_t leaf = 0; leaf < held; ++leaf) fast[i] += leaves[leaf][i][lane];
    }
    __syncthreads();
  }
  if (exact) {
    for (int i = 0; i < kRows; ++i) totals[warp][i][lane] = fixed[i];
    // Rows of a tile beyond the matrix hold zeros or the rest of a block: they raise nothing.
    if (flags != kInRange && n < product.w.n) atomicOr(reinterpret_cast<uint32_t*>(out.flags), flags);
    __syncthreads();
  }
  if (warp != 0 || n >= product.w.n) return;
  for (int i = 0; i < rows.count; ++i) {
    int64_t total = 0;
    for (int other = 0; other < kTileWarps && exact; ++other) total += totals[other][i][lane];
    const int64_t at = rows.at[i] + n;
    if (out.y != nullptr) {
      out.y[at] = exact ? FromGrid(total) : fast[i];
    } else if (exact) {
      atomicAdd(reinterpret_cast<unsigned long long*>(out.sums_fixed + at), static_cast<unsigned long long>(total));
    } else {
      out.sums_fast[at] += rows.scale[i] * fast[i];
    }
  }
}

}  // namespace trivet::kernels
