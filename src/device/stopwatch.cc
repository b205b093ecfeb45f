// SPDX-License-Identifier: Apache-2.0
#include "device/stopwatch.h"

#include <utility>

#include "device/cuda.h"

namespace trivet::device {

Stopwatch::~Stopwatch() {
  for (void* event : events_) cuda::FreeEvent(event);
}

Stopwatch::Stopwatch(Stopwatch&& other) noexcept
    : backend_(other.backend_),
      events_(std::exchange(other.events_, {})),
      times_(std::move(other.times_)),
      ends_(std::exchange(other.ends_, 0)) {}

void Stopwatch::Lap(bool first) {
  if (first) ends_ = 0;
  if (backend_ == Backend::kCpu) {
    times_.resize(ends_);
    times_.push_back(std::chrono::steady_clock::now());
  } else {
    if (ends_ == events_.size()) events_.push_back(cuda::MakeEvent());
    cuda::RecordEvent(events_[ends_], false);
  }
  ++ends_;
}

std::vector<double> Stopwatch::Take() {
  std::vector<double> laps;
  for (size_t i = 1; i < ends_; ++i) {
    laps.push_back(backend_ == Backend::kCpu
                       ? std::chrono::duration<double, std::micro>(times_[i] - times_[i - 1]).count()
                       : cuda::MicrosecondsBetween(events_[i - 1], events_[i]));
  }
  ends_ = 0;
  return laps;
}

}  // namespace trivet::device
