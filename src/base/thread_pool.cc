// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/futex.h"

namespace trivet {
namespace {

constexpr int64_t kLeastShared = 4;  // ranges of a call that wakes nobody

// Spins until over() or the time has passed; whether it was over.
template <class Over>
bool Spin(int64_t spin_us, const Over& over) {
  if (over()) return true;
  const int64_t until = NowUs() + spin_us;
  while (NowUs() < until) {
    for (int i = 0; i < 32; ++i) {
      if (over()) return true;
      SpinPause();
    }
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads, int64_t spin_us) : spin_us_(spin_us) {
  CHECK(threads >= 1);
  static_assert(std::atomic<Ticket>::is_always_lock_free);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Worker(); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  calls_.fetch_add(1);
  FutexWakeAll(calls_);
  for (std::thread& worker : workers_) worker.join();
}

// The range of the current call that was taken as the last of `left`.
void ThreadPool::RunRange(uint32_t left) {
  const int64_t begin = (ranges_ - left) * grain_;
  (*body_)(begin, std::min(begin + grain_, count_));
  if (tick_ != nullptr) tick_->fetch_add(1, std::memory_order_relaxed);
  if (undone_.fetch_sub(1) == 1 && caller_sleeps_.load()) FutexWakeAll(undone_);
}

// Takes ranges of the current call until none is left; whether there was one. `seen` becomes the call's number.
bool ThreadPool::WorkOn(uint32_t* seen) {
  bool worked = false;
  Ticket ticket = ticket_.load(std::memory_order_acquire);
  while (ticket.left > 0) {
    // The call's number is a part of what is compared: a range of a later call is never taken for one of this.
    if (!ticket_.compare_exchange_weak(ticket, {ticket.call, ticket.left - 1}, std::memory_order_acq_rel)) continue;
    RunRange(ticket.left);
    worked = true;
    ticket = ticket_.load(std::memory_order_acquire);
  }
  *seen = ticket.call;
  return worked;
}

void ThreadPool::Worker() {
  uint32_t seen = 0;
  while (!stop_.load()) {
    WorkOn(&seen);
    const auto called = [this, &seen] { return ticket_.load().call != seen || stop_.load(); };
    if (Spin(spin_us_, called)) continue;
    const uint32_t calls = calls_.load();
    sleepers_.fetch_add(1);
    // A caller raises calls_, then looks for sleepers; a worker counts as one, then looks for a call.
    if (!called()) FutexWait(calls_, calls, 1000000);
    sleepers_.fetch_sub(1);
  }
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body,
                             std::atomic<uint32_t>* tick, Help help) {
  CHECK(grain >= 1);
  if (count <= 0) return;
  const int64_t ranges = (count - 1) / grain + 1;
  // A short call of few ranges is the caller's alone: where others use the machine too, a worker that loses its core in
  // the middle of a range holds the call up for far longer than it saves.
  const bool few = ranges < (help == Help::kAwake ? kLeastShared : 2);
  if (workers_.empty() || few) {
    for (int64_t begin = 0; begin < count; begin += grain) {
      body(begin, std::min(begin + grain, count));
      if (tick != nullptr) tick->fetch_add(1, std::memory_order_relaxed);
    }
    return;
  }
  CHECK(ranges <= UINT32_MAX);
  body_ = &body;
  count_ = count;
  grain_ = grain;
  ranges_ = static_cast<uint32_t>(ranges);
  tick_ = tick;
  undone_.store(ranges_, std::memory_order_relaxed);
  const uint32_t call = calls_.fetch_add(1) + 1;
  ticket_.store({call, ranges_});
  if (help == Help::kAll && sleepers_.load() > 0) FutexWakeAll(calls_);
  uint32_t seen = 0;
  WorkOn(&seen);
  if (Spin(spin_us_, [this] { return undone_.load(std::memory_order_acquire) == 0; })) return;
  caller_sleeps_.store(true);
  while (const uint32_t undone = undone_.load()) FutexWait(undone_, undone, 1000000);
  caller_sleeps_.store(false);
}

}  // namespace trivet
