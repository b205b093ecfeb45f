// SPDX-License-Identifier: Apache-2.0
// Products by matrix units with activations of a block of 32 columns as integers of 23 bits times a power of two, each
// of which goes in as two F16 of twelve bits. docs/numerics.md has the definition. For MXFP4, whose codes are integers
// up to 12, sums of a block are below 2^20 and exact in float32 in any order, so that the bits are those of a
// processor. For FP8 they are the instructions' own, two of 16 columns in ascending order for either limb.
#pragma once

#include <cuda_fp8.h>

#include "kernels/gemm_matrix_read.cuh"
#include "kernels/mx_block.h"

namespace trivet::kernels {

/// What a code of the matrix units' weights lacks: a power of two, which the scales of activations make good. Theirs,
/// as MxFactor gives them, are for codes counted twice.
template <WeightFormat kFormat>
inline constexpr float kCodeUnit = kFormat == WeightFormat::kMxfp4Halves ? 0x1p15F : 2.0F;

/// MxWhole(x * power), where the product is exact.
__device__ inline float MxWholeOf(float x, float power) { return std::fma(x, power, +kMxMagic) - kMxMagic; }

/// Pairs of upper and of lower limbs of eight activations of a block, [limb][pair]: (from[p], from[p + 4]). The block's
/// other activations are with the three neighbours of the thread. Returns the largest magnitude.
__device__ inline uint32_t LimbsOf(const float (&from)[8], uint32_t (&limbs)[2][4]) {
  const uint32_t four = 0xFU << (threadIdx.x & 28);
  uint32_t most = 0;
#pragma unroll
  for (const float value : from) most = max(most, MxMagnitude(value));
  most = max(most, __shfl_xor_sync(four, most, 1));
  most = max(most, __shfl_xor_sync(four, most, 2));
  const float factor = MxToInteger(MxExponent(most));
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const float a = MxWholeOf(from[p], factor), b = MxWholeOf(from[p + 4], factor);
    const float high_a = MxWholeOf(a, 0x1p-12F), high_b = MxWholeOf(b, 0x1p-12F);
    const __half2 high = __floats2half2_rn(high_a, high_b);
    const __half2 low = __floats2half2_rn(std::fma(high_a, -0x1p12F, a), std::fma(high_b, -0x1p12F, b));
    memcpy(&limbs[0][p], &high, 4);
    memcpy(&limbs[1][p], &low, 4);
  }
  return most;
}

/// The scale of a block's limbs, from its largest magnitude.
template <WeightFormat kFormat>
__device__ inline float LimbScale(uint32_t most) {
  return MxFactor(most) * kCodeUnit<kFormat>;
}

/// kRows rows of kBlocks blocks of 32 columns in shared memory, as HeldParts has them: upper and lower limbs.
template <WeightFormat kFormat, int kRows, int kBlocks>
struct HeldLimbs {
  // A lane's columns are four apart: the words of one place come from all four threads that have a block. One more
  // place for every block puts words that eight blocks' threads write at once into different banks.
  static constexpr bool kSpread = kFormat == WeightFormat::kFp8;
  static constexpr int kPlaces = kSpread ? 9 : 8;
  static constexpr int kPad = (4 + 7 * kBlocks * kPlaces) % 8;  // rows begin half a line apart

  uint4 x[kRows][kBlocks * kPlaces + kPad];
  float scales[kBlocks][kRows];

  /// Puts columns 8 * eight .. 8 * eight + 7 of a row there. Four neighbouring threads have a block of one row.
  __device__ void Put(int row, int eight, const float (&from)[8]) {
    uint32_t limbs[2][4];
    const uint32_t most = LimbsOf(from, limbs);
    uint4* to = &x[row][eight / 4 * kPlaces];
#pragma unroll
    for (int limb = 0; limb < 2; ++limb) {
      if constexpr (kSpread) {
#pragma unroll
        for (int p = 0; p < 4; ++p) reinterpret_cast<uint32_t*>(to + limb * 4 + p)[eight % 4] = limbs[limb][p];
      } else {
        to[limb * 4 + eight % 4] = make_uint4(limbs[limb][0], limbs[limb][1], limbs[limb][2], limbs[limb][3]);
      }
    }
    if (eight % 4 != 0) return;
    scales[eight / 4][row] = LimbScale<kFormat>(most);
  }
};

/// Codes of a block and their scales as a lane holds them: of rows 4g .. 4g + 3 or, where kOwn says so, of row `lane`.
template <WeightFormat kFormat, bool kOwn>
struct LimbWeights;

/// An F16 holds a code divided by kCodeUnit: its bits are the sign, the lowest bits of the exponent and the highest one
/// of the mantissa.
template <bool kOwn>
struct LimbWeights<WeightFormat::kMxfp4Halves, kOwn> {
  static constexpr int kScales = kOwn ? 1 : 4;
  MatrixWeights w;
  float scales[kScales];

  __device__ explicit LimbWeights(const typename MatrixFormat<WeightFormat::kMxfp4Halves, kOwn>::Stored& stored) {
#pragma unroll
    for (int row = 0; row < 4; ++row) {
#pragma unroll
      for (int p = 0; p < 4; ++p) w[p][row] = MxPair(WordOf(stored.fours[0], row), p);
    }
#pragma unroll
    for (int i = 0; i < kScales; ++i) scales[i] = MxWeightScale(static_cast<uint8_t>(stored.ones[0] >> (8 * i)));
  }
};

