// SPDX-License-Identifier: Apache-2.0
// The device of one rank: its memory, and transfers between it and the host. On the processor they are plain copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/backend.h"
#include "base/result.h"

namespace trivet::device {

/// Memory of the host that a device copies from and to while the host goes on; on the processor, ordinary memory.
struct FreePageLocked {
  Backend backend = Backend::kCpu;
  void operator()(std::byte* memory) const;
};
using PageLocked = std::unique_ptr<std::byte[], FreePageLocked>;

/// One device. On CUDA every call belongs to the thread that opened it, whose default stream orders kernels and
/// transfers; what fails there is a bug, except where a Result says otherwise.
class Device {
 public:
  /// The processor.
  Device() = default;
  /// Device `rank` modulo the number of devices of `backend`, for the calling thread.
  /// Errors:  kUsage when this build or this machine has no such device; kUnsupported in a process that was forked from
  ///          one that had opened a GPU.
  static Result<Device> Open(Backend backend, int64_t rank);

  /// Memory that nobody has on the devices of `ranks` ranks. Asked by a process of its own, as long as this one has not
  /// opened a GPU: its ranks may be processes, and one that has cannot fork any more.  Units: bytes.
  /// Errors:  those of Open; kIo; those of AvailableMemory for the processor.
  static Result<int64_t> FreeBytesOfAll(Backend backend, int64_t ranks);

  Backend backend() const { return backend_; }
  /// What kernel rows may need here: the compute capability of a GPU, such as 90; 0 for the processor.
  int64_t level() const { return level_; }
  /// "NVIDIA H200", or "" for the processor.
  const char* name() const { return name_; }

  /// The machine as far as it decides how fast ranks of this backend reach each other: the processor and its cores, or
  /// all GPUs and what links every two of them.
  std::string DescribeMachine() const;

  /// Host bytes to the device. `from` may change as soon as this returns.
  void Upload(void* to, const void* from, int64_t bytes) const;
  /// Page-locked memory, not filled.  Errors: kCapacity.
  Result<PageLocked> MakePageLocked(int64_t bytes) const;
  /// Upload from such memory: it waits for what was asked for before, and not for this copy. Until it is waited for, by
  /// Wait or the next one, `from` stays as it is.
  void UploadPageLocked(void* to, const void* from, int64_t bytes) const;
  /// Device bytes to the host, which has them when this returns.
  void Download(void* to, const void* from, int64_t bytes) const;
  /// Several of these, for which it waits once if they are short.
  struct Piece {
    void* to;
    const void* from;
    int64_t bytes;
  };
  void Download(std::span<const Piece> pieces) const;
  /// Device bytes to another place on the device.
  void Copy(void* to, const void* from, int64_t bytes) const;
  /// Sets device bytes to zero.
  void Zero(void* at, int64_t bytes) const;
  /// Waits until all that was asked for has happened.
  void Wait() const;
  /// Bytes of a GPU's memory that nobody has.
  int64_t FreeBytes() const;

 private:
  Backend backend_ = Backend::kCpu;
  int64_t level_ = 0;
  char name_[64] = {};
  // Page-locked, for short copies to the host. shared_ptr: a Device is copied to whoever uses it.
  std::shared_ptr<std::byte[]> pinned_;
};

}  // namespace trivet::device
