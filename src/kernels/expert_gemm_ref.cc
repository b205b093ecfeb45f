// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "kernels/expert_gemm.h"
#include "kernels/reference.h"

namespace trivet::kernels {
namespace {

// Pairs of one slot that go through a product together: a multiple of the 12 rows of its blocks.
constexpr int64_t kPairsAtOnce = 192;

// The product of positions [first, first + count) of `slot`.
void Product(const ExpertGemm::Args& args, const KernelRow<Gemm>& row, const PackedMatrix& w, int64_t first,
             int64_t count) {
  int32_t tokens[kPairsAtOnce];
  float weights[kPairsAtOnce];
  const bool sums = args.y == nullptr;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t pair = args.order[first + i];
    tokens[i] = static_cast<int32_t>(pair / args.top_k);
    weights[i] = sums ? args.weights[pair] : 1;
  }
  Gemm::Args gemm;
  gemm.x = sums ? args.x + first * args.x_stride : args.x;
  gemm.x_stride = args.x_stride;
  gemm.x_rows = sums ? nullptr : tokens;
  gemm.m = count;
  gemm.w = &w;
  gemm.y = sums ? nullptr : args.y + first * args.y_stride;
  gemm.sums_fixed = args.sums_fixed;
  gemm.sums_fast = args.sums_fast;
  gemm.y_stride = args.y_stride;
  gemm.y_rows = sums ? tokens : nullptr;
  gemm.row_scale = sums ? weights : nullptr;
  gemm.numerics = args.numerics;
  gemm.tile_begin = args.tile_begin;
  gemm.tile_end = std::min(args.tile_end, w.tiles());
  gemm.flags = args.flags;
  if (gemm.tile_begin < gemm.tile_end) row.run(gemm);
}

void Run(const ExpertGemm::Args& args, const KernelRow<Gemm>& row, int64_t pairs_at_once) {
  for (size_t slot = 0; slot < args.w.size(); ++slot) {
    if (args.w[slot].n == 0) continue;
    for (int64_t i = args.offsets[slot]; i < args.offsets[slot + 1]; i += pairs_at_once) {
      Product(args, row, args.w[slot], i, std::min(pairs_at_once, args.offsets[slot + 1] - i));
    }
  }
}

}  // namespace

void GroupPairsRef(const GroupPairs::Args& args) {
  std::fill_n(args.offsets, args.slots_total + 1, 0);
  for (int64_t p = 0; p < args.pairs; ++p) {
    if (args.slots[p] >= 0) ++args.offsets[args.slots[p] + 1];
  }
  std::partial_sum(args.offsets, args.offsets + args.slots_total + 1, args.offsets);
  int32_t none = args.offsets[args.slots_total];
  for (int64_t p = 0; p < args.pairs; ++p) {
    const int32_t slot = args.slots[p];
    const int32_t at = slot >= 0 ? args.offsets[slot]++ : none++;
    args.order[at] = static_cast<int32_t>(p);
    args.slot_at[at] = slot;
  }
  // Every offset moved to the next slot's begin.
  std::copy_backward(args.offsets, args.offsets + args.slots_total, args.offsets + args.slots_total + 1);
  args.offsets[0] = 0;
}

void ExpertGemmRef(const ExpertGemm::Args& args) { Run(args, Gemm::Rows().back(), 1); }

void ExpertGemmGrouped(const ExpertGemm::Args& args) { Run(args, *args.gemm, kPairsAtOnce); }

}  // namespace trivet::kernels
