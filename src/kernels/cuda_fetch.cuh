// SPDX-License-Identifier: Apache-2.0
// Memory that a kernel will read is asked for while the kernel before it ends.
#pragma once

#include <cstdint>

namespace trivet::kernels {

/// Brings `bytes` bytes to the device's cache, whose lines `threads` threads share out; this one is number `thread`.
__device__ inline void Fetch(const void* from, int64_t bytes, int64_t thread, int64_t threads) {
  constexpr int64_t kLine = 128;
  for (int64_t at = thread * kLine; at < bytes; at += threads * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(from) + at));
  }
}

}  // namespace trivet::kernels
