// SPDX-License-Identifier: Apache-2.0
// Products by matrix units. Activations go in as the sum of two BF16, which keeps 16 bits of them; weights are exact.
// What a leaf's sum is, for every number of rows:
//   blocks of 32 columns in ascending order, two instructions of 16 columns each (MatrixFormat says which), the upper
//   parts of the activations before the lower ones, all into one float32 accumulator; where scales meet sums, every
//   block has an accumulator of its own, which joins the leaf's by a fused multiply-add with the scale.
// An instruction's bits are the hardware's, and depend on nothing but the 16 weights, activations and the accumulator.
// Leaves join as in every other product.
#pragma once

#include "kernels/gemm_matrix_read.cuh"
#include "kernels/gemm_tile.cuh"

namespace trivet::kernels {

/// acc += a 16 x 16 weights times 16 x 8 activations.
__device__ inline void MultiplyMatrix(float (&acc)[4], const MatrixWeights& w, int half, int sixteen, uint32_t x0,
                                      uint32_t x1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(w[2 * half][2 * sixteen]), "r"(w[2 * half][2 * sixteen + 1]), "r"(w[2 * half + 1][2 * sixteen]),
        "r"(w[2 * half + 1][2 * sixteen + 1]), "r"(x0), "r"(x1));
}

/// Sums of 32 outputs and eight rows: [first or second 16 outputs][4]. Of a lane 4g + t, sums[i][q] belongs to the
/// tile's row 4g + 2i + q / 2 and to row 2t + q % 2 of the eight.
using MatrixSums = float[2][4];

/// Adds a block's products.
///   upper, lower  the parts of the activations of row g at the places of lane t
template <WeightFormat kFormat>
__device__ inline void MultiplyBlock(MatrixSums& sums, const MatrixWeights& w,
                                     const typename MatrixFormat<kFormat>::Stored& stored, const uint4& upper,
                                     const uint4& lower) {
  using Format = MatrixFormat<kFormat>;
  constexpr bool kScaled = Format::kScaled;
  MatrixSums block = {};
  MatrixSums& acc = kScaled ? block : sums;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      MultiplyMatrix(acc[i], w, half, i, WordOf(upper, 2 * half), WordOf(upper, 2 * half + 1));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      MultiplyMatrix(acc[i], w, half, i, WordOf(lower, 2 * half), WordOf(lower, 2 * half + 1));
    }
  }
  if constexpr (kScaled) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int q = 0; q < 4; ++q) sums[i][q] = std::fma(Format::Scale(stored, 2 * i + q / 2), block[i][q], sums[i][q]);
    }
  }
}

/// Eight activations as two parts each, in the order of kFormat's columns.
template <WeightFormat kFormat>
__device__ inline void SplitActivations(const float (&x)[8], uint4* upper, uint4* lower) {
  uint32_t parts[2][4];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const float a = x[MatrixFormat<kFormat>::ColumnOf(2 * p)], b = x[MatrixFormat<kFormat>::ColumnOf(2 * p + 1)];
    const __nv_bfloat162 high = __floats2bfloat162_rn(a, b);
    const __nv_bfloat162 low = __floats2bfloat162_rn(a - __low2float(high), b - __high2float(high));
    memcpy(&parts[0][p], &high, 4);
    memcpy(&parts[1][p], &low, 4);
  }
  *upper = make_uint4(parts[0][0], parts[0][1], parts[0][2], parts[0][3]);
  *lower = make_uint4(parts[1][0], parts[1][1], parts[1][2], parts[1][3]);
}

/// Reads eight columns of a row from `column` on, a multiple of eight; those from `end` on are zeros.
__device__ inline void ReadActivations(const float* row, int column, int end, float (&x)[8]) {
  if (reinterpret_cast<uintptr_t>(row) % 16 == 0 && column + 8 <= end) {
    const float4 a = *reinterpret_cast<const float4*>(row + column);
    const float4 b = *(reinterpret_cast<const float4*>(row + column) + 1);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = column + i < end ? row[column + i] : 0.0F;
  }
}

