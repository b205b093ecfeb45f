// SPDX-License-Identifier: Apache-2.0
// How warps of gemm_matrix_group.cuh multiply BF16 weights: by the units alone, up to the end of a leaf.
#pragma once

#include "kernels/gemm_matrix_group.cuh"

namespace trivet::kernels {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Weights of two blocks of 32 columns as a lane holds them for the units: [block][half of its columns][first or second
/// 16 outputs]. These are rows 2g and 2g + 1, and 16 more, so that what is loaded already stands in the order of an
/// instruction's registers: pairs 4t + 2 half and the next.
struct GroupWeights {
  uint32_t w[2][2][2][4];

  /// Loads the two blocks that begin at `column` of a tile of `end` columns; columns from `end` on are zeros.
  __device__ void Load(const std::byte* tile, int column, int end) {
    const std::byte* from = tile + (static_cast<uint32_t>(column) * 64 + LaneColumn() * 512 + LaneRow() * 8);
    const bool whole = column + kGroupColumns <= end;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t* to = w[block][pair / 2][i] + pair % 2 * 2;
          const bool inside =
              whole || column + block * kMatrixColumns + static_cast<int>(LaneColumn()) * 8 + pair * 2 < end;
          const std::byte* at = from + block * (kMatrixColumns * 64) + pair * 128 + i * 64;
          if (inside) {
            asm volatile("ld.global.nc.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(at));
          } else {
            to[0] = to[1] = 0;
          }
        }
      }
    }
  }
};

template <int kEights>
struct GroupConsumer<WeightFormat::kBF16, kEights> : GroupPart<WeightFormat::kBF16, kEights> {
  using Part = GroupPart<WeightFormat::kBF16, kEights>;
  using Part::end, Part::leaf, Part::left, Part::shared, Part::stage, Part::tile;

  float sums[2][Part::kSums] = {};

  __device__ GroupConsumer(const PanelProduct& p, typename Part::Shared& s) : Part(p, s) {
    tile += TileBytes<WeightFormat::kBF16>(p.w.phase);
  }

  // The row of the tile of value v.
  __device__ static int OutputOf(int v) { return static_cast<int>(LaneRow()) * 2 + v / Part::kSums * 16 + v % 4 / 2; }

  // Lets the units multiply a block of the stage.
  __device__ void Multiply(const uint32_t (&w)[2][2][4], int block) {
    BeginGroup();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint64_t x = OperandPlace<kEights>(shared.x[stage.number][block][half][part]);
#pragma unroll
        for (int i = 0; i < 2; ++i) MultiplyParts(sums[i], w[half][i], x);
      }
    }
    EndGroup();
  }
  __device__ void Await() {
    AwaitGroup();
    HaveSums(sums[0]);
    HaveSums(sums[1]);
  }
  // Multiplies the columns from `column` on, while the next weights are under way.
  __device__ void Step(int column, const GroupWeights& weights, GroupWeights* coming) {
    Part::AwaitStage();
    const bool two = column + kMatrixColumns < end, last = column + kGroupColumns >= end;
    Multiply(weights.w[0], 0);
    if (two && left == 1) {
      Await();
      Part::EndLeaf(sums);
      ++left;
    }
    if (two) Multiply(weights.w[1], 1);
    left -= two ? 2 : 1;
    if (!last) coming->Load(tile, column + kGroupColumns, end);
    Await();
    Part::LeaveStage();
    if (left == 0 || last) Part::EndLeaf(sums);
  }
  __device__ void Run() {
    GroupWeights weights[2];
    weights[0].Load(tile, 0, end);
#pragma unroll 1
    for (int column = 0; column < end; column += 2 * kGroupColumns) {
      Step(column, weights[0], &weights[1]);
      if (column + kGroupColumns < end) Step(column + kGroupColumns, weights[1], &weights[0]);
    }
  }
  __device__ void Write(const TileOutput& out) const {
    WritePanel<GroupConsumer>(Part::product, shared, Part::number, Part::flags, out);
  }
};

#endif

}  // namespace trivet::kernels
