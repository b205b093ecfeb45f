// SPDX-License-Identifier: Apache-2.0
#include "device/peer_memory.h"

#include <fmt/format.h>

#include "device/cuda.h"

namespace trivet::device {

Result<PeerMemory> PeerMemory::Make(const Device& device, int64_t bytes, std::string_view what) {
  if (device.backend() == Backend::kCpu) {
    return MakeError(Code::kUnsupported,
                     "memory that ranks share: expected a GPU, found the processor; ranks share its memory as it is");
  }
  PeerMemory memory;
  TRY_ASSIGN(memory.own_, Buffer::Make(device, bytes, what));
  std::string why;
  if (!cuda::Export(memory.own_.data(), &memory.handle_, &why)) {
    return MakeError(
        Code::kUnsupported,
        fmt::format("{}: expected memory that other processes can open, found: {}; use --transport host", what, why));
  }
  return memory;
}

PeerMemory& PeerMemory::operator=(PeerMemory&& other) noexcept {
  std::swap(own_, other.own_);
  std::swap(handle_, other.handle_);
  std::swap(open_, other.open_);
  return *this;
}

Result<std::byte*> PeerMemory::Open(const PeerHandle& peer) {
  if (peer.process == handle_.process && peer.ordinal == handle_.ordinal) return static_cast<std::byte*>(peer.address);
  std::string why;
  void* memory = cuda::Import(peer, &why);
  if (memory == nullptr) {
    return MakeError(Code::kUnsupported, fmt::format("GPU {}: expected to reach memory of GPU {}, found: {}",
                                                     handle_.ordinal, peer.ordinal, why));
  }
  open_.emplace_back(peer, memory);
  return static_cast<std::byte*>(memory);
}

void PeerMemory::Close() {
  for (const auto& [handle, memory] : open_) cuda::CloseImport(handle, memory);
  open_.clear();
}

void PeerMemory::Abandon() {
  open_.clear();
  own_.Abandon();
}

Result<HostPages> HostPages::Map(void* memory, int64_t bytes) {
  HostPages pages;
  std::string why;
  pages.device_ = cuda::MapHost(memory, bytes, &why);
  if (pages.device_ == nullptr) {
    return MakeError(Code::kUnsupported,
                     fmt::format("shared memory: expected that the GPU can map it, found: {}", why));
  }
  pages.host_ = memory;
  return pages;
}

HostPages::~HostPages() {
  if (host_ != nullptr) cuda::UnmapHost(host_);
}

}  // namespace trivet::device
