// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory (mbarrier) between threads of a block that produce something and others that use it. A
// phase ends when all that are counted have arrived; phases have parities 0, 1, 0, ..
#pragma once

#include <cstdint>

namespace trivet::kernels {

#if __CUDA_ARCH__ >= 900

/// By one thread, before all others of the block go through __syncthreads.
__device__ inline void InitBarrier(uint64_t& barrier, uint32_t arrivals) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}

/// What this thread wrote before is seen by whoever waits for the phase.
__device__ inline void ArriveAt(uint64_t& barrier) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/// Returns when the phase of this parity has ended: before the first one, that of parity 1 has.
__device__ inline void AwaitPhase(uint64_t& barrier, uint32_t parity) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
  uint32_t ended = 0;
  while (ended == 0) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ended)
                 : "r"(at), "r"(parity)
                 : "memory");
  }
}

#endif

}  // namespace trivet::kernels
