// SPDX-License-Identifier: Apache-2.0
// The kernels behind peer_transport.h, in terms that a build without CUDA has too: peer_cuda.cu and no_cuda.cc define
// them. All go into the calling thread's default stream; none of them waits for the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/peer_rules.h"
#include "kernels/norm.h"

namespace trivet::comm::cuda {

/// A rank's view of the group.
struct Peers {
  std::byte* memory[kMaxPeers] = {};  // of each rank, in PeerLayout
  Signals* signals = nullptr;         // this rank's, in memory of the host
  PeerLayout layout;
  int64_t rank = 0;
  int64_t limit_ns = 0;  // the longest wait
};

/// Multiprocessors of the thread's device.
int64_t Processors();

/// values = their sum over ranks, by packets; at most kPacketWords * 8 bytes.
template <class T>
void OneShot(const Peers& peers, int64_t blocks, T* values, int64_t count);
/// The same by shares of whole units of 16 bytes, at most PeerLayout::TwoShotUnits, in so many chunks.
template <class T>
void TwoShot(const Peers& peers, int64_t blocks, T* values, const Shares& shares, int64_t chunks);

/// Of a sum that goes into a norm: blocks that share a row, which are a cluster, and the longest row.
inline constexpr int64_t kNormBlocks = 8, kNormLongest = 16384;
/// Adds args.sums_fixed up over ranks by packets, as Communicator::AllReduceAddNorm says, then does what AddNorm does,
/// for rows [0, args.end): kNormBlocks blocks a row, at most kPacketWords * 8 bytes of sums, rows of whole words. Needs
/// compute capability 9.0.
void SumAddNorm(const Peers& peers, const kernels::AddNorm::Args& args);

/// values = their sum over ranks, each part as wht6.h has it; whole groups, whose packed bytes are at most
/// kPeerPieceBytes over ranks.
void CompressedSum(const Peers& peers, int64_t blocks, float* values, int64_t count);

/// What one rank adds to a matrix.
struct Columns {
  const float* from = nullptr;  // [rows, stride]
  int64_t stride = 0;
  int64_t columns = 0;
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t full_columns = 0;
};
/// Brings all ranks' columns into rank 0's Matrix; at most kPeerPieceBytes.
void Gather(const Peers& peers, int64_t blocks, const Columns& columns);

/// For measuring: the words `first`, `first` + 1, ... back and forth between this rank and `peer`; the lower rank
/// begins.
void PingPong(const Peers& peers, int64_t peer, uint32_t first, uint32_t rounds);
/// Writes kPeerPieceBytes into the memory of `peer`, or reads as much from there.
void Push(const Peers& peers, int64_t peer);
void Pull(const Peers& peers, int64_t peer);
/// Writes kPeerPieceBytes into the memory of every other rank, all at the same time.
void PushAll(const Peers& peers);

}  // namespace trivet::comm::cuda
