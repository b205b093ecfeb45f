// SPDX-License-Identifier: Apache-2.0
#include "base/futex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace trivet {
namespace {

constexpr int64_t kLongUs = 20000000;  // longer than the test may take

void WaitUntilDifferent(const std::atomic<uint32_t>& word, uint32_t value) {
  while (word.load(std::memory_order_acquire) == value) FutexWait(word, value, kLongUs);
}

TEST(Futex, ReturnsAtOnceWhenTheWordDiffers) {
  const std::atomic<uint32_t> word{1};
  const int64_t start = NowUs();
  FutexWait(word, 0, kLongUs);
  EXPECT_LT(NowUs() - start, kLongUs / 2);
}

TEST(Futex, ReturnsAfterTheTimeout) {
  const std::atomic<uint32_t> word{1};
  const int64_t start = NowUs();
  while (NowUs() - start < 30000) FutexWait(word, 1, 10000);  // spurious returns are allowed
  const int64_t again = NowUs();
  FutexWait(word, 1, 1000);
  EXPECT_LT(NowUs() - again, kLongUs / 2);
}

TEST(Futex, WakesEveryThread) {
  std::atomic<uint32_t> word{0}, woken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      WaitUntilDifferent(word, 0);
      woken.fetch_add(1);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(woken.load(), 0U);
  const int64_t start = NowUs();
  word.store(1, std::memory_order_release);
  FutexWakeAll(word);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(woken.load(), 8U);
  EXPECT_LT(NowUs() - start, kLongUs / 2);
}

TEST(Futex, WakesAnotherProcess) {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* words = new (memory) std::atomic<uint32_t>[2] {};
  const int child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    words[1].store(1);
    FutexWakeAll(words[1]);
    WaitUntilDifferent(words[0], 0);
    ::_exit(0);
  }
  WaitUntilDifferent(words[1], 0);
  const int64_t start = NowUs();
  words[0].store(1, std::memory_order_release);
  FutexWakeAll(words[0]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_LT(NowUs() - start, kLongUs / 2);
  ::munmap(memory, 4096);
}

}  // namespace
}  // namespace trivet
