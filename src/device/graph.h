// SPDX-License-Identifier: Apache-2.0
// Work that a device records once and repeats as a whole, which spares the launches of its kernels.
#pragma once

#include <functional>
#include <utility>

#include "base/result.h"
#include "device/device.h"

namespace trivet::device {

/// A recorded run of kernels and transfers on one GPU. It repeats them with the addresses and sizes they had; what
/// stands at these addresses may differ every time.
class Graph {
 public:
  Graph() = default;
  /// Records what `work` asks the calling thread's device for, without doing it. Nothing in it may wait.
  /// Errors:  those of `work`.
  static Result<Graph> Record(const std::function<Status()>& work);
  ~Graph();
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  /// Whether something was recorded.
  bool recorded() const { return handle_ != nullptr; }
  /// Asks for all of it.
  void Launch() const;

 private:
  void* handle_ = nullptr;
};

}  // namespace trivet::device
