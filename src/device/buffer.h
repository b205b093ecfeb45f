// SPDX-License-Identifier: Apache-2.0
// Owned memory for weights, caches and scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "device/device.h"

namespace trivet::device {

/// Zero-filled memory of a device, aligned to 256 bytes; pages of the processor are taken from the system when they are
/// first written.
class Buffer {
 public:
  Buffer() = default;
  /// Errors: kCapacity names `what` and the size.
  static Result<Buffer> Make(const Device& device, int64_t bytes, std::string_view what);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  /// Takes the processor's pages now, so that no step waits for a system that fills fresh memory with zeros.
  void TakePages();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  /// Leaves the memory to the end of the process.
  void Abandon() { data_ = nullptr, bytes_ = 0; }
  /// The memory as an array of T.
  template <class T>
  std::span<T> As() {
    return {reinterpret_cast<T*>(data_), static_cast<size_t>(bytes_) / sizeof(T)};
  }
  template <class T>
  std::span<const T> As() const {
    return {reinterpret_cast<const T*>(data_), static_cast<size_t>(bytes_) / sizeof(T)};
  }

 private:
  Backend backend_ = Backend::kCpu;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace trivet::device
