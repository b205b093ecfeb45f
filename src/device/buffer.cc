// SPDX-License-Identifier: Apache-2.0
#include "device/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/str.h"
#include "device/cuda.h"

namespace trivet::device {

namespace {

// Memory of the processor, or null with the reason in `why`.
void* Map(int64_t bytes, std::string* why) {
  void* memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    *why = std::strerror(errno);
    return nullptr;
  }
  // Weights are read front to back by every step: large pages save most of the address translation. Advice only.
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return memory;
}

}  // namespace

Result<Buffer> Buffer::Make(const Device& device, int64_t bytes, std::string_view what) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  if (bytes < 0) {
    return MakeError(Code::kCapacity, fmt::format("{}: expected a size of at most 2^63 - 1 bytes, found more; use more "
                                                  "ranks, a shorter context or fewer --kv-tokens",
                                                  what));
  }
  std::string why;
  void* memory = device.backend() == Backend::kCpu ? Map(bytes, &why) : cuda::Allocate(bytes, &why);
  if (memory == nullptr) {
    return MakeError(Code::kCapacity, fmt::format("{}: expected {} of memory, found: {}; use more ranks, a shorter "
                                                  "context or fewer --kv-tokens",
                                                  what, HumanBytes(static_cast<double>(bytes)), why));
  }
  buffer.backend_ = device.backend();
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.bytes_ = bytes;
  return buffer;
}

void Buffer::TakePages() {
  if (backend_ != Backend::kCpu || bytes_ == 0) return;
  constexpr int64_t kPage = 4096;
#ifdef MADV_POPULATE_WRITE
  if (::madvise(data_, static_cast<size_t>(bytes_), MADV_POPULATE_WRITE) == 0) return;
#endif
  for (int64_t at = 0; at < bytes_; at += kPage) {
    volatile std::byte* byte = data_ + at;
    *byte = *byte;
  }
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  backend_ == Backend::kCpu ? static_cast<void>(::munmap(data_, static_cast<size_t>(bytes_))) : cuda::Free(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : backend_(other.backend_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace trivet::device
