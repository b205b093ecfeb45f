// SPDX-License-Identifier: Apache-2.0
#include "device/graph.h"

#include "base/check.h"
#include "device/cuda.h"

namespace trivet::device {

ReplayClock ReplayClock::Make() {
  ReplayClock clock;
  clock.begin_ = cuda::MakeEvent();
  for (void*& end : clock.ends_) end = cuda::MakeEvent();
  return clock;
}

ReplayClock::~ReplayClock() {
  for (void* event : {begin_, ends_[0], ends_[1]}) {
    if (event != nullptr) cuda::FreeEvent(event);
  }
}

ReplayClock& ReplayClock::operator=(ReplayClock&& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(ends_, other.ends_);
  std::swap(launches_, other.launches_);
  std::swap(gaps_, other.gaps_);
  return *this;
}

void ReplayClock::Note() {
  if (launches_ == 0 || launches_ % 2 != 0) return;
  // Whoever waits for the later end may read when the graph in front of it began.
  cuda::MicrosecondsBetween(begin_, ends_[(launches_ - 1) % 2]);
  gaps_.push_back(cuda::MicrosecondsBetween(ends_[launches_ % 2], begin_));
}

std::vector<double> ReplayClock::Take() {
  Note();
  launches_ = 0;
  return std::exchange(gaps_, {});
}

Result<Graph> Graph::Record(const std::function<Status()>& work, const ReplayClock* clock) {
  Graph graph;
  cuda::BeginRecording();
  if (clock != nullptr) cuda::RecordEvent(clock->begin_, true);
  const Status status = work();
  graph.handle_ = cuda::EndRecording();
  if (!status.ok()) return status.error();
  return graph;
}

Graph::~Graph() {
  if (handle_ != nullptr) cuda::FreeRecording(handle_);
}

void Graph::Launch(ReplayClock* clock) const {
  CHECK(recorded());
  if (clock != nullptr) clock->Note();
  cuda::LaunchRecording(handle_);
  if (clock != nullptr) cuda::RecordEvent(clock->ends_[clock->launches_++ % 2], false);
}

}  // namespace trivet::device
