// SPDX-License-Identifier: Apache-2.0
// The shared memory of one group of ranks, threads or processes alike: who has arrived, who still makes progress, what
// went wrong, and the slots through which bytes pass. This file moves bytes and watches peers; it never sums.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "comm/peer_rules.h"

namespace trivet::comm {

inline constexpr int64_t kMaxGroup = 16;
/// Bytes one rank can hand over at a time; longer messages pass in pieces.
inline constexpr int64_t kSlotBytes = int64_t{4} << 20;

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

  int64_t ranks() const { return options_.ranks; }
  int64_t hang_timeout_us() const { return options_.hang_timeout_us; }

  /// Blocks until every rank has called it as often.
  ///   patient  do not judge peers by their progress: used where a rank may rightly take any time, such as waiting for
  ///            the next step
  /// Errors:  AbortError when the group was aborted; kPeer when a peer died or hung meanwhile.
  Status Barrier(int64_t rank, bool patient = false);

  /// Poisons the group: every wait, present or future, returns `cause`. The first cause stays.
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
  std::optional<std::string> Look() const { return watch_ ? watch_() : std::nullopt; }
  /// What Look does; also called from waits now and then. For noticing dead processes.
  void set_watch(std::function<std::optional<std::string>()> watch) { watch_ = std::move(watch); }

 private:
  struct Control;
  struct Watch;
  static int64_t ControlBytes();
  Group(const GroupOptions& options, void* memory, int64_t bytes);
  Status Wait(int64_t rank, uint32_t generation, bool patient);
  void JudgePeers(int64_t rank, Watch& watch);

  const GroupOptions options_;
  Control* control_ = nullptr;
  std::byte* signals_ = nullptr;
  std::byte* slots_ = nullptr;
  int64_t bytes_ = 0;
  std::function<std::optional<std::string>()> watch_;
};

}  // namespace trivet::comm
