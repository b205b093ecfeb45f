// SPDX-License-Identifier: Apache-2.0
// How other ranks reach memory of a GPU: plain bytes, which travel through shared memory.
#pragma once

#include <cstdint>

namespace trivet::device {

/// Memory of one process on one GPU of the machine.
struct PeerHandle {
  int64_t process = 0;
  int64_t ordinal = 0;  // of the GPU; the same in all processes of a group
  void* address = nullptr;
  unsigned char ipc[64] = {};  // what the driver lets other processes open
};

}  // namespace trivet::device
