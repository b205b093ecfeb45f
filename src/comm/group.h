// SPDX-License-Identifier: Apache-2.0
// The shared memory of one group of ranks, threads or processes alike: who has arrived, who still makes progress, what
// went wrong, and the slots through which bytes pass. All ranks of a run are one group, and those that make sums with
// each other are a part of it. This file moves bytes and watches peers; it never sums.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/peer_rules.h"

namespace trivet::comm {

inline constexpr int64_t kMaxGroup = 16;
/// Bytes one rank can hand over at a time; longer messages pass in pieces.
inline constexpr int64_t kSlotBytes = int64_t{4} << 20;

/// Longest piece of a sum through the host: parts and result of a few ranks stay in a core's second-level cache.
inline constexpr int64_t kHostPieceBytes = 262144;

/// What a group is made with.
struct GroupOptions {
  int64_t ranks = 1;
  int64_t hang_timeout_us = 1500000;  // a peer that others wait for and that shows no progress for this long is hung
  bool spin = true;                   // wait actively for a moment first; pointless when ranks outnumber cores
};

/// The group's memory, mapped shared: made before ranks start as threads or are forked as processes.
class Group {
 public:
  /// Errors: kUsage for a rank count outside 1..16, kIo when the memory cannot be mapped.
  static Result<std::unique_ptr<Group>> Make(const GroupOptions& options);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// A part of this group: barriers, slots and rank numbers of its own, in the order of `members`, which are ranks of
  /// this group. What went wrong, progress and reports are those of the whole. To be made before ranks start; it lives
  /// as long as the whole.
  /// Errors:  kIo when the memory cannot be mapped.
  Result<Group*> MakePart(std::vector<int64_t> members);

  int64_t ranks() const { return options_.ranks; }
  /// What the whole group calls `rank` of this one.
  int64_t InWhole(int64_t rank) const { return members_.empty() ? rank : members_[static_cast<size_t>(rank)]; }
  int64_t hang_timeout_us() const { return options_.hang_timeout_us; }

  /// Blocks until every rank has called it as often.
  ///   patient  do not judge peers by their progress: used where a rank may rightly take any time, such as waiting for
  ///            the next step
  /// Errors:  AbortError when the group was aborted; kPeer when a peer died or hung meanwhile.
  Status Barrier(int64_t rank, bool patient = false);

  /// Hands bytes, kSlotBytes at most, from `rank` to `to`, which takes them by Take: two such pieces can be on the way.
  /// Errors:  as Barrier.
  Status Put(int64_t rank, int64_t to, std::span<const std::byte> bytes);
  /// Waits for the next piece of `from` for `rank`, which has as many bytes.  Errors: as Barrier.
  Status Take(int64_t rank, int64_t from, std::span<std::byte> bytes);

  /// Poisons the group, and all of which it is a part: every wait, present or future, returns `cause`. The first cause
  /// stays.
  void Abort(const std::string& cause, Code code = Code::kPeer);
  /// Whether somebody has.
  bool aborted() const;
  /// The cause of an aborted group, with the code it was raised with: a file that one rank finds damaged is that error
  /// on all.
  Error AbortError() const;

  /// The counter that `rank` raises as it works.
  std::atomic<uint32_t>& progress(int64_t rank);
  /// Microseconds that a rank has spent in collectives of its steps, waiting for others included.
  std::atomic<int64_t>& collective_us(int64_t rank);

  /// The bytes `rank` hands over in the calls of one parity, and those of the result both-shot algorithms share.
  std::byte* slot(int64_t rank, int64_t parity);
  std::byte* result(int64_t parity);

  /// What `rank` and kernels of its GPU tell each other, on kSignalBytes of memory of its own; an abort asks them to
  /// stop.
  Signals* signals(int64_t rank);
  static constexpr int64_t kSignalBytes = 4096;  // a page, which is what a GPU can map

  /// A rank's report about the current step, read by others after a barrier.
  void set_report(int64_t rank, uint32_t report);
  uint32_t report(int64_t rank) const;

  /// Looks after the others once: the cause of an abort when one of them has ended.
  std::optional<std::string> Look() const { return whole_->watch_ ? whole_->watch_() : std::nullopt; }
  /// What Look does; also called from waits now and then. For noticing dead processes.
  void set_watch(std::function<std::optional<std::string>()> watch) { watch_ = std::move(watch); }

 private:
  struct Control;
  struct Watch;
  // Whom a wait is for, who must then show progress: one rank, or, where there is none, all that have not come to the
  // barrier; nobody when the wait is patient.
  struct Awaited {
    int64_t peer = -1;
    bool patient = false;
  };
  static int64_t ControlBytes();
  static Result<std::unique_ptr<Group>> Map(const GroupOptions& options, Group* whole, std::vector<int64_t> members);
  Group(const GroupOptions& options, void* memory, int64_t bytes);
  void Stop();
  std::byte* box(int64_t rank, uint32_t piece);
  // Until `word` is not `old` any more.
  Status Wait(int64_t rank, std::atomic<uint32_t>& word, uint32_t old, const Awaited& whom);
  void JudgePeers(int64_t rank, const Awaited& whom, Watch& watch);

  const GroupOptions options_;
  Group* whole_ = this;
  std::vector<int64_t> members_;               // of the whole; none: all
  std::vector<std::unique_ptr<Group>> parts_;  // of this one
  Control* control_ = nullptr;
  std::byte* signals_ = nullptr;
  std::byte* slots_ = nullptr;
  int64_t bytes_ = 0;
  std::function<std::optional<std::string>()> watch_;
};

}  // namespace trivet::comm
