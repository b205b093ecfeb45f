// SPDX-License-Identifier: Apache-2.0
// Products with a matrix chosen row by row: a mixture of experts.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "kernels/gemm.h"

namespace trivet::kernels {

/// Sorts pairs of a token and an expert by the expert's slot, ascending, pairs of one slot in ascending order. Pairs
/// without a slot stand last.
///   slots    [P] slot of each pair, or -1
///   order    [P] the pair at each position
///   slot_at  [P] the slot at each position, -1 behind the last pair with one
///   offsets  [S + 1] first position of each slot; the last entry counts the pairs with a slot
struct GroupPairs {
  struct Args {
    const int32_t* slots = nullptr;
    int64_t pairs = 0;        // P
    int64_t slots_total = 0;  // S
    int32_t* order = nullptr;
    int32_t* slot_at = nullptr;
    int32_t* offsets = nullptr;
  };
  static constexpr std::string_view kName = "group_pairs";
  static std::span<const KernelRow<GroupPairs>> Rows();
  static std::span<const KernelRow<GroupPairs>> CudaRows();
};

/// For every position i < offsets[S], with pair p = order[i], token t = p / top_k and matrix w[slot_at[i]]:
///   into y     y[i] = w x[t]: the inputs of experts are tokens
///   into sums  sums[t] += weights[p] * (w x[i]), the weight meeting each leaf as in Gemm: their outputs are pairs
/// Leaves, order and rounding are Gemm's; fast sums add the pairs of a token in ascending order of positions.
///   x        [T, K], or [P, K] into sums; float32, row stride x_stride
///   y        [P, N], row stride y_stride; or null, and one of the sums [T, N] is given
///   w        [S] matrices that the caller can read; n == 0: the slot has none and adds nothing
///   w_device the same array where the kernels can read it
///   range    the 32-row tiles of every matrix that this call computes
struct ExpertGemm {
  struct Args {
    const float* x = nullptr;
    int64_t x_stride = 0;
    int64_t pairs = 0;  // P
    int64_t top_k = 1;
    const int32_t* order = nullptr;
    const int32_t* slot_at = nullptr;
    const int32_t* offsets = nullptr;
    std::span<const PackedMatrix> w;
    const PackedMatrix* w_device = nullptr;
    float* y = nullptr;
    int64_t* sums_fixed = nullptr;
    float* sums_fast = nullptr;
    int64_t y_stride = 0;
    const float* weights = nullptr;  // [P], with sums
    Numerics numerics = Numerics::kExact;
    int64_t tile_begin = 0, tile_end = 0;
    std::atomic<uint32_t>* flags = nullptr;
    const KernelRow<Gemm>* gemm = nullptr;  // for the pairs of one slot, where a row is made of products
  };
  static constexpr std::string_view kName = "expert_gemm";
  static std::span<const KernelRow<ExpertGemm>> Rows();
  static std::span<const KernelRow<ExpertGemm>> CudaRows();
};

}  // namespace trivet::kernels
