// SPDX-License-Identifier: Apache-2.0
// Collectives of ranks on GPUs without the host: kernels write into each other's memory and wait for each other there,
// so that they can be part of recorded graphs. peer_rules.h says by which rules.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "comm/group.h"
#include "comm/peer_cuda.h"
#include "comm/transport.h"
#include "device/device.h"
#include "device/peer_memory.h"

namespace trivet::comm {

/// One rank's end.
class PeerTransport {
 public:
  /// Makes the rank's memory and finds that of the others.
  ///   shared   use it even where ranks of one GPU are processes, which take turns and so wait long for each other
  /// Ranks:     collective; all get a transport or none.
  /// Errors:    kUnsupported with the first rank's reason; those of the group.
  static Result<std::unique_ptr<PeerTransport>> Make(Group* group, int64_t rank, const device::Device& device,
                                                     bool shared);
  /// Without Close before, the memory stays until the process ends: others may still write to it.
  ~PeerTransport();
  PeerTransport(const PeerTransport&) = delete;
  PeerTransport& operator=(const PeerTransport&) = delete;

  /// As Communicator's, on memory of the device, aligned to 16 bytes. They return before it has happened, and can be
  /// recorded.
  void AllReduce(std::span<int64_t> values, const Forms& forms) { Reduce(values, forms); }
  void AllReduce(std::span<float> values, const Forms& forms) { Reduce(values, forms); }
  void AllReduce(std::span<uint32_t> values, const Forms& forms) { Reduce(values, forms); }

  /// The same of float32, compressed (comm/wht6.h): whole groups.
  void CompressedSum(std::span<float> values);

  /// Whether SumAddNorm serves `rows` rows of n parts of `part_bytes`, as all GPUs of the group are.
  bool ServesNorm(int64_t rows, int64_t n, int64_t part_bytes) const;
  /// A sum over ranks and AddNorm in one kernel, with the bytes of both (comm/peer_cuda.h). It can be recorded.
  void SumAddNorm(const kernels::AddNorm::Args& args) { cuda::SumAddNorm(peers_, args); }

  /// Brings the columns of all ranks to rank 0, where the matrix is valid until the next call; kPeerPieceBytes at most.
  /// Returns the matrix's address on rank 0, null on others. Not to be recorded.
  const float* Gather(const cuda::Columns& columns);

  /// After the device was waited for: whether all was exchanged.
  /// Errors:  the group's cause; kPeer names the rank that did not come.
  Status Check();

  /// Ends it in order.  Ranks: collective.  Errors: those of the group.
  Status Close();

  /// For measurements of links.
  const cuda::Peers& peers() const { return peers_; }

  /// Memory that a rank needs for it.  Units: bytes.
  static int64_t Bytes(int64_t ranks) { return ranks > 1 ? PeerLayout{ranks}.Bytes() : 0; }

 private:
  PeerTransport(Group* group, int64_t rank, const device::Device& device)
      : group_(group), rank_(rank), device_(device) {}
  struct Offer;
  Offer& offer(int64_t rank) const;
  // Allocates, and tells the others.
  Status MakeOwn();
  // Finds the others' memory.
  Status OpenAll();
  // Why ranks that are processes had better not wait for each other on one GPU.
  Status JudgeSharing() const;
  // Whether known numbers come out right.
  Status Probe();
  // All ranks' first failure, whatever this rank's own status is.
  Status Agree(const Status& own);
  template <class T>
  void Reduce(std::span<T> values, const Forms& forms);

  Group* group_;
  const int64_t rank_;
  const device::Device device_;
  device::PeerMemory memory_;
  device::HostPages page_;  // of the signals
  cuda::Peers peers_;
  bool shown_ = false;           // others may have opened the memory
  int64_t processors_ = 0;       // of the smallest GPU
  int64_t level_ = 0;            // of the oldest GPU
  int64_t ranks_on_device_ = 1;  // on the fullest GPU
};

}  // namespace trivet::comm
