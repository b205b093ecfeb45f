// SPDX-License-Identifier: Apache-2.0
// Products of a few rows by matrix units: with activations as three BF16 where weights are BF16
// (gemm_matrix_parts.cuh), else as integers (gemm_matrix_limbs.cuh). A leaf's sum does not depend on how many rows
// there are. Leaves join as in every other product.
#pragma once

#include <type_traits>

#include "kernels/gemm_matrix_limbs.cuh"
#include "kernels/gemm_matrix_parts.cuh"
#include "kernels/gemm_tile.cuh"

namespace trivet::kernels {

/// What kFormat multiplies by: activations as they stand in shared memory, and sums of a leaf.
///   Held::Put(row, eight, x)              called by four neighbouring threads at once, for the block of a row
///   Sums::Weights(stored)                 the weights of a block, decoded
///   Sums::Multiply(weights, held, block)  a block's products, kTogether of which are made at once
///   Sums::Add(product)                    adds them, in the blocks' order
///   Sums::Value(v), OneValue()            sums of the leaf, by every lane
template <WeightFormat kFormat, int kRows, int kBlocks>
using HeldActivations =
    std::conditional_t<kFormat == WeightFormat::kBF16, HeldParts<kRows, kBlocks>, HeldLimbs<kFormat, kRows, kBlocks>>;
template <WeightFormat kFormat, int kRows>
using LeafSums = std::conditional_t<kFormat == WeightFormat::kBF16, PartSums<kRows>, LimbSums<kFormat, kRows>>;

/// Reads eight columns, aligned to 16 bytes.
__device__ inline void ReadAligned(const float* from, float (&x)[8]) {
  const float4 a = *reinterpret_cast<const float4*>(from), b = *(reinterpret_cast<const float4*>(from) + 1);
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

/// Reads eight columns of a row from `column` on, a multiple of eight; those from `end` on are zeros.
__device__ inline void ReadActivations(const float* row, int column, int end, float (&x)[8]) {
  if (reinterpret_cast<uintptr_t>(row) % 16 == 0 && column + 8 <= end) {
    ReadAligned(row + column, x);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = column + i < end ? row[column + i] : 0.0F;
  }
}

/// Warps of a block that multiplies a few rows; each has one tile.
inline constexpr int kMatrixWarps = 4;

/// Columns of x that it holds at once.
constexpr int HeldColumns(WeightFormat format, int rows) {
  return rows == 1 ? 4096 : (format == WeightFormat::kBF16 ? 6144 : 8192) / rows;
}

/// Shared memory of such a block: activations, and at the end the totals of its warps.
template <WeightFormat kFormat, int kRows>
struct MatrixShared {
  static constexpr int kColumns = HeldColumns(kFormat, kRows);
  static constexpr int kBlocks = kColumns / kMatrixColumns;

  union {
    HeldActivations<kFormat, kRows, kBlocks> held;
    int64_t totals[kMatrixWarps][kRows][kWarp];
  };
};

/// Puts columns [column, end) of the rows into shared memory, and zeros up to the next block's begin; every thread of a
/// block of kWarps warps calls it.
template <int kRows, int kWarps, class Held>
__device__ void HoldRows(const TileRows& rows, int column, int end, Held& held) {
  const int thread = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  const int eights = (end - column + kMatrixColumns - 1) / kMatrixColumns * 4;
  // Loads of several rows are under way together.
  constexpr int kTogether = kRows == 1 ? 1 : 4;
#pragma unroll 1
  for (int at = thread; at < eights * (kRows / kTogether); at += kWarps * kWarp) {
    const int row = kRows == kTogether ? 0 : at / eights * kTogether, eight = kRows == kTogether ? at : at % eights;
    float x[kTogether][8];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) ReadActivations(rows.X(row + i), column + eight * 8, end, x[i]);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) held.Put(row + i, eight, x[i]);
  }
}

/// A warp's totals of one tile and kRows rows, of which a lane has kRows: 1, 4, or a multiple of 8.
template <WeightFormat kFormat, int kRows>
struct MatrixTotals {
  static constexpr int kScales = kRows <= 4 ? 1 : kRows / 4;

  int64_t totals[kRows] = {};
  uint32_t flags = kInRange;
  float scales[kScales];  // of rows RowOf(v), at ScaleOf(v)

  explicit __device__ MatrixTotals(const TileRows& rows) {
#pragma unroll
    for (int i = 0; i < kScales; ++i) scales[i] = rows.Scale(RowOf(i / 2 * 8 + i % 2));
  }

  /// The row of the tile and the row of x that value v of this lane belongs to, as the sums of leaves say.
  static __device__ int OutputOf(int v) {
    const int lane = static_cast<int>(threadIdx.x);
    return kRows == 1 ? lane : lane / 4 * 4 + (kRows == 4 ? v : v % 8 / 2);
  }
  static __device__ int RowOf(int v) {
    const int column = static_cast<int>(LaneColumn());
    return kRows == 1 ? 0 : kRows == 4 ? column : v / 8 * 8 + column * 2 + v % 2;
  }
  static constexpr int ScaleOf(int v) { return kRows <= 4 ? 0 : v / 8 * 2 + v % 2; }