/// Warps of a block that multiplies a few rows; each has one tile.
inline constexpr int kMatrixWarps = 4;

/// Shared memory of such a block: the activations' parts, and at the end the totals of its warps.
template <int kRows>
struct MatrixShared {
  static constexpr int kColumns = kRows == 1 ? 4096 : 8192 / kRows;  // of x, held at once
  static constexpr int kBlocks = kColumns / kMatrixColumns;
  static constexpr int kValues = kRows == 1 ? 1 : kRows;  // outputs of a lane
  // Of a row, for each block the four upper parts and the four lower ones; half a line more puts the two rows that are
  // read at once into different banks.
  static constexpr int kStride = kBlocks * 8 + 4;

  union {
    uint4 x[kRows][kStride];
    int64_t totals[kMatrixWarps][kValues][kWarp];
  };
};

/// Puts columns [column, end) of the rows into shared memory, and zeros up to the next block's begin.
template <WeightFormat kFormat, int kRows>
__device__ void HoldParts(const TileRows& rows, int column, int end, MatrixShared<kRows>& shared) {
  const int thread = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  const int eights = (end - column + kMatrixColumns - 1) / kMatrixColumns * 4;
  // Loads of several rows are under way together.
  constexpr int kTogether = kRows == 1 ? 1 : 4;
#pragma unroll 1
  for (int eight = thread; eight < eights; eight += kMatrixWarps * kWarp) {
#pragma unroll 1
    for (int row = 0; row < kRows; row += kTogether) {
      float x[kTogether][8];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) ReadActivations(rows.X(row + i), column + eight * 8, end, x[i]);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        uint4* to = &shared.x[row + i][eight / 4 * 8 + eight % 4];
        SplitActivations<kFormat>(x[i], to, to + 4);
      }
    }
  }
}

/// A warp's sums of one tile and kRows rows, and their totals.
template <WeightFormat kFormat, int kRows>
struct MatrixLeaves {
  using Shared = MatrixShared<kRows>;
  static constexpr int kEights = kRows == 1 ? 1 : kRows / 8;

  MatrixSums sums[kEights] = {};
  int64_t totals[Shared::kValues] = {};
  uint32_t flags = kInRange;
  float scales[kRows == 1 ? 1 : kEights * 2];  // of rows RowOf(v), at v / 8 * 2 + v % 2

  explicit __device__ MatrixLeaves(const TileRows& rows) {
#pragma unroll
    for (int i = 0; i < (kRows == 1 ? 1 : kEights * 2); ++i) scales[i] = rows.Scale(RowOf(i / 2 * 8 + i % 2));
  }

  /// The row of the tile and the row of x that value v of this lane belongs to.
  static __device__ int OutputOf(int v) {
    const int lane = static_cast<int>(threadIdx.x);
    return kRows == 1 ? lane : lane / 4 * 4 + v % 8 / 2;
  }
  static __device__ int RowOf(int v) {
    return kRows == 1 ? 0 : v / 8 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + v % 2;
  }

  /// Adds the products of the block that stands in shared memory as number `block`.
  __device__ void Multiply(const typename MatrixFormat<kFormat>::Stored& stored, const MatrixWeights& w,
                           const Shared& shared, int block) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      // A single row stands in all eight places.
      const uint4* x = &shared.x[kRows == 1 ? 0 : e * 8 + LaneRow()][block * 8 + LaneColumn()];
      MultiplyBlock<kFormat>(sums[e], w, stored, x[0], x[4]);
    }
  }

  __device__ void EndLeaf(bool exact) {
    if constexpr (kRows == 1) {
      const int t = static_cast<int>(threadIdx.x) % 4;
      const float sum = t == 0 ? sums[0][0][0] : t == 1 ? sums[0][0][2] : t == 2 ? sums[0][1][0] : sums[0][1][2];
      AddLeaf(exact, scales[0], sum, &totals[0], &flags);
    } else {
#pragma unroll
      for (int v = 0; v < Shared::kValues; ++v) {
        AddLeaf(exact, scales[v / 8 * 2 + v % 2], sums[v / 8][v % 8 / 4][v % 4], &totals[v], &flags);
      }
    }
#pragma unroll
    for (MatrixSums& eight : sums) {
#pragma unroll
      for (int i = 0; i < 8; ++i) eight[i / 4][i % 4] = 0;
    }
  }
};

