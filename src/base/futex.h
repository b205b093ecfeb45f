// SPDX-License-Identifier: Apache-2.0
// Waiting on a 32-bit word in memory that threads or processes share.
#pragma once

#include <atomic>
#include <cstdint>

namespace trivet {

/// Sleeps until `word` may differ from `value`, a wake-up comes, or `timeout_us` microseconds pass. Spurious returns
/// happen: callers loop.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_us);

/// Wakes everybody who waits on `word`, in this process and in others.
void FutexWakeAll(const std::atomic<uint32_t>& word);

/// Tells the processor that this is a waiting loop.
void SpinPause();

}  // namespace trivet
