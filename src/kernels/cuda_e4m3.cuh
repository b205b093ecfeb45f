// SPDX-License-Identifier: Apache-2.0
// E4M3 codes in the registers of a GPU.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda_launch.cuh"
#include "quant/convert.h"

namespace trivet::kernels {

/// Two F16 by their bits.
__device__ inline __half2 HalvesOf(uint32_t bits) {
  __half2 halves;
  memcpy(&halves, &bits, sizeof(bits));
  return halves;
}

/// What the two codes in the lower half of `bits` stand for.
__device__ inline float2 PairFromE4M3(uint32_t bits) {
#if __CUDA_ARCH__ >= 890
  uint32_t halves = 0;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(bits)));
  return __half22float2(HalvesOf(halves));
#else
  return {quant::FromE4M3(static_cast<uint8_t>(bits)), quant::FromE4M3(static_cast<uint8_t>(bits >> 8))};
#endif
}

/// Transposes four by four bytes between the four lanes of a warp whose numbers differ in the bits kApart and 2 *
/// kApart: of the words that they give, the i-th of them gets byte i of each. All lanes of the warp call it.
template <int kApart>
__device__ inline uint32_t TransposeBytes(uint32_t word) {
  const uint32_t first = (threadIdx.x & kApart) == 0 ? 0x6240U : 0x3715U;
  const uint32_t second = (threadIdx.x & 2 * kApart) == 0 ? 0x5410U : 0x3276U;
  word = __byte_perm(word, __shfl_xor_sync(kAllLanes, word, kApart), first);
  return __byte_perm(word, __shfl_xor_sync(kAllLanes, word, 2 * kApart), second);
}

}  // namespace trivet::kernels