  __device__ void EndLeaf(LeafSums<kFormat, kRows>& sums) {
    if constexpr (kRows == 1) {
      AddLeaf(scales[0], sums.OneValue(), &totals[0], &flags);
    } else {
#pragma unroll
      for (int v = 0; v < kRows; ++v) sums.Value(v) *= scales[ScaleOf(v)];
      LimitLeaf<kRows>([](int) { return true; }, [&sums](int v) -> float& { return sums.Value(v); }, &flags);
#pragma unroll
      for (int v = 0; v < kRows; ++v) totals[v] += ToGridInRange(sums.Value(v));
    }
    sums = {};
  }
};

/// Multiplies; every thread of a block of (32, kMatrixWarps) calls it, of which kWays warps share a tile. Leaves are
/// whole blocks of 32 columns.
template <WeightFormat kFormat, int kRows, int kWays>
__device__ void MultiplyTilesByMatrix(const TileProduct& product, const TileRows& rows, const TileOutput& out) {
  using Totals = MatrixTotals<kFormat, kRows>;
  using Shared = MatrixShared<kFormat, kRows>;
  __shared__ __align__(16) Shared shared;
  const int width = static_cast<int>(product.w.leaf), k = static_cast<int>(product.w.k);
  const int leaf = width / kMatrixColumns, leaves = product.leaf_end - product.leaf_begin;
  const int begin = product.leaf_begin * width, end = min(product.leaf_end * width, k);
  // This warp's tile, and its part of the columns.
  const int part = static_cast<int>(threadIdx.y) % kWays;
  const int64_t number = product.tile + static_cast<int>(threadIdx.y) / kWays;
  const int part_begin = min(begin + leaves * part / kWays * width, end);
  const int part_end = min(begin + leaves * (part + 1) / kWays * width, end);
  const std::byte* tile =
      product.w.data + (number < product.tile_end ? number : product.tile_end - 1) * product.tile_bytes;
  const int phase = static_cast<int>(product.w.phase);
  BlockRing<kFormat, kRows == 1> ring(tile, phase + part_begin, part_end - part_begin);
  const int64_t warps = static_cast<int64_t>(gridDim.x) * gridDim.y * gridDim.z * kMatrixWarps;
  const int64_t first = TileBytes<kFormat>(phase + part_begin), bytes = TileBytes<kFormat>(phase + part_end) - first;
  Fetch(tile + first, std::min(bytes, kFetchedBytes / warps), threadIdx.x, kWarp);
  AwaitPrevious();
  Totals totals(rows);
  using Sums = LeafSums<kFormat, kRows>;
  Sums sums;
  int left = leaf;  // blocks of the leaf that are still to come
  constexpr int kPlaces = BlockRing<kFormat, kRows == 1>::kPlaces;
  static_assert(Shared::kBlocks % kPlaces == 0);
#pragma unroll 1
  for (int column = begin; column < end; column += Shared::kColumns) {
    const int stop = min(column + Shared::kColumns, end);
    if (column > begin) __syncthreads();
    HoldRows<kRows, kMatrixWarps>(rows, column, stop, shared.held);
    __syncthreads();
    const int from = max(column, part_begin), blocks = CeilDiv(min(stop, part_end) - from, kMatrixColumns);
    const int at = (from - column) / kMatrixColumns;
#pragma unroll 1
    for (int place = 0; place < blocks; place += kPlaces) {
#pragma unroll
      for (int i = 0; i < kPlaces; i += Sums::kTogether) {
        if (place + i >= blocks) {
          // Where there is little else, what is read ahead would need copies at every way out of the loop.
          if constexpr (kRows == 1) continue;
          break;
        }
        typename Sums::Product products[Sums::kTogether];
#pragma unroll
        for (int j = 0; j < Sums::kTogether; ++j) {
          // Of a block that is not there, what its registers held before: nobody adds it.
          const typename Sums::Weights weights(ring.blocks[i + j]);
          ring.LoadAhead(i + j);
          products[j] = sums.Multiply(weights, shared.held, at + place + i + j);
        }
#pragma unroll
        for (int j = 0; j < Sums::kTogether; ++j) {
          if (j > 0 && place + i + j >= blocks) continue;
          sums.Add(products[j]);
          if (--left == 0) {
            totals.EndLeaf(sums);
            left = leaf;
          }
        }
      }
    }
  }
  if (left != leaf) totals.EndLeaf(sums);
  const bool sole = kWays == 1 && !product.cluster;
  if (!sole) {
    __syncthreads();
#pragma unroll
    for (int v = 0; v < kRows; ++v) shared.totals[threadIdx.y][v][threadIdx.x] = totals.totals[v];
    if (product.cluster) {
      SyncCluster();
    } else {
      __syncthreads();
    }
  }
#pragma unroll
  for (int v = 0; v < kRows; ++v) {
    bool writes = true;
    const int64_t total = sole ? totals.totals[v] : SharedTotal(shared, v, kWays, product.cluster, &writes);
    const int64_t n = number * kTileRows + Totals::OutputOf(v);
    const int row = Totals::RowOf(v);
    // Rows of a tile beyond the matrix hold zeros or the rest of a block: they raise nothing.
    const bool real = number < product.tile_end && n < product.w.n && row < rows.count;
    if (real && writes) WriteTotal(out, rows.Output(row) + n, total);
  }
  if (totals.flags != kInRange && number < product.tile_end) {
    atomicOr(reinterpret_cast<uint32_t*>(out.flags), totals.flags);
  }
  if (product.cluster) SyncCluster();  // nobody leaves while others read
}

}  // namespace trivet::kernels
