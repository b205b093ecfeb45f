// SPDX-License-Identifier: Apache-2.0
// Memory of a rank's GPU that kernels of other ranks read and write: ranks may be threads or processes, on the same GPU
// or on another one of the machine.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/buffer.h"
#include "device/peer_handle.h"

namespace trivet::device {

/// A rank's own zero-filled memory, and that of the others where this rank's GPU sees it.
class PeerMemory {
 public:
  PeerMemory() = default;
  /// Memory on a GPU.  Errors: kCapacity names `what`; kUnsupported with the driver's reason.
  static Result<PeerMemory> Make(const Device& device, int64_t bytes, std::string_view what);
  ~PeerMemory() { Close(); }
  PeerMemory(PeerMemory&&) = default;
  PeerMemory& operator=(PeerMemory&& other) noexcept;

  const PeerHandle& handle() const { return handle_; }
  std::byte* data() { return own_.data(); }

  /// Where this rank's GPU reaches the memory of `peer`, which may be this one.
  /// Errors:  kUnsupported when it does not, with both GPUs and the reason.
  Result<std::byte*> Open(const PeerHandle& peer);
  /// Lets go of the others' memory; their owners may free it once all have.
  void Close();
  /// Leaves everything to the end of the process: others may still write to it.
  void Abandon();

 private:
  Buffer own_;
  PeerHandle handle_;
  std::vector<std::pair<PeerHandle, void*>> open_;
};

/// Whole pages of host memory that the thread's GPU reads and writes, too.
class HostPages {
 public:
  HostPages() = default;
  /// Errors: kUnsupported with the driver's reason.
  static Result<HostPages> Map(void* memory, int64_t bytes);
  ~HostPages();
  HostPages(HostPages&& other) noexcept
      : host_(std::exchange(other.host_, nullptr)), device_(std::exchange(other.device_, nullptr)) {}
  HostPages& operator=(HostPages&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(device_, other.device_);
    return *this;
  }

  /// The pages' address on the GPU.
  void* on_device() const { return device_; }

 private:
  void* host_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace trivet::device
