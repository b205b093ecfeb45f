// SPDX-License-Identifier: Apache-2.0
#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace trivet {

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

void FutexWait(const std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_us) {
  timespec timeout{};
  timeout.tv_sec = timeout_us / 1000000;
  timeout.tv_nsec = timeout_us % 1000000 * 1000;
  // Not FUTEX_PRIVATE: the word may lie in memory that processes share.
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void FutexWakeAll(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

}  // namespace trivet
