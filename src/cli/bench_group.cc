// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cli/options.h"
#include "device/graph.h"
#include "engine/launch.h"

namespace trivet::cli {
namespace {

constexpr int64_t kWarmUp = 2, kRounds = 15;  // of a measurement

}  // namespace

void GroupFlags::Add(CLI::App* app) {
  app->add_option("--ranks,-n", ranks, "ranks, 2 to 16");
  app->add_option("--launch", launch, "ranks as threads or as processes");
  AddTuning(app, &tuning);
  AddWay(app);
}

void GroupFlags::AddWay(CLI::App* app) {
  app->add_option("--backend", backend, "cpu, or cuda: rank r runs on GPU r modulo their number");
  app->add_option("--transport", transport,
                  "between ranks on GPUs: peer, in memory of the GPUs; host; auto: peer where they reach each other");
  app->add_flag("--json", json, "JSON lines");
}

void AddTuning(CLI::App* app, std::string* tuning) {
  RefuseEmpty(app->add_option("--tuning", *tuning,
                              "where sums change from one form to the other: file that `trivet tune` made; auto: the "
                              "user's own, if there is one; none: built in"));
}

Result<double> TimeOf(const GroupRank& rank, int64_t calls, const std::function<Status()>& work) {
  std::vector<double> times;
  for (int64_t round = -kWarmUp; round < kRounds; ++round) {
    TRY(rank.comm.Wait());
    TRY(rank.comm.Barrier());
    const int64_t begin = NowUs();
    TRY(work());
    TRY(rank.comm.Wait());
    if (round >= 0) times.push_back(static_cast<double>(NowUs() - begin) / static_cast<double>(calls));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

bool Records(const GroupRank& rank) { return rank.device.backend() == Backend::kCuda && rank.comm.recordable(); }

Result<double> GraphTimeOf(const GroupRank& rank, int64_t calls, const std::function<Status()>& work) {
  TRY_ASSIGN(const device::Graph recorded, device::Graph::Record(work));
  TRY(rank.comm.Barrier());
  return TimeOf(rank, calls, [&]() -> Status {
    recorded.Launch();
    return {};
  });
}

Status GroupFlags::Check() const {
  if (ranks < 2 || ranks > comm::kMaxGroup) {
    return MakeError(Code::kUsage, fmt::format("--ranks: expected 2 to {}, found {}; choose a count in that range",
                                               comm::kMaxGroup, ranks));
  }
  TRY(ParseBackend(backend));
  TRY(engine::ParseLaunch(launch));
  TRY(comm::ParseTransport(transport));
  return {};
}

Status RunGroup(const GroupFlags& flags, const std::function<Status(const GroupRank& rank)>& body) {
  TRY(flags.Check());
  TRY_ASSIGN(const Backend backend, ParseBackend(flags.backend));
  TRY_ASSIGN(const engine::Launch launch, engine::ParseLaunch(flags.launch));
  TRY_ASSIGN(const comm::Transport transport, comm::ParseTransport(flags.transport));
  TRY_ASSIGN(const comm::Tuning tuning, comm::Tuning::Open(flags.tuning));
  comm::GroupOptions options;
  options.ranks = flags.ranks;
  options.spin = flags.ranks <= static_cast<int64_t>(std::thread::hardware_concurrency());
  TRY_ASSIGN(const std::unique_ptr<comm::Group> made, comm::Group::Make(options));
  comm::Group* group = made.get();
  const auto run = [&](int64_t rank) -> Status {
    TRY_ASSIGN(const device::Device device, device::Device::Open(backend, rank));
    comm::Communicator comm(group, rank);
    TRY(comm.Barrier(true));  // opening a device may take any time
    TRY(comm.Connect(device, transport, tuning));
    if (rank == 0 && !comm.detour().empty()) {
      std::fprintf(stderr, "notice: ranks exchange through the host: %s\n", comm.detour().c_str());
    }
    TRY(body({*group, comm, device}));
    TRY(comm.Wait());
    return comm.Close();
  };
  const auto guarded = [&](int64_t rank) -> Status {
    const Status status = run(rank);
    if (!status.ok()) group->Abort(status.error().message, status.error().code);
    return status;
  };
  TRY_ASSIGN(const std::unique_ptr<engine::Ranks> others, engine::Ranks::Start(launch, group, guarded));
  const Status status = guarded(0);
  others->Join();
  return group->aborted() ? group->AbortError() : status;
}

}  // namespace trivet::cli
