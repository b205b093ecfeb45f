// SPDX-License-Identifier: Apache-2.0
// The rules by which ranks exchange through memory of their GPUs: where a call's bytes stand, and when they may be
// written over. Kernels and the tests that walk all interleavings take them from here.
//
// Calls of a group are numbered alike on all ranks. A call uses the half of the memory that its number's parity names,
// and in every call every rank waits until each other one has begun it. So whoever has ended call k + 1 knows that all
// have ended call k, and may write the half of call k + 2. That holds for calls of any size and any number of blocks,
// as long as the number belongs to the call: a number that a block keeps for itself is behind after a call without it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace trivet::comm {

inline constexpr int64_t kMaxPeers = 16;   // as many as a group has
inline constexpr int64_t kMaxBlocks = 64;  // of one call
/// Words of 8 bytes in the longest one-shot call.
inline constexpr int64_t kPacketWords = int64_t{1} << 17;
/// The longest two-shot call, and the most that a gather brings at a time.  Units: bytes.
inline constexpr int64_t kPeerPieceBytes = int64_t{8} << 20;

/// The number of the call after `epoch`. Never 0, which is what fresh memory holds; parities always alternate.
constexpr uint32_t NextEpoch(uint32_t epoch) { return epoch == UINT32_MAX ? 2 : epoch + 1; }
/// The half of the memory that a call uses.
constexpr int64_t HalfOf(uint32_t epoch) { return epoch & 1; }

/// Items [begin, end).
struct Share {
  int64_t begin = 0, end = 0;
};
/// Part `i` of `count` items that are cut into `parts` nearly equal ones.
constexpr Share ShareOf(int64_t count, int64_t parts, int64_t i) {
  return {count * i / parts, count * (i + 1) / parts};
}

/// Where the ranks' shares of a sum begin, in items; behind the last one, where it ends.
struct Shares {
  uint32_t begin[kMaxPeers + 1] = {};
};

/// How a two-shot sum is shared out: a rank adds the part of all items that its weight is of all weights, which may be
/// none.
class Weights {
 public:
  static constexpr int64_t kMost = 1000;  // one rank's

  static constexpr Weights Equal(int64_t ranks) {
    Weights equal;
    for (equal.ranks_ = 0; equal.ranks_ < ranks; ++equal.ranks_) equal.before_[equal.ranks_ + 1] = equal.ranks_ + 1;
    return equal;
  }
  /// One for each rank, 0 to kMost; not all 0.
  static constexpr Weights Of(std::span<const int64_t> weights) {
    Weights made;
    for (const int64_t weight : weights) {
      made.before_[made.ranks_ + 1] = made.before_[made.ranks_] + weight;
      ++made.ranks_;
    }
    return made;
  }

  constexpr int64_t ranks() const { return ranks_; }
  constexpr int64_t weight(int64_t rank) const { return before_[rank + 1] - before_[rank]; }
  std::vector<int64_t> All() const {
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < ranks_; ++rank) all.push_back(weight(rank));
    return all;
  }
  constexpr Share ShareOf(int64_t items, int64_t rank) const {
    return {items * before_[rank] / before_[ranks_], items * before_[rank + 1] / before_[ranks_]};
  }
  /// All shares of so many items, fewer than 2^32.
  constexpr Shares SharesOf(int64_t items) const {
    Shares shares;
    for (int64_t rank = 0; rank <= ranks_; ++rank) {
      shares.begin[rank] = static_cast<uint32_t>(items * before_[rank] / before_[ranks_]);
    }
    return shares;
  }
  /// The largest share of so many items, or one more.
  constexpr int64_t Largest(int64_t items) const { return items * Heaviest() / before_[ranks_] + 1; }
  /// How many items no share of which is larger than `most`.
  constexpr int64_t ItemsWithin(int64_t most) const { return (most * before_[ranks_] - 1) / Heaviest(); }
  bool operator==(const Weights&) const = default;

 private:
  constexpr int64_t Heaviest() const {
    int64_t heaviest = 1;
    for (int64_t rank = 0; rank < ranks_; ++rank) heaviest = std::max(heaviest, weight(rank));
    return heaviest;
  }

  int64_t ranks_ = 0;
  int64_t before_[kMaxPeers + 1] = {};  // weights of all lower ranks
};

/// A weighted sum goes in chunks, so that the parts of one move while the totals of the one before do: a slow link has
/// little else to do in its second half. Shares of equal links fill both ways by themselves, and go at once.
inline constexpr int64_t kMaxChunks = 16;
inline constexpr int64_t kChunkBytes = 512 << 10;
/// Chunks of a weighted sum of so many bytes.
constexpr int64_t ChunksFor(int64_t bytes) { return std::clamp<int64_t>(bytes / kChunkBytes, 1, kMaxChunks); }

/// Every block keeps the number of the last call, so that none has to wait for another before it knows its own. Block
/// `block` of a call with `blocks` moves on the counters block, block + blocks, ... below kMaxBlocks: those of blocks
/// that the call does not have, too.
constexpr int64_t NextCounter(int64_t counter, int64_t blocks) { return counter + blocks; }

