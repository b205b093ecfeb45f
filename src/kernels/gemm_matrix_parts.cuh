// SPDX-License-Identifier: Apache-2.0
// Products by matrix units with activations as the sum of three BF16, which keeps all of their 24 bits; weights are
// exact. What a leaf's sum is, for every number of rows:
//   blocks of 32 columns in ascending order, two instructions of 16 columns each (MatrixFormat says which) for every
//   part, the uppermost first, all into one float32 accumulator.
// An instruction's bits are the hardware's, and depend on nothing but the 16 weights, activations and the accumulator.
#pragma once

#include "kernels/gemm_matrix_read.cuh"

namespace trivet::kernels {

/// BF16 that make an activation.
inline constexpr int kParts = 3;

/// Pairs of activations, [part][pair]: (from[2 p], from[2 p + 1]).
__device__ inline void PartsOf(const float (&from)[8], uint32_t (&parts)[kParts][4]) {
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    float a = from[2 * p], b = from[2 * p + 1];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const __nv_bfloat162 rounded = __floats2bfloat162_rn(a, b);
      memcpy(&parts[part][p], &rounded, 4);
      a -= __low2float(rounded), b -= __high2float(rounded);
    }
  }
}

/// kRows rows of kBlocks blocks of 32 columns in shared memory: of a row, for each block four words of every part. Half
/// a line more puts the two rows that are read at once into different banks.
template <int kRows, int kBlocks>
struct HeldParts {
  static_assert(kBlocks % 2 == 0);
  uint4 x[kRows][kBlocks * kParts * 4 + 4];

  /// Puts columns 8 * eight .. 8 * eight + 7 of a row there.
  __device__ void Put(int row, int eight, const float (&from)[8]) {
    uint32_t parts[kParts][4];
    PartsOf(from, parts);
    uint4* to = &x[row][eight / 4 * (kParts * 4) + eight % 4];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      to[part * 4] = make_uint4(parts[part][0], parts[part][1], parts[part][2], parts[part][3]);
    }
  }
};

/// Weights of a block.
struct PartWeights {
  MatrixWeights w;

  __device__ explicit PartWeights(const StoredBlock<4, 0>& stored) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int row = 0; row < 4; ++row) w[i][row] = WordOf(stored.fours[i], row);
    }
  }
};

/// A warp's sums of one leaf of a tile with kRows rows. Values are numbered as MatrixSums are, eight rows after eight;
/// of one row a lane has a single one, of the tile's row `lane`.
template <int kRows>
struct PartSums {
  using Weights = PartWeights;
  static constexpr int kEights = kRows == 1 ? 1 : kRows / 8;

  static constexpr int kTogether = 1;
  struct Product {};

  MatrixSums sums[kEights] = {};

  /// Adds the products with block number `block` of what is held.
  template <class Held>
  __device__ Product Multiply(const Weights& weights, const Held& held, int block) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      // A single row stands in all eight places.
      const uint4* x = &held.x[kRows == 1 ? 0 : e * 8 + LaneRow()][block * (kParts * 4) + LaneColumn()];
      uint4 parts[kParts];
#pragma unroll
      for (int part = 0; part < kParts; ++part) parts[part] = x[part * 4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (const uint4& part : parts) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            MultiplyMatrix<__nv_bfloat16>(sums[e][i], weights.w, half, i, WordOf(part, 2 * half),
                                          WordOf(part, 2 * half + 1));
          }
        }
      }
    }
    return {};
  }
  __device__ void Add(const Product&) {}
  /// Sum number v, where there are more rows than one.
  __device__ float& Value(int v) {
    static_assert(kRows > 1);
    return sums[v / 8][v % 8 / 4][v % 4];
  }
  /// The lane's one.
  __device__ float OneValue() const {
    static_assert(kRows == 1);
    return OfLaneColumn(sums[0][0][0], sums[0][0][2], sums[0][1][0], sums[0][1][2]);
  }
};

}  // namespace trivet::kernels
