// SPDX-License-Identifier: Apache-2.0
// How far something raises a process' memory, measured in a process of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>

#include "tests/support/sanitizer.h"

namespace trivet::support {

/// Whether a process' memory is what the program asked for: sanitizers keep what was freed.
inline constexpr bool kMemoryIsMeasurable = !kSanitized;

/// Peak resident memory of this process.   Units: bytes.
inline int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  int64_t kilobytes = 0;
  while (status >> key) {
    if (key == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return -1;
}

/// Growth of the peak while `body` runs in a child process, whose peak nothing else has raised; -1 when it gives false.
inline int64_t PeakGrowth(const std::function<bool()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const int child = ::fork();
  if (child == 0) {
    const int64_t before = PeakBytes();
    const bool done = body();
    const int64_t growth = PeakBytes() - before;
    const bool told = ::write(ends[1], &growth, sizeof growth) == sizeof growth;
    ::_exit(done && told && before >= 0 ? 0 : 1);
  }
  int64_t growth = -1;
  int status = 1;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) growth = -1;
  if (status == 0 && ::read(ends[0], &growth, sizeof growth) != sizeof growth) growth = -1;
  ::close(ends[0]);
  ::close(ends[1]);
  return growth;
}

}  // namespace trivet::support