/// Multiplies; every thread of a block of (32, kMatrixWarps) calls it. Leaves are whole blocks of 32 columns.
template <WeightFormat kFormat, int kRows>
__device__ void MultiplyTilesByMatrix(const TileProduct& product, const TileRows& rows, const TileOutput& out) {
  using Leaves = MatrixLeaves<kFormat, kRows>;
  using Shared = MatrixShared<kRows>;
  __shared__ __align__(16) Shared shared;
  const int width = static_cast<int>(product.w.leaf);
  const int leaf = width / kMatrixColumns, begin = product.leaf_begin * width;
  const int end = min(product.leaf_end * width, static_cast<int>(product.w.k));
  const int64_t number = product.tile + threadIdx.y;
  const std::byte* tile =
      product.w.data + (number < product.tile_end ? number : product.tile_end - 1) * product.tile_bytes;
  const int phase = static_cast<int>(product.w.phase);
  BlockRing<kFormat> ring(tile, phase + begin, phase + end);
  const int64_t warps = static_cast<int64_t>(gridDim.x) * gridDim.y * gridDim.z * kMatrixWarps;
  const int64_t first = TileBytes<kFormat>(phase + begin), bytes = TileBytes<kFormat>(phase + end) - first;
  Fetch(tile + first, std::min(bytes, kFetchedBytes / warps), threadIdx.x, kWarp);
  AwaitPrevious();
  Leaves leaves(rows);
  int left = leaf;  // blocks of the leaf that are still to come
  constexpr int kPlaces = BlockRing<kFormat>::kPlaces;
  static_assert(Shared::kBlocks % kPlaces == 0);
#pragma unroll 1
  for (int column = begin; column < end; column += Shared::kColumns) {
    const int stop = min(column + Shared::kColumns, end);
    if (column > begin) __syncthreads();
    HoldParts<kFormat, kRows>(rows, column, stop, shared);
    __syncthreads();
    const int blocks = CeilDiv(stop - column, kMatrixColumns);
#pragma unroll 1
    for (int first = 0; first < blocks; first += kPlaces) {
#pragma unroll
      for (int i = 0; i < kPlaces && first + i < blocks; ++i) {
        const typename BlockRing<kFormat>::Stored stored = ring.blocks[i];
        MatrixWeights w;
        MatrixFormat<kFormat>::template Decode<kRows == 1>(stored, w);
        ring.Load(i);
        leaves.Multiply(stored, w, shared, first + i);
        if (--left == 0) {
          leaves.EndLeaf(product.exact);
          left = leaf;
        }
      }
    }
  }
  if (left != leaf) leaves.EndLeaf(product.exact);
  if (product.cluster) {
    __syncthreads();
#pragma unroll
    for (int v = 0; v < Shared::kValues; ++v) shared.totals[threadIdx.y][v][threadIdx.x] = leaves.totals[v];
    SyncCluster();
  }
#pragma unroll
  for (int v = 0; v < Shared::kValues; ++v) {
    bool writes = true;
    const int64_t total = product.cluster ? ClusterTotal(shared, v, &writes) : leaves.totals[v];
    const int64_t n = number * kTileRows + Leaves::OutputOf(v);
    const int row = Leaves::RowOf(v);
    // Rows of a tile beyond the matrix hold zeros or the rest of a block: they raise nothing.
    const bool real = number < product.tile_end && n < product.w.n && row < rows.count;
    if (real && writes) WriteTotal(out, product.exact, rows.Output(row) + n, rows.Scale(row), total);
  }
  if (leaves.flags != kInRange && product.exact && number < product.tile_end) {
    atomicOr(reinterpret_cast<uint32_t*>(out.flags), leaves.flags);
  }
  if (product.cluster) SyncCluster();  // nobody leaves while others read
}

}  // namespace trivet::kernels
