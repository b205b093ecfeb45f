// SPDX-License-Identifier: Apache-2.0
// Scratch memory of one rank: taken in a stack's order, given back all at once.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "device/buffer.h"

namespace trivet::device {

/// A fixed block of scratch. Its size comes from the plan; running out is a bug.
class Workspace {
 public:
  Workspace() = default;
  explicit Workspace(Buffer buffer) : buffer_(std::move(buffer)) {}

  /// `count` elements of T, aligned to 64 bytes, contents undefined.
  template <class T>
  std::span<T> Take(int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    CHECK(used_ + bytes <= buffer_.bytes());
    T* data = reinterpret_cast<T*>(buffer_.data() + used_);
    used_ += bytes;
    return {data, static_cast<size_t>(count)};
  }

  /// Gives back what was taken during its lifetime.
  class Frame {
   public:
    explicit Frame(Workspace* workspace) : workspace_(workspace), mark_(workspace->used_) {}
    ~Frame() { workspace_->used_ = mark_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Workspace* workspace_;
    int64_t mark_;
  };

 private:
  Buffer buffer_;
  int64_t used_ = 0;
};

}  // namespace trivet::device
