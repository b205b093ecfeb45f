// SPDX-License-Identifier: Apache-2.0
// Work that a device records once and repeats as a whole, which spares the launches of its kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace trivet::device {

/// How long a thread's GPU has nothing to do between the end of one graph and the beginning of the next, by events:
/// one that every graph begins with, and one behind each launch.
class ReplayClock {
 public:
  /// A clock of the calling thread's GPU.
  static ReplayClock Make();
  ReplayClock() = default;
  ~ReplayClock();
  ReplayClock(ReplayClock&& other) noexcept { *this = std::move(other); }
  ReplayClock& operator=(ReplayClock&& other) noexcept;

  /// Gaps between consecutive launches since the last call, one of every two: to read the clock takes time that lies in
  /// the other. What the GPU did between two launches counts as part of their gap.  Units: microseconds.
  std::vector<double> Take();

 private:
  friend class Graph;
  // Notes the gap in front of the last launch, whose end is waited for, if it is one to be noted; once for every
  // launch.
  void Note();
  // Of these two ends one belongs to the last launch: a gap is known only when the graph behind it has begun.
  void* begin_ = nullptr;
  void* ends_[2] = {};
  int64_t launches_ = 0;
  std::vector<double> gaps_;
};

/// A recorded run of kernels and transfers on one GPU. It repeats them with the addresses and sizes they had; what
/// stands at these addresses may differ every time.
class Graph {
 public:
  Graph() = default;
  /// Records what `work` asks the calling thread's device for, without doing it. Nothing in it may wait.
  ///   clock    what times its launches, or null
  /// Errors:  those of `work`.
  static Result<Graph> Record(const std::function<Status()>& work, const ReplayClock* clock = nullptr);
  ~Graph();
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  /// Whether something was recorded.
  bool recorded() const { return handle_ != nullptr; }
  /// Asks for all of it.
  ///   clock  as in Record
  void Launch(ReplayClock* clock = nullptr) const;

 private:
  void* handle_ = nullptr;
};

}  // namespace trivet::device
