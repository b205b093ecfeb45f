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

  /// Calls body(begin, end) on disjoint ranges of at most `grain` items that cover [0, count). Returns when all are
  /// done.
  ///   tick  incremented after every range when given: a sign of life for whoever watches this rank
  void ParallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body,
                   std::atomic<uint32_t>* tick = nullptr);

 private:
  void Worker();
  void Work();

  std::vector<std::thread> workers_;
  const int64_t spin_us_;
  std::atomic<uint32_t> generation_{0};  // raised once per call; workers wait for it to move
  std::atomic<uint32_t> busy_{0};        // workers that have not finished the current call
  std::atomic<bool> stop_{false};
  // The current call; written before generation_ is raised.
  const std::function<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t count_ = 0, grain_ = 1;
  std::atomic<int64_t> next_{0};
  std::atomic<uint32_t>* tick_ = nullptr;
};

}  // namespace trivet
