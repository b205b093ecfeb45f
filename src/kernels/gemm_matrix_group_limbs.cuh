// SPDX-License-Identifier: Apache-2.0
// How warps of gemm_matrix_group.cuh multiply MXFP4 and FP8 weights: the units add limbs of one block, which the warps
// scale and add to the leaf.
#pragma once

#include "kernels/gemm_matrix_group.cuh"

namespace trivet::kernels {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Codes of sixteen outputs, in the order of an instruction's registers: [half of the block's columns].
struct GroupCodes {
  uint32_t w[2][4];

  __device__ GroupCodes(const MatrixWeights& weights, int sixteen) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) w[half][i] = weights[2 * half + i / 2][2 * sixteen + i % 2];
    }
  }
};

template <WeightFormat kFormat, int kEights>
struct GroupConsumer : GroupPart<kFormat, kEights> {
  using Part = GroupPart<kFormat, kEights>;
  using Format = MatrixFormat<kFormat, false>;
  using Weights = LimbWeights<kFormat, false>;
  using Part::end, Part::left, Part::shared, Part::stage;
  static constexpr int kSums = Part::kSums;

  Format next;
  typename Format::Stored coming;
  float sums[2][kSums] = {};

  __device__ GroupConsumer(const PanelProduct& p, typename Part::Shared& s)
      : Part(p, s), next(Part::tile, static_cast<int>(p.w.phase)) {
    Load(end);
  }

  // The row of the tile of value v.
  __device__ static int OutputOf(int v) { return static_cast<int>(LaneRow()) * 4 + v / kSums * 2 + v % 4 / 2; }

  // Asks for the next block, from which on there are `columns`.
  __device__ void Load(int columns) {
    if (columns > 0) next.Load(coming, columns);
    next.Next();
  }

  // Adds the products of sixteen outputs with a block of the stage.
  //   scales  of the rows, from this lane's first on
  __device__ void Multiply(const Weights& weights, int sixteen, int block, const float* scales) {
    const GroupCodes codes(weights.w, sixteen);
    const auto& x = shared.x[stage.number][block];
    float upper[kSums], lower[kSums];
    BeginGroup();
    MultiplyLimbs<true>(upper, codes.w[0], OperandPlace<kEights>(x[0][0]));
    MultiplyLimbs<true>(lower, codes.w[0], OperandPlace<kEights>(x[0][1]));
    MultiplyLimbs<false>(upper, codes.w[1], OperandPlace<kEights>(x[1][0]));
    MultiplyLimbs<false>(lower, codes.w[1], OperandPlace<kEights>(x[1][1]));
    EndGroup();
    AwaitGroup();
    HaveSums(upper);
    HaveSums(lower);
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      const float2 of_rows = *reinterpret_cast<const float2*>(scales + e * 8);
#pragma unroll
      for (int v = 4 * e; v < 4 * e + 4; ++v) {
        const float scale = weights.scales[2 * sixteen + v % 4 / 2] * (v % 2 == 0 ? of_rows.x : of_rows.y);
        sums[sixteen][v] = std::fma(std::fma(upper[v], 0x1p12F, lower[v]), scale, sums[sixteen][v]);
      }
    }
  }

  // Multiplies a block of the stage, from which on there are `columns`, while the next weights are under way.
  __device__ void Step(int block, int columns) {
    const Weights weights(coming);
    Load(columns - kMatrixColumns);
    const float* scales = &shared.limb_scales[stage.number][block][2 * LaneColumn()];
    Multiply(weights, 0, block, scales);
    Multiply(weights, 1, block, scales);
    if (--left == 0 || columns <= kMatrixColumns) Part::EndLeaf(sums);
  }

  __device__ void Run() {
#pragma unroll 1
    for (int column = 0; column < end; column += kMatrixColumns) {
      const int block = column / kMatrixColumns % 2;
      if (block == 0) Part::AwaitStage();
      Step(block, end - column);
      if (block == 1 || column + kMatrixColumns >= end) Part::LeaveStage();
    }
  }
  __device__ void Write(const TileOutput& out) const {
    WritePanel<GroupConsumer>(Part::product, shared, Part::number, Part::flags, out);
  }
};

#endif

}  // namespace trivet::kernels
