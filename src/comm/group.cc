// SPDX-License-Identifier: Apache-2.0
#include "comm/group.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/futex.h"

namespace trivet::comm {
namespace {

constexpr int64_t kSliceUs = 20000;  // how often a sleeping rank looks up: well below the two seconds promised
constexpr int64_t kGapUs = 100000;   // between two looks; more means that this rank was stopped
constexpr int64_t kSpinUs = 30;      // longer than a small collective between running peers takes
constexpr size_t kCauseBytes = 1024;
constexpr uint32_t kCauses = 4 * kMaxGroup;

}  // namespace

// Everything ranks share besides the slots. Zero-initialised memory is its initial state.
struct Group::Control {
  struct alignas(64) PerRank {
    std::atomic<uint32_t> arrivals;   // barriers this rank has come to
    std::atomic<uint32_t> put;        // pieces it has handed over
    std::atomic<uint32_t> taken;      // and those that have been taken
    std::atomic<int64_t> put_for[2];  // who is to take the one in each box
    std::atomic<uint32_t> progress;
    std::atomic<int64_t> collective_us;
    std::atomic<uint32_t> report;
  };
  alignas(64) std::atomic<uint32_t> generation;  // barriers completed
  alignas(64) std::atomic<uint32_t> waiting;     // ranks that have come to the current one
  std::atomic<uint32_t> causes_taken;            // places in `causes` given out
  std::atomic<uint32_t> abort_cause;             // place of the cause that stays, from 1; 0: not aborted
  Code codes[kCauses];
  char causes[kCauses][kCauseBytes];  // one place a writer, so that one who dies writing blocks nobody
  PerRank ranks[kMaxGroup];
};

// What a waiting rank has seen of its peers.
struct Group::Watch {
  int64_t looked_us = NowUs();
  uint32_t progress[kMaxGroup] = {};
  int64_t idle_us[kMaxGroup] = {};  // time watched without progress
};

// Whole pages, so that signals begin on one.
int64_t Group::ControlBytes() {
  return (static_cast<int64_t>(sizeof(Control)) + kSignalBytes - 1) / kSignalBytes * kSignalBytes;
}

Result<std::unique_ptr<Group>> Group::Make(const GroupOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxGroup) {
    return MakeError(Code::kUsage, fmt::format("--ranks: expected 1 to {}, found {}; choose a count in that range",
                                               kMaxGroup, options.ranks));
  }
  return Map(options, nullptr, {});
}

Result<Group*> Group::MakePart(std::vector<int64_t> members) {
  GroupOptions options = options_;
  options.ranks = static_cast<int64_t>(members.size());
  TRY_ASSIGN(std::unique_ptr<Group> part, Map(options, this, std::move(members)));
  parts_.push_back(std::move(part));
  return parts_.back().get();
}

Result<std::unique_ptr<Group>> Group::Map(const GroupOptions& options, Group* whole, std::vector<int64_t> members) {
  // A slot and a box of two parities for every rank, and a result; pages are taken when they are first written.
  const int64_t bytes = ControlBytes() + options.ranks * kSignalBytes + (2 * options.ranks + 1) * 2 * kSlotBytes;
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return MakeError(Code::kIo,
                     fmt::format("shared memory of {} ranks: expected {} bytes, found: {}; free memory or use "
                                 "fewer ranks",
                                 options.ranks, bytes, std::strerror(errno)));
  }
  std::unique_ptr<Group> group(new Group(options, memory, bytes));
  if (whole != nullptr) group->whole_ = whole;
  group->members_ = std::move(members);
  return group;
}

Group::Group(const GroupOptions& options, void* memory, int64_t bytes)
    : options_(options), control_(new (memory) Control{}), bytes_(bytes) {
  signals_ = static_cast<std::byte*>(memory) + ControlBytes();
  slots_ = signals_ + options.ranks * kSignalBytes;
}

Group::~Group() { ::munmap(control_, static_cast<size_t>(bytes_)); }

std::atomic<uint32_t>& Group::progress(int64_t rank) { return whole_->control_->ranks[InWhole(rank)].progress; }
std::atomic<int64_t>& Group::collective_us(int64_t rank) {
  return whole_->control_->ranks[InWhole(rank)].collective_us;
}
Signals* Group::signals(int64_t rank) { return reinterpret_cast<Signals*>(signals_ + rank * kSignalBytes); }
std::byte* Group::slot(int64_t rank, int64_t parity) { return slots_ + (rank * 2 + parity) * kSlotBytes; }
std::byte* Group::result(int64_t parity) { return slot(options_.ranks, parity); }
std::byte* Group::box(int64_t rank, uint32_t piece) { return slot(options_.ranks + 1 + rank, piece & 1); }
void Group::set_report(int64_t rank, uint32_t report) { whole_->control_->ranks[InWhole(rank)].report.store(report); }
uint32_t Group::report(int64_t rank) const { return whole_->control_->ranks[InWhole(rank)].report.load(); }

void Group::Abort(const std::string& cause, Code code) {
  if (whole_ != this) return whole_->Abort(cause, code);
  if (!aborted()) {
    const uint32_t place = control_->causes_taken.fetch_add(1);
    CHECK_MSG(place < kCauses, cause);  // every writer that lives publishes, so few come this far
    control_->codes[place] = code;
    std::strncpy(control_->causes[place], cause.c_str(), kCauseBytes - 1);
    uint32_t none = 0;
    control_->abort_cause.compare_exchange_strong(none, place + 1, std::memory_order_acq_rel);
  }
  Stop();
  for (const std::unique_ptr<Group>& part : parts_) part->Stop();
}

