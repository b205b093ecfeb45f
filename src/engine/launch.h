// SPDX-License-Identifier: Apache-2.0
// Starting ranks 1 .. N-1 beside the caller, who is rank 0: as threads or as forked processes, with the same body.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "comm/group.h"

namespace trivet::engine {

/// How ranks beside the caller run.
enum class Launch { kThreads, kProcesses };

/// Parses "threads" or "processes".  Errors: kUsage.
Result<Launch> ParseLaunch(const std::string& text);
/// The inverse.
const char* LaunchName(Launch launch);

/// What a rank runs, from start to end of its life.  An error aborts the group with its message.
using RankBody = std::function<Status(int64_t rank)>;

/// The ranks beside the caller.
class Ranks {
 public:
  /// Starts ranks 1 .. N-1 of `group`. Processes are forked: call it before this process has other threads.
  /// Errors:  kIo when the system refuses a process.
  static Result<std::unique_ptr<Ranks>> Start(Launch launch, comm::Group* group, const RankBody& body);
  /// As Join.
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// How the ranks beside the caller run, by what was started; nothing where there are none.
  std::optional<Launch> running() const;

  /// Aborts the group when a process has ended, for whoever works long without waiting for its peers.
  void Watch();

  /// Waits for the ranks to end. Kills processes that have not after a second and abandons threads that have not after
  /// half a minute: a thread in a long computation comes back, and only one that is stuck in the system does not.
  /// Returns false when a thread was abandoned; the group's memory must then stay.
  bool Join();

 private:
  Ranks(Launch launch, comm::Group* group) : launch_(launch), group_(group) {}
  std::optional<std::string> DeadProcess();
  bool AllEnded();
  Status Fork(int64_t rank, const RankBody& body);

  struct Process {
    int64_t rank;
    int pid;
    bool ended = false;
  };
  struct Thread {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> ended;  // shared_ptr: an abandoned thread still writes it
  };

  const Launch launch_;
  comm::Group* group_;
  std::vector<Process> processes_;
  std::vector<Thread> threads_;
  bool joined_ = false;
};

}  // namespace trivet::engine
