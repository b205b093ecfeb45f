// SPDX-License-Identifier: Apache-2.0
// Monotonic time.
#pragma once

#include <chrono>
#include <cstdint>

namespace trivet {

/// Microseconds since an arbitrary start.
inline int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace trivet
