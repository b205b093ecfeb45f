// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/futex.h"

namespace trivet {
namespace {

// Spins, then sleeps, until `word` differs from `value`.
void WaitWhile(const std::atomic<uint32_t>& word, uint32_t value, int64_t spin_us) {
  if (word.load(std::memory_order_acquire) != value) return;
  const int64_t until = NowUs() + spin_us;
  while (NowUs() < until) {
    for (int i = 0; i < 32; ++i) {
      if (word.load(std::memory_order_acquire) != value) return;
      SpinPause();
    }
  }
  while (word.load(std::memory_order_acquire) == value) FutexWait(word, value, 1000000);
}

}  // namespace

ThreadPool::ThreadPool(int threads, int64_t spin_us) : spin_us_(spin_us) {
  CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Worker(); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
  FutexWakeAll(generation_);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Work() {
  while (true) {
    const int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= count_) return;
    (*body_)(begin, std::min(begin + grain_, count_));
    if (tick_ != nullptr) tick_->fetch_add(1, std::memory_order_relaxed);
  }
}

void ThreadPool::Worker() {
  uint32_t seen = 0;
  while (true) {
    WaitWhile(generation_, seen, spin_us_);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    Work();
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) FutexWakeAll(busy_);
  }
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body,
                             std::atomic<uint32_t>* tick) {
  CHECK(grain >= 1);
  if (count <= 0) return;
  body_ = &body;
  count_ = count;
  grain_ = grain;
  tick_ = tick;
  next_.store(0, std::memory_order_relaxed);
  if (workers_.empty() || count <= grain) {
    Work();
    return;
  }
  busy_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  FutexWakeAll(generation_);
  Work();
  while (uint32_t left = busy_.load(std::memory_order_acquire)) WaitWhile(busy_, left, spin_us_);
}

}  // namespace trivet
