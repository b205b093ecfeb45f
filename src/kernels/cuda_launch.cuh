// SPDX-License-Identifier: Apache-2.0
// How the rows of a GPU start: grid sizes, and a check of every launch. All of them go into the calling thread's
// default stream, which is what <<<grid, block>>> means in this build.
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
