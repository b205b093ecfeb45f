// SPDX-License-Identifier: Apache-2.0
// Products by matrix units in integers, for MXFP4: activations of a block of 32 columns are integers of 23 bits times a
// power of two, and E2M1 codes are integers up to 12, so that a block's sum is exact in any order and on every device.
// docs/numerics.md has the definition; the bits are those of a processor. An integer goes in as two F16 of twelve bits,
// and their sums, below 2^20, are exact in float32.
#pragma once

#include "kernels/gemm_matrix_read.cuh"
#include "kernels/mx_block.h"

namespace trivet::kernels {

/// What a code of the matrix units' weights lacks: a power of two, which the scales of activations make good.
inline constexpr float kCodeUnit = 0x1p15F;

/// kRows rows of kBlocks blocks of 32 columns in shared memory, as HeldParts has them: upper and lower limbs.
template <int kRows, int kBlocks>
struct HeldLimbs {
  uint4 x[kRows][kBlocks * 8 + 4];
  float scales[kBlocks][kRows];

  /// Puts columns 8 * eight .. 8 * eight + 7 of a row there. Four neighbouring threads have a block of one row.
  __device__ void Put(int row, int eight, const float (&from)[8]) {
    const uint32_t four = 0xFU << (threadIdx.x & 28);
    uint32_t most = 0;
#pragma unroll
    for (const float value : from) most = max(most, MxMagnitude(value));
    most = max(most, __shfl_xor_sync(four, most, 1));
    most = max(most, __shfl_xor_sync(four, most, 2));
    const float factor = MxToInteger(MxExponent(most));
    uint32_t limbs[2][4];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float a = MxWhole(from[p] * factor), b = MxWhole(from[p + 4] * factor);
      const float high_a = MxWhole(a * 0x1p-12F), high_b = MxWhole(b * 0x1p-12F);
      const __half2 high = __floats2half2_rn(high_a, high_b);
      const __half2 low = __floats2half2_rn(std::fma(high_a, -0x1p12F, a), std::fma(high_b, -0x1p12F, b));
      memcpy(&limbs[0][p], &high, 4);
      memcpy(&limbs[1][p], &low, 4);
    }
    uint4* to = &x[row][eight / 4 * 8 + eight % 4];
    to[0] = make_uint4(limbs[0][0], limbs[0][1], limbs[0][2], limbs[0][3]);
    to[4] = make_uint4(limbs[1][0], limbs[1][1], limbs[1][2], limbs[1][3]);
    if (eight % 4 != 0) return;
    scales[eight / 4][row] = MxFactor(most) * kCodeUnit;
  }
};

/// Codes of a block and their scales as a lane holds them. An F16 holds a code divided by kCodeUnit: its bits are the
/// sign, the lowest bits of the exponent and the highest one of the mantissa.
struct CodeWeights {
  MatrixWeights w;
  float scales[4];  // of rows 4g .. 4g + 3

  __device__ explicit CodeWeights(const MatrixFormat<WeightFormat::kMxfp4>::Stored& stored) {
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      const uint32_t codes = WordOf(stored.fours[0], row);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        // Codes p and p + 4, sixteen bits apart.
        const uint32_t sign = codes << (12 - 4 * p), rest = p < 3 ? codes << (9 - 4 * p) : codes >> 3;
        w[p][row] = (sign & 0x80008000U) | (rest & 0x0E000E00U);
      }
      scales[row] = MxWeightScale(static_cast<uint8_t>(stored.ones[0] >> (8 * row)));
    }
  }
};

/// A warp's sums of one leaf of a tile with kRows rows, numbered as those of PartSums; of one row, lanes 4g .. 4g + 3
/// have the same four.
template <int kRows>
struct LimbSums {
  using Weights = CodeWeights;
  static constexpr int kEights = kRows == 1 ? 1 : kRows / 8, kValues = kRows == 1 ? 4 : 8;

  float sums[kEights][kValues] = {};

  template <class Held>
  __device__ void Multiply(const Weights& weights, const Held& held, int block) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      if constexpr (kRows == 1) {
        // Upper and lower limbs in turn, so that a lane has the sums of both.
        MatrixSums both = {};
        MultiplyLimbs(both, weights.w, held.x[0][block * 8 + LaneColumn() + LaneRow() % 2 * 4]);
        const float scale = held.scales[block][0];
#pragma unroll
        for (int row = 0; row < 4; ++row) {
          Add(both[row / 2][row % 2 * 2], both[row / 2][row % 2 * 2 + 1], weights.scales[row] * scale, &sums[0][row]);
        }
      } else {
        const uint4* x = &held.x[e * 8 + LaneRow()][block * 8 + LaneColumn()];
        MatrixSums upper = {}, lower = {};
        MultiplyLimbs(upper, weights.w, x[0]);
        MultiplyLimbs(lower, weights.w, x[4]);
        const float* scales = &held.scales[block][e * 8 + 2 * LaneColumn()];
#pragma unroll
        for (int v = 0; v < 8; ++v) {
          Add(upper[v / 4][v % 4], lower[v / 4][v % 4], weights.scales[v / 2] * scales[v % 2], &sums[e][v]);
        }
      }
    }
  }
  __device__ float Value(int v) const {
    if constexpr (kRows > 1) return sums[v / 8][v % 8];
    const uint32_t t = LaneColumn();
    return t == 0 ? sums[0][0] : t == 1 ? sums[0][1] : t == 2 ? sums[0][2] : sums[0][3];
  }

 private:
  static __device__ void MultiplyLimbs(MatrixSums& acc, const MatrixWeights& w, const uint4& x) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        MultiplyMatrix<__half>(acc[i], w, half, i, WordOf(x, 2 * half), WordOf(x, 2 * half + 1));
      }
    }
  }
  // A block's sum is rounded once.
  static __device__ void Add(float upper, float lower, float scale, float* sum) {
    *sum = std::fma(std::fma(upper, 0x1p12F, lower), scale, *sum);
  }
};

}  // namespace trivet::kernels
