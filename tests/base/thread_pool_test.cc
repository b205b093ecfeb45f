// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>

namespace trivet {
namespace {

// Calls ParallelFor and expects every item once, in ranges of at most `grain`.
void ExpectCovers(ThreadPool* pool, int64_t count, int64_t grain) {
  std::vector<std::atomic<int>> visits(static_cast<size_t>(std::max<int64_t>(count, 0)));
  std::atomic<bool> ranges_fit{true};
  pool->ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
    if (begin < 0 || end > count || end <= begin || end - begin > grain) ranges_fit = false;
    for (int64_t i = begin; i < end; ++i) visits[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
  });
  ASSERT_TRUE(ranges_fit) << count << " items, grain " << grain;
  for (const auto& visit : visits) ASSERT_EQ(visit.load(), 1) << count << " items, grain " << grain;
}

TEST(ThreadPool, CoversEveryItemOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int64_t count : {-1, 0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 2, 3, 64, 5000}) ExpectCovers(&pool, count, grain);
    }
  }
}

TEST(ThreadPool, ManySmallCallsInARow) {
  for (const int64_t spin_us : {0, 50}) {
    ThreadPool pool(4, spin_us);  // more threads than many machines have cores
    int64_t sum = 0;
    std::vector<int64_t> values(64);
    for (int64_t round = 0; round < 5000; ++round) {
      pool.ParallelFor(64, 1 + round % 17, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] = round + i;
      });
      // Plain reads: ParallelFor orders the workers' writes before its return.
      sum += std::accumulate(values.begin(), values.end(), int64_t{0});
    }
    EXPECT_EQ(sum, int64_t{64} * 5000 * 4999 / 2 + int64_t{5000} * (64 * 63 / 2));
  }
}

TEST(ThreadPool, UsesItsThreads) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  // Each body waits until all three threads are in one: it would not end if ranges ran one after another.
  pool.ParallelFor(3, 1, [&](int64_t, int64_t) {
    if (inside.fetch_add(1) + 1 == 3) met = true;
    while (!met) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 3);
}

TEST(ThreadPool, LeavesSleepersAloneWhenAsked) {
  ThreadPool pool(3, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until they sleep
  const auto elsewhere = [&pool](ThreadPool::Help help) {
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> count{0};
    for (int round = 0; round < 5; ++round) {
      pool.ParallelFor(
          10, 1,
          [&](int64_t, int64_t) {
            if (std::this_thread::get_id() != caller) count.fetch_add(1);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          },
          nullptr, help);
    }
    return count.load();
  };
  EXPECT_LT(elsewhere(ThreadPool::Help::kAwake), 10);  // of 50: a sleeper looks up once a second
  EXPECT_GT(elsewhere(ThreadPool::Help::kAll), 10);
}

TEST(ThreadPool, OneThreadRunsInOrderOnTheCaller) {
  ThreadPool pool(1);
  std::vector<int64_t> begins;
  std::set<std::thread::id> ids;
  pool.ParallelFor(10, 3, [&](int64_t begin, int64_t) {
    begins.push_back(begin);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 3, 6, 9}));
  EXPECT_EQ(ids, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(ThreadPool, TicksOncePerRange) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    std::atomic<uint32_t> tick{5};
    pool.ParallelFor(
        100, 7, [](int64_t, int64_t) {}, &tick);
    EXPECT_EQ(tick.load(), 5U + 15U);
    pool.ParallelFor(100, 7, [](int64_t, int64_t) {});
    EXPECT_EQ(tick.load(), 5U + 15U) << "a tick of an earlier call";
  }
}

TEST(ThreadPool, ComesAndGoesAtAnyMoment) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(1 + i % 6, i % 2 == 0 ? 0 : 50);
    if (i % 3 != 0) ExpectCovers(&pool, i, 4);
  }
}

TEST(ThreadPool, ManyPoolsAtOnce) {
  // Ranks in one process: each has its pool, and together they outnumber the cores.
  std::vector<std::thread> ranks;
  std::atomic<int64_t> total{0};
  for (int rank = 0; rank < 6; ++rank) {
    ranks.emplace_back([&] {
      ThreadPool pool(3);
      for (int round = 0; round < 300; ++round) {
        pool.ParallelFor(50, 4, [&](int64_t begin, int64_t end) { total.fetch_add(end - begin); });
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(total.load(), 6 * 300 * 50);
}

TEST(ThreadPoolDeathTest, NeedsAThreadAndAGrain) {
  EXPECT_DEATH(ThreadPool(0), "CHECK");
  EXPECT_DEATH(ThreadPool(1).ParallelFor(1, 0, [](int64_t, int64_t) {}), "CHECK");
}

}  // namespace
}  // namespace trivet
