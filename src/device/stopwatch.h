// SPDX-License-Identifier: Apache-2.0
// How long a device works on stretches of what it is asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "device/device.h"

namespace trivet::device {

/// Laps of the calling thread's device, one behind the other. On a GPU a lap ends when the work that was asked for
/// before has ended, by events, for which nobody waits; kernels of different laps do not overlap.
class Stopwatch {
 public:
  explicit Stopwatch(const Device& device) : backend_(device.backend()) {}
  ~Stopwatch();
  Stopwatch(Stopwatch&& other) noexcept;
  Stopwatch& operator=(Stopwatch&&) = delete;

  /// Ends a lap, the first time begins one; what was not taken is forgotten where `first` says so.
  void Lap(bool first = false);
  /// The laps since the first one, for whose end it waits.  Units: microseconds.
  std::vector<double> Take();

 private:
  Backend backend_;
  std::vector<void*> events_;  // of a GPU, used again
  std::vector<std::chrono::steady_clock::time_point> times_;
  size_t ends_ = 0;  // of laps, and the begin of the first
};

}  // namespace trivet::device
