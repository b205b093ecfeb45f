// SPDX-License-Identifier: Apache-2.0
// Arrays gathered in one block of bytes, so that they travel together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace trivet {

/// A block of arrays, each at a multiple of 64 bytes.
class Staging {
 public:
  /// Adds an array; the result is the byte where it begins.
  template <class T>
  size_t Add(std::span<const T> values) {
    const size_t at = bytes_.size();
    bytes_.resize(at + (values.size_bytes() + kAlignment - 1) / kAlignment * kAlignment);
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size_bytes());
    return at;
  }
  std::byte* data() { return bytes_.data(); }
  int64_t bytes() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  static constexpr size_t kAlignment = 64;
  std::vector<std::byte> bytes_;
};

}  // namespace trivet