/// Two waits that a call may contain, each with flags of its own for every chunk.
enum Phase : int64_t { kBegun, kDone, kPhases };

/// Whether a flag that shows `flag` has come to call `epoch`. Whoever only gives may already have begun the next call,
/// in which it has to wait. "At least" would be wrong: a flag that was last set 2^31 calls ago must not count.
constexpr bool HasCome(uint32_t flag, uint32_t epoch) { return flag == epoch || flag == NextEpoch(epoch); }

/// Where things stand in a rank's memory, as offsets in bytes. They do not depend on the size of a call.
struct PeerLayout {
  int64_t ranks = 0;

  static constexpr int64_t kPacketBytes = 16;
  static constexpr int64_t kUnitBytes = 16;  // what a thread moves at a time
  static constexpr int64_t kLine = 256;
  static constexpr int64_t Rounded(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

  /// What only the rank itself reads: a counter of calls for every block, then whether a wait was given up.
  static constexpr int64_t Counter(int64_t block) { return block * 4; }
  static constexpr int64_t kGivenUp = kMaxBlocks * 4;
  /// A word for measuring, written by rank `from`.
  static constexpr int64_t Ping(int64_t from) { return 2 * kLine + from * kLine; }
  /// The flag that rank `from` sets for block `block` when it has come to `phase` of a chunk: the number of the call.
  static constexpr int64_t Flag(Phase phase, int64_t chunk, int64_t block, int64_t from) {
    return Ping(kMaxPeers) + (((phase * kMaxChunks + chunk) * kMaxBlocks + block) * kMaxPeers + from) * 4;
  }
  static constexpr int64_t kPackets = (2 + kMaxPeers) * kLine + kPhases * kMaxChunks * kMaxBlocks * kMaxPeers * 4;
  /// Packets of one-shot calls from rank `from`. Nothing else is ever written there: they carry their own flags.
  constexpr int64_t Packets(int64_t half, int64_t from) const {
    return kPackets + (half * ranks + from) * kPacketWords * kPacketBytes;
  }
  /// Two-shot calls: rank `from`'s part of this rank's share.
  constexpr int64_t Part(int64_t half, int64_t from) const {
    return Packets(2, 0) + half * HalfBytes() + from * PartBytes();
  }
  /// Two-shot calls: the sum.
  constexpr int64_t Total(int64_t half) const { return Part(half, ranks); }
  /// What a gather brings. It has no halves: nobody writes before rank 0 has begun the call, after all that read the
  /// one before.
  constexpr int64_t Matrix() const { return Part(2, 0); }
  constexpr int64_t Bytes() const { return Matrix() + kPeerPieceBytes; }
  /// Units of 16 bytes that a part has room for.
  constexpr int64_t PartUnits() const { return kPeerPieceBytes / ranks / kUnitBytes + 1; }
  /// Units of the longest two-shot call with these weights: every rank's share has to fit where its parts stand.
  constexpr int64_t TwoShotUnits(const Weights& weights) const {
    return std::min(kPeerPieceBytes / kUnitBytes, weights.ItemsWithin(PartUnits()));
  }

 private:
  constexpr int64_t PartBytes() const { return Rounded(PartUnits() * kUnitBytes); }
  constexpr int64_t HalfBytes() const { return ranks * PartBytes() + kPeerPieceBytes; }
};

/// What the host and the kernels of a rank tell each other, in memory of the host.
struct Signals {
  uint32_t stop;     // the host: leave, nobody needs the result
  uint32_t missing;  // a kernel: 1 + the rank that it gave up waiting for
};

/// Blocks of a call over `items` when `ranks_on_device` ranks share a GPU of `processors` multiprocessors. All blocks
/// that may wait at the same time fill at most half of them, so that whatever they wait for finds room to run.
constexpr int64_t BlocksFor(int64_t items, int64_t items_a_block, int64_t processors, int64_t ranks_on_device) {
  const int64_t most = processors / 2 / ranks_on_device;
  const int64_t wanted = (items + items_a_block - 1) / items_a_block;
  const int64_t blocks = wanted < most ? wanted : most;
  return blocks < 1 ? 1 : blocks > kMaxBlocks ? kMaxBlocks : blocks;
}

/// Messages up to this size go as packets, which need one way instead of two there and back but twice the bytes, and
/// all of them to every peer: with one peer those are no more than two-shot calls send in their two ways. Where the two
/// forms cross: docs/measurements/cuda-collectives.md.
constexpr int64_t OneShotBytes(int64_t ranks) {
  constexpr struct { int64_t ranks, bytes; } kTable[] = {{2, 1 << 20}, {3, 512 << 10}, {5, 256 << 10}, {8, 128 << 10}};
  for (const auto& row : kTable) {
    if (ranks <= row.ranks) return row.bytes;
  }
  return 64 << 10;
}

}  // namespace trivet::comm
