// SPDX-License-Identifier: Apache-2.0
#include "kernels/argmax.h"
#include "kernels/cuda_launch.cuh"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 256;

// The largest of a warp's keys: the upper halves first, then the lower ones of those that have it.
__device__ uint64_t LargestOfWarp(uint64_t key) {
  const auto high = static_cast<uint32_t>(key >> 32);
  const uint32_t most = __reduce_max_sync(kAllLanes, high);
  const uint32_t low = __reduce_max_sync(kAllLanes, high == most ? static_cast<uint32_t>(key) : 0U);
  return uint64_t{most} << 32 | low;
}

// One key a block.
__global__ void __launch_bounds__(kThreads) ArgmaxKernel(const Argmax::Args args) {
  BeginKernel();
  __shared__ uint64_t of_warps[kThreads / kWarp];
  const int64_t i = args.begin + blockIdx.x;
  const int64_t row = args.rows[i / kArgmaxParts], part = i % kArgmaxParts;
  if (row < 0) return;
  const float* logits = args.logits + row * args.stride;
  const int64_t end = args.n * (part + 1) / kArgmaxParts;
  uint64_t best = 0;
#pragma unroll 4
  for (int64_t c = args.n * part / kArgmaxParts + threadIdx.x; c < end; c += kThreads) {
    const uint64_t key = ArgmaxKey(logits[c], args.first + c);
    if (key > best) best = key;
  }
  best = LargestOfWarp(best);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = best;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  best = LargestOfWarp(threadIdx.x < kThreads / kWarp ? of_warps[threadIdx.x] : 0);
  if (threadIdx.x == 0) args.keys[i] = best;
}

void ArgmaxCuda(const Argmax::Args& args) {
  if (args.begin >= args.end) return;
  StartKernel({static_cast<unsigned>(args.end - args.begin), kThreads}, ArgmaxKernel, args);
  CheckLaunch("argmax/cuda");
}

}  // namespace

std::span<const KernelRow<Argmax>> Argmax::CudaRows() {
  static constexpr KernelRow<Argmax> kRows[] = {{"argmax/cuda", kCudaTarget, ArgmaxCuda}};
  return kRows;
}

}  // namespace trivet::kernels