// Who waits for a barrier or on a GPU is told; other waits look up by themselves.
void Group::Stop() {
  for (int64_t rank = 0; rank < options_.ranks; ++rank) std::atomic_ref(signals(rank)->stop).store(1);
  FutexWakeAll(control_->generation);
}

bool Group::aborted() const { return whole_->control_->abort_cause.load(std::memory_order_acquire) > 0; }

Error Group::AbortError() const {
  const Control& control = *whole_->control_;
  const uint32_t place = control.abort_cause.load(std::memory_order_acquire);
  CHECK(place > 0);
  return MakeError(control.codes[place - 1], control.causes[place - 1]);
}

Status Group::Barrier(int64_t rank, bool patient) {
  if (aborted()) return AbortError();
  const uint32_t generation = control_->generation.load(std::memory_order_acquire);
  control_->ranks[rank].arrivals.fetch_add(1, std::memory_order_relaxed);
  progress(rank).fetch_add(1, std::memory_order_relaxed);
  if (control_->waiting.fetch_add(1, std::memory_order_acq_rel) + 1 == options_.ranks) {
    control_->waiting.store(0, std::memory_order_relaxed);
    control_->generation.store(generation + 1, std::memory_order_release);
    if (options_.ranks > 1) FutexWakeAll(control_->generation);
    return {};
  }
  return Wait(rank, control_->generation, generation, {-1, patient});
}

Status Group::Put(int64_t rank, int64_t to, std::span<const std::byte> bytes) {
  if (aborted()) return AbortError();
  CHECK(static_cast<int64_t>(bytes.size()) <= kSlotBytes);
  Control::PerRank& own = control_->ranks[rank];
  const uint32_t piece = own.put.load(std::memory_order_relaxed);
  while (true) {
    const uint32_t taken = own.taken.load(std::memory_order_acquire);
    if (piece - taken < 2) break;
    TRY(Wait(rank, own.taken, taken, {own.put_for[taken & 1].load(std::memory_order_relaxed), false}));
  }
  std::copy(bytes.begin(), bytes.end(), box(rank, piece));
  own.put_for[piece & 1].store(to, std::memory_order_relaxed);
  own.put.store(piece + 1, std::memory_order_release);
  progress(rank).fetch_add(1, std::memory_order_relaxed);
  FutexWakeAll(own.put);
  return {};
}

Status Group::Take(int64_t rank, int64_t from, std::span<std::byte> bytes) {
  if (aborted()) return AbortError();
  Control::PerRank& peer = control_->ranks[from];
  uint32_t piece = 0;
  while (true) {
    piece = peer.taken.load(std::memory_order_acquire);
    const uint32_t put = peer.put.load(std::memory_order_acquire);
    if (put == piece) {
      TRY(Wait(rank, peer.put, put, {from, false}));
      continue;
    }
    const int64_t whose = peer.put_for[piece & 1].load(std::memory_order_relaxed);
    // A box is filled anew only after its piece was taken, so that `whose` is of this piece if it still is the next.
    if (peer.taken.load(std::memory_order_acquire) != piece) continue;
    if (whose == rank) break;
    TRY(Wait(rank, peer.taken, piece, {whose, false}));
  }
  std::copy_n(box(from, piece), bytes.size(), bytes.begin());
  peer.taken.store(piece + 1, std::memory_order_release);
  progress(rank).fetch_add(1, std::memory_order_relaxed);
  FutexWakeAll(peer.taken);
  return {};
}

Status Group::Wait(int64_t rank, std::atomic<uint32_t>& word, uint32_t old, const Awaited& whom) {
  if (options_.spin) {
    const int64_t until = NowUs() + kSpinUs;
    do {
      for (int i = 0; i < 64; ++i) {
        if (word.load(std::memory_order_acquire) != old) return {};
        SpinPause();
      }
    } while (NowUs() < until);
  }
  Watch watch;
  while (word.load(std::memory_order_acquire) == old) {
    if (aborted()) return AbortError();
    FutexWait(word, old, kSliceUs);
    if (word.load(std::memory_order_acquire) != old) break;
    // Whoever waits for this rank elsewhere must not take it for hung: it is not, whoever it waits for is.
    progress(rank).fetch_add(1, std::memory_order_relaxed);
    if (const std::optional<std::string> cause = Look()) Abort(*cause);
    if (!whom.patient) JudgePeers(rank, whom, watch);
  }
  return {};
}

void Group::JudgePeers(int64_t rank, const Awaited& whom, Watch& watch) {
  const int64_t now = NowUs();
  // While this rank is stopped (Ctrl-Z, a paused machine) the others may be too: such time says nothing about them.
  const int64_t watched_us = std::min(now - watch.looked_us, kGapUs);
  watch.looked_us = now;
  const uint32_t mine = control_->ranks[rank].arrivals.load(std::memory_order_relaxed);
  for (int64_t peer = 0; peer < options_.ranks; ++peer) {
    const uint32_t seen = progress(peer).load(std::memory_order_relaxed);
    const bool arrived = control_->ranks[peer].arrivals.load(std::memory_order_relaxed) == mine;
    const bool judged = whom.peer < 0 ? !arrived : peer == whom.peer;
    if (!judged || seen != watch.progress[peer]) {
      watch.progress[peer] = seen;
      watch.idle_us[peer] = 0;
    } else if ((watch.idle_us[peer] += watched_us) > options_.hang_timeout_us) {
      Abort(fmt::format("rank {}: expected progress within {:.1f} s, found none; it hangs, restart the run",
                        InWhole(peer), static_cast<double>(options_.hang_timeout_us) * 1e-6));
      return;
    }
  }
}

}  // namespace trivet::comm
