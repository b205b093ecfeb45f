// SPDX-License-Identifier: Apache-2.0
#include "engine/launch.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "base/str.h"

namespace trivet::engine {
namespace {

constexpr int64_t kPatienceUs = 1000000;         // how long a process may take to notice an abort
constexpr int64_t kThreadPatienceUs = 30000000;  // a thread cannot be killed, and abandoning it is the worse end

// Runs the body; an error or an exception becomes the group's cause.
bool RunBody(comm::Group* group, int64_t rank, const RankBody& body) {
  try {
    const Status status = body(rank);
    if (status.ok()) return true;
    group->Abort(status.error().message, status.error().code);
  } catch (const std::exception& error) {  // a library's: ours throw nothing
    group->Abort(fmt::format("rank {}: expected to run, found: {}; free memory or use more ranks", rank, error.what()));
  }
  return false;
}

}  // namespace

Result<Launch> ParseLaunch(const std::string& text) {
  if (text == "threads") return Launch::kThreads;
  if (text == "processes") return Launch::kProcesses;
  return MakeError(Code::kUsage,
                   fmt::format("--launch: expected threads or processes, found \"{}\"; choose one", Quote(text)));
}

const char* LaunchName(Launch launch) { return launch == Launch::kThreads ? "threads" : "processes"; }

Result<std::unique_ptr<Ranks>> Ranks::Start(Launch launch, comm::Group* group, const RankBody& body) {
  std::unique_ptr<Ranks> ranks(new Ranks(launch, group));
  for (int64_t rank = 1; rank < group->ranks(); ++rank) {
    if (launch == Launch::kProcesses) {
      TRY(ranks->Fork(rank, body));
      continue;
    }
    auto ended = std::make_shared<std::atomic<bool>>(false);  // shared_ptr: see Thread
    std::thread thread([group, rank, body, ended] {
      RunBody(group, rank, body);
      ended->store(true);
    });
    ranks->threads_.push_back({std::move(thread), std::move(ended)});
  }
  if (launch == Launch::kProcesses) group->set_watch([self = ranks.get()] { return self->DeadProcess(); });
  return ranks;
}

Status Ranks::Fork(int64_t rank, const RankBody& body) {
  std::fflush(nullptr);  // or the child would print what is buffered once more
  const int parent = ::getpid();
  const int pid = ::fork();
  if (pid < 0) {
    const int error = errno;
    group_->Abort("a rank could not be started");
    return MakeError(Code::kIo,
                     fmt::format("rank {}: expected a new process, found: {}; raise the limit of processes or "
                                 "use --launch threads",
                                 rank, std::strerror(error)));
  }
  if (pid == 0) {
    // A rank without its rank 0 has nothing to do.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    std::signal(SIGINT, SIG_IGN);  // rank 0 decides what an interrupt means
    group_->set_watch({});
    const bool ok = RunBody(group_, rank, body);
    ::_exit(ok ? 0 : 1);
  }
  processes_.push_back({rank, pid, false});
  return {};
}

std::optional<std::string> Ranks::DeadProcess() {
  for (Process& process : processes_) {
    int status = 0;
    if (process.ended || ::waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
    process.ended = true;
    if (WIFSIGNALED(status)) {
      return fmt::format("rank {}: expected its process {} to run, found it killed by signal {} ({}); restart the run",
                         process.rank, process.pid, WTERMSIG(status), ::strsignal(WTERMSIG(status)));
    }
    return fmt::format("rank {}: expected its process {} to run, found it ended with status {}; restart the run",
                       process.rank, process.pid, WEXITSTATUS(status));
  }
  return std::nullopt;
}

std::optional<Launch> Ranks::running() const {
  if (!processes_.empty()) return Launch::kProcesses;
  return threads_.empty() ? std::nullopt : std::optional(Launch::kThreads);
}

void Ranks::Watch() {
  if (const std::optional<std::string> cause = DeadProcess()) group_->Abort(*cause);
}

bool Ranks::AllEnded() {
  bool all = true;
  for (Process& process : processes_) {
    if (!process.ended && ::waitpid(process.pid, nullptr, WNOHANG) == process.pid) process.ended = true;
    all &= process.ended;
  }
  for (const Thread& thread : threads_) all &= thread.ended->load();
  return all;
}

bool Ranks::Join() {
  if (joined_) return true;
  const int64_t deadline = NowUs() + (threads_.empty() ? kPatienceUs : kThreadPatienceUs);
  while (!AllEnded() && NowUs() < deadline) ::usleep(1000);
  for (Process& process : processes_) {
    if (process.ended) continue;
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
    process.ended = true;
  }
  bool all = true;
  for (Thread& thread : threads_) {
    if (thread.ended->load()) {
      thread.thread.join();
    } else {
      thread.thread.detach();
      all = false;
    }
  }
  joined_ = true;
  return all;
}

Ranks::~Ranks() { Join(); }

}  // namespace trivet::engine
