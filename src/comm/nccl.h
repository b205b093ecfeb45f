// SPDX-License-Identifier: Apache-2.0
// Sums over ranks by NCCL, from a library that is opened while the program runs: what others use, to compare with. Its
// sums of integers are ours. Its float sums are not: in which order it adds depends on the size of the message and on
// the links.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "comm/communicator.h"
#include "device/device.h"

namespace trivet::comm {

/// One rank's end.
class Nccl {
 public:
  ///   library  a file, or a name that the loader finds, such as libnccl.so.2
  /// Ranks:     collective; all get it or none.
  /// Errors:    kUnsupported with the reason: no GPUs, no such library, or what NCCL says, such as of ranks that share
  ///            a GPU; kPeer.
  static Result<std::unique_ptr<Nccl>> Make(Communicator* comm, const device::Device& device,
                                            const std::string& library);
  /// Waits for the device.
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  /// Replaces `values`, on the device, by the sum over ranks, in the order of the thread's stream; it can be recorded.
  /// Ranks:   collective.
  /// Errors:  kUnsupported with what NCCL says.
  Status AllReduce(std::span<int64_t> values);
  Status AllReduce(std::span<float> values);

  /// "2.27.3".
  std::string Version() const;

 private:
  struct Library;
  Nccl(std::unique_ptr<Library> library, const device::Device& device);
  Status Sum(void* values, size_t count, int type);

  std::unique_ptr<Library> library_;
  const device::Device device_;
  void* comm_ = nullptr;
};

}  // namespace trivet::comm
