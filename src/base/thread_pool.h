// SPDX-License-Identifier: Apache-2.0
// The threads of one rank. Work is split into ranges; how it is split never changes a result.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace trivet {

/// A fixed set of threads, the caller being one of them. One call at a time.
class ThreadPool {
 public:
  /// `threads` >= 1, the caller included. After a call, workers spin for `spin_us` microseconds for the next before
  /// they sleep.
  explicit ThreadPool(int threads, int64_t spin_us = 50);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Who takes part in a call besides the caller.
  enum class Help {
    kAll,    // every worker: those that sleep are woken
    kAwake,  // those that spin, of calls of some ranges: where the rest would come when all is over
  };

  /// Calls body(begin, end) on disjoint ranges of at most `grain` items that cover [0, count). Returns when all are
  /// done; a worker that comes too late for a range holds up nobody.
  ///   tick  incremented after every range when given: a sign of life for whoever watches this rank
  void ParallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body,
                   std::atomic<uint32_t>* tick = nullptr, Help help = Help::kAll);

 private:
  // The number of a call, and how many of its ranges nobody has taken.
  struct Ticket {
    uint32_t call, left;
  };

  void Worker();
  bool WorkOn(uint32_t* seen);
  void RunRange(uint32_t left);

  std::vector<std::thread> workers_;
  const int64_t spin_us_;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> calls_{0};     // raised once a call; workers sleep on it
  std::atomic<uint32_t> sleepers_{0};  // workers that sleep, or are about to
  // The current call, written before ticket_. Who takes a range of it may read it: it does not end before the range.
  const std::function<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t count_ = 0, grain_ = 1;
  uint32_t ranges_ = 0;
  std::atomic<uint32_t>* tick_ = nullptr;
  alignas(64) std::atomic<Ticket> ticket_{Ticket{0, 0}};
  alignas(64) std::atomic<uint32_t> undone_{0};  // ranges of the current call that are not done
  std::atomic<bool> caller_sleeps_{false};
};

}  // namespace trivet