/// A word of what is stored has four rows of one column.
template <bool kOwn>
struct LimbWeights<WeightFormat::kFp8, kOwn> {
  static constexpr int kScales = kOwn ? 1 : 4;
  MatrixWeights w;
  float scales[kScales];

  __device__ explicit LimbWeights(const typename MatrixFormat<WeightFormat::kFp8, kOwn>::Stored& stored) {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
#pragma unroll
      for (int rows = 0; rows < 2; ++rows) {
        // Columns 8p + t and 8p + 4 + t of two rows.
        const uint32_t codes = Permute(stored.ones[2 * p], stored.ones[2 * p + 1], rows == 0 ? 0x5140U : 0x7362U);
        w[p][2 * rows] = Halves(static_cast<uint16_t>(codes));
        w[p][2 * rows + 1] = Halves(static_cast<uint16_t>(codes >> 16));
      }
    }
    if constexpr (kOwn) {
      scales[0] = __uint_as_float(stored.ones[MatrixFormat<WeightFormat::kFp8, kOwn>::kCodes]);
    } else {
#pragma unroll
      for (int row = 0; row < kScales; ++row) scales[row] = __uint_as_float(WordOf(stored.fours[0], row));
    }
  }

 private:
  static __device__ uint32_t Halves(uint16_t codes) {
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
    return static_cast<uint32_t>(halves.x) | static_cast<uint32_t>(halves.y) << 16;
  }
};

/// A warp's sums of one leaf of a tile with kRows rows, numbered as those of PartSums where these are eight or more. Up
/// to four rows go with upper and lower limbs in turn, so that a lane has the sums of both for row t: of four rows
/// number v is that of the tile's row 4g + v. Of a single one all lanes 4g .. 4g + 3 have the same, of which each keeps
/// that of the tile's row `lane`.
template <WeightFormat kFormat, int kRows>
struct LimbSums {
  static constexpr bool kOwn = kRows == 1, kInTurn = kRows <= 4;
  using Weights = LimbWeights<kFormat, kOwn>;
  static constexpr int kEights = kInTurn ? 1 : kRows / 8, kValues = kOwn ? 1 : kInTurn ? 4 : 8;

  // Instructions of one block wait for each other: those of several are under way together, as far as registers go.
  static constexpr int kPlaces = MatrixFormat<kFormat, kOwn>::kPlaces;
  static constexpr int kTogether = kOwn ? kPlaces / 2 : kRows <= 4 ? 2 : kRows == 8 ? kPlaces / 4 : 1;

  float sums[kEights][kValues] = {};

  /// What a block adds to each sum.
  struct Product {
    float block[kEights][kValues], scale[kEights][kValues];
  };

  template <class Held>
  __device__ Product Multiply(const Weights& weights, const Held& held, int block) {
    Product product;
    if constexpr (kInTurn) {
      const uint4* x = &held.x[kOwn ? 0 : LaneRow() / 2][block * Held::kPlaces + LaneColumn()];
      MatrixSums both = {};
      MultiplyLimbs(both, weights.w, x[LaneRow() % 2 * 4]);
      const float scale = held.scales[block][kOwn ? 0 : LaneColumn()];
      float of_row[4];
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        of_row[row] = Joined(both[row / 2][row % 2 * 2], both[row / 2][row % 2 * 2 + 1]);
      }
      if constexpr (kOwn) of_row[0] = OfLaneColumn(of_row[0], of_row[1], of_row[2], of_row[3]);
#pragma unroll
      for (int v = 0; v < kValues; ++v)
        product.block[0][v] = of_row[v], product.scale[0][v] = weights.scales[v] * scale;
    } else {
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        const uint4* x = &held.x[e * 8 + LaneRow()][block * Held::kPlaces + LaneColumn()];
        MatrixSums upper = {}, lower = {};
        MultiplyLimbs(upper, weights.w, x[0]);
        MultiplyLimbs(lower, weights.w, x[4]);
        const float* scales = &held.scales[block][e * 8 + 2 * LaneColumn()];
#pragma unroll
        for (int v = 0; v < kValues; ++v) {
          product.block[e][v] = Joined(upper[v / 4][v % 4], lower[v / 4][v % 4]);
          product.scale[e][v] = weights.scales[v / 2] * scales[v % 2];
        }
      }
    }
    return product;
  }
  __device__ void Add(const Product& product) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
#pragma unroll
      for (int v = 0; v < kValues; ++v) sums[e][v] = std::fma(product.block[e][v], product.scale[e][v], sums[e][v]);
    }
  }
  /// Sum number v, where there are more rows than one.
  __device__ float& Value(int v) {
    static_assert(kRows > 1);
    return sums[v / kValues][v % kValues];
  }
  /// The lane's one.
  __device__ float OneValue() const {
    static_assert(kOwn);
    return sums[0][0];
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
  // A block's sum, which is rounded once.
  static __device__ float Joined(float upper, float lower) { return std::fma(upper, 0x1p12F, lower); }
};

}  // namespace trivet::kernels
