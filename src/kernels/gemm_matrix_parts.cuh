// SPDX-License-Identifier: Apache-2.0
// Products by matrix units with activations as the sum of two BF16, which keeps 16 bits of them; weights are exact.
// What a leaf's sum is, for every number of rows:
//   blocks of 32 columns in ascending order, two instructions of 16 columns each (MatrixFormat says which), the upper
//   parts of the activations before the lower ones, all into one float32 accumulator; where scales meet sums, every
//   block has an accumulator of its own, which joins the leaf's by a fused multiply-add with the scale.
// An instruction's bits are the hardware's, and depend on nothing but the 16 weights, activations and the accumulator.
#pragma once

#include "kernels/gemm_matrix_read.cuh"

namespace trivet::kernels {

/// kRows rows of kBlocks blocks of 32 columns in shared memory: of a row, for each block the four upper parts and the
/// four lower ones. Half a line more puts the two rows that are read at once into different banks.
template <int kRows, int kBlocks>
struct HeldParts {
  uint4 x[kRows][kBlocks * 8 + 4];

  /// Puts columns 8 * eight .. 8 * eight + 7 of a row there. Four neighbouring threads have a block of one row.
  __device__ void Put(int row, int eight, const float (&from)[8]) {
    uint32_t parts[2][4];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float a = from[2 * p], b = from[2 * p + 1];
      const __nv_bfloat162 high = __floats2bfloat162_rn(a, b);
      const __nv_bfloat162 low = __floats2bfloat162_rn(a - __low2float(high), b - __high2float(high));
      memcpy(&parts[0][p], &high, 4);
      memcpy(&parts[1][p], &low, 4);
    }
    uint4* to = &x[row][eight / 4 * 8 + eight % 4];
    to[0] = make_uint4(parts[0][0], parts[0][1], parts[0][2], parts[0][3]);
    to[4] = make_uint4(parts[1][0], parts[1][1], parts[1][2], parts[1][3]);
  }
};

/// Weights of a block, and the scales that meet its sums.
template <WeightFormat kFormat>
struct PartWeights {
  MatrixWeights w;
  float scales[4];  // of rows 4g .. 4g + 3

  __device__ explicit PartWeights(const typename MatrixFormat<kFormat>::Stored& stored) {
    MatrixFormat<kFormat>::Decode(stored, w);
#pragma unroll
    for (int row = 0; row < 4; ++row) scales[row] = MatrixFormat<kFormat>::Scale(stored, row);
  }
};

/// A warp's sums of one leaf of a tile with kRows rows. Values are numbered as MatrixSums are, eight rows after eight;
/// of one row a lane has a single one, of the tile's row `lane`.
template <WeightFormat kFormat, int kRows>
struct PartSums {
  using Weights = PartWeights<kFormat>;
  static constexpr int kEights = kRows == 1 ? 1 : kRows / 8;

  MatrixSums sums[kEights] = {};

  /// Adds the products with block number `block` of what is held.
  template <class Held>
  __device__ void Multiply(const Weights& weights, const Held& held, int block) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      // A single row stands in all eight places.
      const uint4* x = &held.x[kRows == 1 ? 0 : e * 8 + LaneRow()][block * 8 + LaneColumn()];
      MultiplyEight(sums[e], weights, x[0], x[4]);
    }
  }
  __device__ float Value(int v) const {
    if constexpr (kRows > 1) return sums[v / 8][v % 8 / 4][v % 4];
    const uint32_t t = LaneColumn();
    return t == 0 ? sums[0][0][0] : t == 1 ? sums[0][0][2] : t == 2 ? sums[0][1][0] : sums[0][1][2];
  }

 private:
  static __device__ void MultiplyEight(MatrixSums& leaf, const Weights& weights, const uint4& upper,
                                       const uint4& lower) {
    constexpr bool kScaled = MatrixFormat<kFormat>::kScaled;
    MatrixSums block = {};
    MatrixSums& acc = kScaled ? block : leaf;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        MultiplyMatrix<__nv_bfloat16>(acc[i], weights.w, half, i, WordOf(upper, 2 * half), WordOf(upper, 2 * half + 1));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        MultiplyMatrix<__nv_bfloat16>(acc[i], weights.w, half, i, WordOf(lower, 2 * half), WordOf(lower, 2 * half + 1));
      }
    }
    if constexpr (kScaled) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int q = 0; q < 4; ++q) leaf[i][q] = std::fma(weights.scales[2 * i + q / 2], block[i][q], leaf[i][q]);
      }
    }
  }
};

}  // namespace trivet::kernels
