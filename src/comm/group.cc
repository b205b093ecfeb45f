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
    std::atomic<uint32_t> arrivals;  // barriers this rank has come to
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
  const int64_t bytes = ControlBytes() + options.ranks * kSignalBytes + (options.ranks + 1) * 2 * kSlotBytes;
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return MakeError(Code::kIo,
                     fmt::format("shared memory of {} ranks: expected {} bytes, found: {}; free memory or use "
                                 "fewer ranks",
                                 options.ranks, bytes, std::strerror(errno)));
  }
  return std::unique_ptr<Group>(new Group(options, memory, bytes));
}

Group::Group(const GroupOptions& options, void* memory, int64_t bytes)
    : options_(options), control_(new (memory) Control{}), bytes_(bytes) {
  signals_ = static_cast<std::byte*>(memory) + ControlBytes();
  slots_ = signals_ + options.ranks * kSignalBytes;
}

Group::~Group() { ::munmap(control_, static_cast<size_t>(bytes_)); }

std::atomic<uint32_t>& Group::progress(int64_t rank) { return control_->ranks[rank].progress; }
std::atomic<int64_t>& Group::collective_us(int64_t rank) { return control_->ranks[rank].collective_us; }
Signals* Group::signals(int64_t rank) { return reinterpret_cast<Signals*>(signals_ + rank * kSignalBytes); }
std::byte* Group::slot(int64_t rank, int64_t parity) { return slots_ + (rank * 2 + parity) * kSlotBytes; }
std::byte* Group::result(int64_t parity) { return slot(options_.ranks, parity); }
void Group::set_report(int64_t rank, uint32_t report) { control_->ranks[rank].report.store(report); }
uint32_t Group::report(int64_t rank) const { return control_->ranks[rank].report.load(); }

void Group::Abort(const std::string& cause, Code code) {
  if (!aborted()) {
    const uint32_t place = control_->causes_taken.fetch_add(1);
    CHECK_MSG(place < kCauses, cause);  // every writer that lives publishes, so few come this far
    control_->codes[place] = code;
    std::strncpy(control_->causes[place], cause.c_str(), kCauseBytes - 1);
    uint32_t none = 0;
    control_->abort_cause.compare_exchange_strong(none, place + 1, std::memory_order_acq_rel);
    for (int64_t rank = 0; rank < options_.ranks; ++rank) std::atomic_ref(signals(rank)->stop).store(1);
  }
  FutexWakeAll(control_->generation);
}

bool Group::aborted() const { return control_->abort_cause.load(std::memory_order_acquire) > 0; }

Error Group::AbortError() const {
  const uint32_t place = control_->abort_cause.load(std::memory_order_acquire);
  CHECK(place > 0);
  return MakeError(control_->codes[place - 1], control_->causes[place - 1]);
}

Status Group::Barrier(int64_t rank, bool patient) {
  if (aborted()) return AbortError();
  const uint32_t generation = control_->generation.load(std::memory_order_acquire);
  control_->ranks[rank].arrivals.fetch_add(1, std::memory_order_relaxed);
  control_->ranks[rank].progress.fetch_add(1, std::memory_order_relaxed);
  if (control_->waiting.fetch_add(1, std::memory_order_acq_rel) + 1 == options_.ranks) {
    control_->waiting.store(0, std::memory_order_relaxed);
    control_->generation.store(generation + 1, std::memory_order_release);
    if (options_.ranks > 1) FutexWakeAll(control_->generation);
    return {};
  }
  return Wait(rank, generation, patient);
}

Status Group::Wait(int64_t rank, uint32_t generation, bool patient) {
  if (options_.spin) {
    const int64_t until = NowUs() + kSpinUs;
    do {
      for (int i = 0; i < 64; ++i) {
        if (control_->generation.load(std::memory_order_acquire) != generation) return {};
        SpinPause();
      }
    } while (NowUs() < until);
  }
  Watch watch;
  while (control_->generation.load(std::memory_order_acquire) == generation) {
    if (aborted()) return AbortError();
    FutexWait(control_->generation, generation, kSliceUs);
    if (control_->generation.load(std::memory_order_acquire) != generation) break;
    if (const std::optional<std::string> cause = Look()) Abort(*cause);
    if (!patient) JudgePeers(rank, watch);
  }
  return {};
}

void Group::JudgePeers(int64_t rank, Watch& watch) {
  const int64_t now = NowUs();
  // While this rank is stopped (Ctrl-Z, a paused machine) the others may be too: such time says nothing about them.
  const int64_t watched_us = std::min(now - watch.looked_us, kGapUs);
  watch.looked_us = now;
  const uint32_t mine = control_->ranks[rank].arrivals.load(std::memory_order_relaxed);
  for (int64_t peer = 0; peer < options_.ranks; ++peer) {
    const auto& state = control_->ranks[peer];
    const uint32_t seen = state.progress.load(std::memory_order_relaxed);
    const bool arrived = state.arrivals.load(std::memory_order_relaxed) == mine;
    if (arrived || seen != watch.progress[peer]) {
      watch.progress[peer] = seen;
      watch.idle_us[peer] = 0;
    } else if ((watch.idle_us[peer] += watched_us) > options_.hang_timeout_us) {
      Abort(fmt::format("rank {}: expected progress within {:.1f} s, found none; it hangs, restart the run", peer,
                        static_cast<double>(options_.hang_timeout_us) * 1e-6));
      return;
    }
  }
}

}  // namespace trivet::comm
