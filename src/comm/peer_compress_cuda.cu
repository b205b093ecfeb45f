// SPDX-License-Identifier: Apache-2.0
// Sums of float32 whose parts travel as wht6.h has them. Four threads share a group of 64 values.
#include <cuda_runtime.h>

#include "comm/peer_call.cuh"
#include "comm/peer_cuda.h"
#include "comm/wht6.h"
#include "kernels/cuda_launch.cuh"

namespace trivet::comm::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kGroupThreads = static_cast<int>(kWhtGroup) / kWhtHeld;
static_assert(kGroupThreads == 4 && kThreads / kGroupThreads == kWhtBlockGroups);

// The transform of a group of which this thread holds the values from 16 * part on.
__device__ void Transform(float* values, int part) {
#pragma unroll
  for (int half = 1; half < kWhtHeld; half *= 2) WhtStage(values, kWhtHeld, half);
#pragma unroll
  for (int step = 1; step < kGroupThreads; step *= 2) {
#pragma unroll
    for (int i = 0; i < kWhtHeld; ++i) {
      const float other = __shfl_xor_sync(kernels::kAllLanes, values[i], step);
      values[i] = (part & step) == 0 ? values[i] + other : other - values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kWhtHeld; ++i) values[i] *= kWhtLength;
}

// The scale of a transformed group.
__device__ uint16_t ScaleOf(const float* values) {
  float top = 0, poison = 0;
#pragma unroll
  for (int i = 0; i < kWhtHeld; ++i) top = fmaxf(top, fabsf(values[i])), poison += values[i] * 0.0F;
#pragma unroll
  for (int step = 1; step < kGroupThreads; step *= 2) {
    top = fmaxf(top, __shfl_xor_sync(kernels::kAllLanes, top, step));
    poison += __shfl_xor_sync(kernels::kAllLanes, poison, step);
  }
  return WhtScale(top + poison);
}

// Where a thread's share of group `group` stands in a packed message of `groups`.
__device__ uint32_t* WordsAt(std::byte* packed, int64_t group, int part) {
  return reinterpret_cast<uint32_t*>(packed + group * kWhtCodeBytes) + part * kWhtWords;
}
__device__ uint16_t* ScaleAt(std::byte* packed, int64_t groups, int64_t group) {
  return reinterpret_cast<uint16_t*>(packed + groups * kWhtCodeBytes) + group;
}

// Gives every rank, this one included, what this thread has of a group.
__device__ void PushGroup(const Call& call, const float* values, int64_t groups, int64_t group, int part) {
  const Peers& peers = call.peers;
  const uint16_t scale = ScaleOf(values);
  uint32_t words[kWhtWords];
  WhtPack(values, WhtScaleValue(scale), words);
  if (group >= groups) return;
  for (int64_t step = 0; step < peers.layout.ranks; ++step) {
    const int64_t to = (peers.rank + step) % peers.layout.ranks;
    std::byte* packed = At<std::byte>(peers, to, peers.layout.Part(call.half, peers.rank));
    uint32_t* at = WordsAt(packed, group, part);
    for (int i = 0; i < kWhtWords; ++i) at[i] = words[i];
    if (part == 0) *ScaleAt(packed, groups, group) = scale;
  }
}

// What this thread has of the sum of a group over ranks in ascending order, transformed.
__device__ void SumGroup(const Call& call, int64_t groups, int64_t group, int part, float* sum) {
  const Peers& peers = call.peers;
  for (int64_t from = 0; from < peers.layout.ranks; ++from) {
    std::byte* packed = At<std::byte>(peers, peers.rank, peers.layout.Part(call.half, from));
    const float scale = WhtScaleValue(*ScaleAt(packed, groups, group));
    uint32_t words[kWhtWords];
    for (int i = 0; i < kWhtWords; ++i) words[i] = WordsAt(packed, group, part)[i];
#pragma unroll
    for (int i = 0; i < kWhtHeld; ++i)
      sum[i] = from == 0 ? WhtValue(words, i, scale) : sum[i] + WhtValue(words, i, scale);
  }
}

__global__ void __launch_bounds__(kThreads) CompressedSumKernel(const Peers peers, float* values, int64_t groups) {
  const Call call(peers);
  if (*call.given_up() != 0) return;
  const Share share = ShareOf(groups, gridDim.x, blockIdx.x);
  const int part = static_cast<int>(threadIdx.x) % kGroupThreads, first = static_cast<int>(threadIdx.x) / kGroupThreads;
  float held[kWhtHeld];
  // All threads of a warp go round as often: they hand values to each other.
  for (int64_t begin = share.begin; begin < share.end; begin += kWhtBlockGroups) {
    const bool real = begin + first < share.end;
    const int64_t group = real ? begin + first : groups;
#pragma unroll
    for (int i = 0; i < kWhtHeld; ++i) held[i] = real ? values[group * kWhtGroup + part * kWhtHeld + i] : 0.0F;
    Transform(held, part);
    PushGroup(call, held, groups, group, part);
  }
  call.SignalAll(kBegun);
  if (!call.AwaitAll(kBegun)) return;
  for (int64_t begin = share.begin; begin < share.end; begin += kWhtBlockGroups) {
    const bool real = begin + first < share.end;
    const int64_t group = real ? begin + first : share.begin;
    SumGroup(call, groups, group, part, held);
    Transform(held, part);
#pragma unroll
    for (int i = 0; i < kWhtHeld; ++i) {
      if (real) values[group * kWhtGroup + part * kWhtHeld + i] = held[i];
    }
  }
  call.End();
}

}  // namespace

void CompressedSum(const Peers& peers, int64_t blocks, float* values, int64_t count) {
  CompressedSumKernel<<<static_cast<unsigned>(blocks), kThreads>>>(peers, values, count / kWhtGroup);
  kernels::CheckLaunch("compressed all-reduce");
}

}  // namespace trivet::comm::cuda
