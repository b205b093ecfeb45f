// SPDX-License-Identifier: Apache-2.0
// How the rows of a GPU start: grid sizes, and a check of every launch. All of them go into the calling thread's
// default stream.
//
// A step is a row of many short kernels, each of which needs what the one before it wrote. From compute capability 9.0
// on a kernel may begin while the one before it runs (programmatic dependent launch): a product's first weights are
// under way when its activations come. Two rules make that safe.
// 1. Every kernel that StartKernel launches calls AwaitPrevious in every block before it reads or writes what other
//    kernels of the step do. Each waits for the one before it, so all have ended then; between steps, transfers wait.
// 2. What a kernel of the step wrote is never read by __ldg, which the compiler may move to a place before the wait.
//    Weights may be, and any kernel may read ahead what an earlier step left, such as states.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"

namespace trivet::kernels {

/// The compute capability that every row needs: the oldest that is compiled for.
inline constexpr int64_t kCudaTarget = 80;

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFU;

/// Quotient, rounded up.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Blocks of `threads` that hold `count` threads.
inline unsigned BlocksFor(int64_t count, int64_t threads) { return static_cast<unsigned>(CeilDiv(count, threads)); }

/// What the calling thread's device says of itself.
inline int DeviceAttribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, attribute, device);
  return value;
}

/// Whether the calling thread's device joins blocks to clusters and starts kernels early.
inline bool IsHopperOrLater() { return DeviceAttribute(cudaDevAttrComputeCapabilityMajor) >= 9; }

/// The size of a launch; where `cluster` is above 1, that many blocks along z are a cluster.
struct LaunchSize {
  dim3 grid, block;
  size_t shared = 0;
  unsigned cluster = 1;
};

/// Launches a kernel that may begin before the one in front of it has ended: it calls AwaitPrevious.
template <class... Parameters, class... Arguments>
void StartKernel(const LaunchSize& size, void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (size.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {1, 1, size.cluster};
  }
  if (IsHopperOrLater()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = size.grid;
  config.blockDim = size.block;
  config.dynamicSmemBytes = size.shared;
  config.stream = cudaStreamPerThread;
  config.attrs = attributes;
  config.numAttrs = count;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// Lets the next kernel begin as soon as all blocks of this one have come here.
__device__ inline void LetNextBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Waits until the kernel before this one has ended, and sees what it wrote. More calls of a thread cost nothing.
__device__ inline void AwaitPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Both: the next one may begin once the one before has left the whole device free.
__device__ inline void BeginKernel() {
  AwaitPrevious();
  LetNextBegin();
}

/// Calls launch(begin, count) for runs of rows that fit a grid's second dimension; not at all for an empty range.
template <class Launch>
void ForRows(int64_t begin, int64_t end, const Launch& launch) {
  constexpr int64_t kMostRows = 65535;
  for (; begin < end; begin += kMostRows) launch(begin, static_cast<unsigned>(std::min(kMostRows, end - begin)));
}

/// Aborts when the launch before this call was refused: a wrong size, or a device without code for this build.
inline void CheckLaunch(std::string_view row) {
  const cudaError_t error = cudaGetLastError();
  CHECK_MSG(error == cudaSuccess, std::string(row) + ": " + cudaGetErrorString(error));
}

/// This thread's number in a grid of one dimension.
__device__ inline int64_t GlobalThread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

}  // namespace trivet::kernels
