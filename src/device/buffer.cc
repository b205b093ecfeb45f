// SPDX-License-Identifier: Apache-2.0
#include "device/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/str.h"

namespace trivet::device {

Result<Buffer> Buffer::Make(int64_t bytes, std::string_view what) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  if (bytes < 0) {
    return MakeError(Code::kCapacity, fmt::format("{}: expected a size of at most 2^63 - 1 bytes, found more; use more "
                                                  "ranks, a shorter context or fewer --kv-tokens",
                                                  what));
  }
  void* memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return MakeError(Code::kCapacity, fmt::format("{}: expected {} of memory, found: {}; use more ranks, a shorter "
                                                  "context or fewer --kv-tokens",
                                                  what, HumanBytes(static_cast<double>(bytes)), std::strerror(errno)));
  }
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.bytes_ = bytes;
  // Weights are read front to back by every step: large pages save most of the address translation. Advice only.
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return buffer;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace trivet::device
