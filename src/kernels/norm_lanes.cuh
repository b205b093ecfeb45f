// SPDX-License-Identifier: Apache-2.0
// The order of a row's sum of squares (lanes.h) by threads of a block: a chain of additions for each lane, then halves.
#pragma once

#include <cstdint>

#include "kernels/lanes.h"

namespace trivet::kernels {

/// The sum of one lane's squares where they stand in shared memory, at a multiple of 16 bytes. What comes next is
/// loaded while the chain goes on.
__device__ inline float LaneSum(const float* squares, int64_t count) {
  constexpr int kFours = 4;
  float sum = 0;
  int64_t i = 0;
  float4 next[kFours];
  const auto load = [&](int64_t at) {
#pragma unroll
    for (int j = 0; j < kFours; ++j) next[j] = reinterpret_cast<const float4*>(squares + at)[j];
  };
  if (count >= 4 * kFours) load(0);
#pragma unroll 1
  for (; i + 4 * kFours <= count; i += 4 * kFours) {
    float4 fours[kFours];
#pragma unroll
    for (int j = 0; j < kFours; ++j) fours[j] = next[j];
    if (i + 8 * kFours <= count) load(i + 4 * kFours);
#pragma unroll
    for (const float4& four : fours) {
      sum = sum + four.x;
      sum = sum + four.y;
      sum = sum + four.z;
      sum = sum + four.w;
    }
  }
  for (; i < count; ++i) sum += squares[i];
  return sum;
}

/// The halving sum of the sixteen lanes' sums, for the block's first lane, as HalvingSum does it: lane i takes lane i +
/// half. The first sixteen threads call it.
__device__ inline float HalveLanes(float sum) {
  constexpr uint32_t kHalfWarp = (1U << kLanes) - 1;
  for (int half = kLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(kHalfWarp, sum, half, kLanes);
  return sum;
}

}  // namespace trivet::kernels
