// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_launch.cuh"
#include "kernels/expert_gemm.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 256;

// A pair's position is the number of pairs that stand before it: those of lower slots, and earlier ones of its own;
// -1, as an unsigned number, is the highest slot. One pair a thread; the threads behind them count offsets.
__global__ void GroupPairsKernel(const GroupPairs::Args args) {
  BeginKernel();
  const int64_t i = GlobalThread();
  const bool is_pair = i < args.pairs;
  const int64_t offset = i - args.pairs;  // of slot `offset`
  if (offset > args.slots_total) return;
  const auto slot = static_cast<uint32_t>(is_pair ? args.slots[i] : static_cast<int32_t>(offset));
  int32_t before = 0;
  for (int64_t p = 0; p < args.pairs; ++p) {
    const auto other = static_cast<uint32_t>(args.slots[p]);
    before += other < slot || (is_pair && other == slot && p < i) ? 1 : 0;
  }
  if (is_pair) {
    args.order[before] = static_cast<int32_t>(i);
    args.slot_at[before] = static_cast<int32_t>(slot);
  } else {
    args.offsets[offset] = before;
  }
}

void GroupPairsCuda(const GroupPairs::Args& args) {
  StartKernel({BlocksFor(args.pairs + args.slots_total + 1, kThreads), kThreads}, GroupPairsKernel, args);
  CheckLaunch("group_pairs/cuda");
}

}  // namespace

std::span<const KernelRow<GroupPairs>> GroupPairs::CudaRows() {
  static constexpr KernelRow<GroupPairs> kRows[] = {{"group_pairs/cuda", kCudaTarget, GroupPairsCuda}};
  return kRows;
}

}  // namespace trivet::kernels
