// SPDX-License-Identifier: Apache-2.0
// Runs the ranks of a group as threads or as processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/group.h"

namespace trivet::comm {

/// Rank counts that tests walk: powers of two, odd, prime, the most.
inline constexpr int64_t kRankCounts[] = {1, 2, 3, 5, 7, 8, 16};

/// A group whose ranks are patient enough for a loaded machine, unless the test says otherwise.
inline std::unique_ptr<Group> MakeGroup(int64_t ranks, int64_t hang_timeout_us = 30000000) {
  GroupOptions options;
  options.ranks = ranks;
  options.hang_timeout_us = hang_timeout_us;
  options.spin = ranks <= static_cast<int64_t>(std::thread::hardware_concurrency());
  Result<std::unique_ptr<Group>> group = Group::Make(options);
  CHECK(group.ok());
  return std::move(group).value();
}

/// Runs body(rank) on a thread per rank and waits for all.
inline void RunThreads(int64_t ranks, const std::function<void(int64_t)>& body) {
  std::vector<std::thread> threads;
  for (int64_t rank = 1; rank < ranks; ++rank) threads.emplace_back(body, rank);
  body(0);
  for (std::thread& thread : threads) thread.join();
}

/// Forks a process per rank, runs body(rank) in it and returns the process ids. A rank exits with 0 when the body
/// returns true and no expectation failed.
inline std::vector<pid_t> StartProcesses(int64_t ranks, const std::function<bool(int64_t)>& body) {
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    CHECK(child >= 0);
    if (child == 0) ::_exit(body(rank) && !testing::Test::HasFailure() ? 0 : 1);
    children.push_back(child);
  }
  return children;
}

/// Waits for processes and returns how each ended.
inline std::vector<int> WaitProcesses(const std::vector<pid_t>& children) {
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    statuses.push_back(status);
  }
  return statuses;
}

}  // namespace trivet::comm
