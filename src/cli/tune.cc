// SPDX-License-Identifier: Apache-2.0
// `trivet tune`: where sums over ranks change from one form to the other on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/json.h"
#include "base/list.h"
#include "base/str.h"
#include "cli/bench_group.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "device/buffer.h"

namespace trivet::cli {
namespace {

constexpr int64_t kSmallest = 4096;  // below it no form of a sum has anything to share out
constexpr int64_t kCalls = 20;       // of one measurement

struct Flags {
  GroupFlags group;
  std::vector<std::string> ranks = {"2,3,4,5,6,7,8"};
  std::string out;
};

// Powers of two and what lies between them, up to the longest that goes one-shot.
std::vector<int64_t> Sizes(int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t bytes = kSmallest; bytes <= most; bytes *= 2) {
    sizes.push_back(bytes);
    if (bytes * 3 / 2 <= most) sizes.push_back(bytes * 3 / 2);
  }
  return sizes;
}

template <class T>
Result<double> TimeForm(const GroupRank& rank, comm::Algorithm form, std::span<T> values) {
  rank.comm.Insist(form);
  const auto work = [&]() -> Status {
    for (int64_t call = 0; call < kCalls; ++call) TRY(rank.comm.AllReduce(values));
    return {};
  };
  return Records(rank) ? GraphTimeOf(rank, kCalls, work) : TimeOf(rank, kCalls, work);
}

void Print(const Flags& flags, const comm::Way& way, const char* type, std::span<const comm::FormTimes> times) {
  const int64_t best = comm::BestCrossover(times);
  if (!flags.group.json) std::printf("%s, %s: one-shot up to %ld bytes\n", way.Name().c_str(), type, best);
  for (const comm::FormTimes& time : times) {
    if (flags.group.json) {
      std::puts(DumpJson({{"ranks", way.ranks},
                          {"type", type},
                          {"bytes", time.bytes},
                          {"one_shot_us", time.one_shot_us},
                          {"two_shot_us", time.two_shot_us},
                          {"chosen", time.bytes <= best ? "one-shot" : "two-shot"}})
                    .c_str());
    } else {
      std::printf("  %8ld bytes   one-shot %9.2f us   two-shot %9.2f us\n", time.bytes, time.one_shot_us,
                  time.two_shot_us);
    }
  }
  std::fflush(stdout);
}

template <class T>
Result<int64_t> Measure(const Flags& flags, const GroupRank& rank, const comm::Way& way, const char* type) {
  const int64_t most = comm::MostOneShotBytes(way);
  TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(rank.device, most, "message"));
  if (rank.device.backend() == Backend::kCpu) std::fill_n(buffer.data(), buffer.bytes(), std::byte{0});
  std::vector<comm::FormTimes> times;
  for (const int64_t bytes : Sizes(most)) {
    const std::span<T> values = buffer.As<T>().first(static_cast<size_t>(bytes) / sizeof(T));
    comm::FormTimes time{bytes};
    TRY_ASSIGN(time.one_shot_us, TimeForm(rank, comm::Algorithm::kOneShot, values));
    TRY_ASSIGN(time.two_shot_us, TimeForm(rank, comm::Algorithm::kTwoShot, values));
    times.push_back(time);
  }
  if (rank.comm.rank() == 0) Print(flags, way, type, times);
  return comm::BestCrossover(times);
}

// Earlier results stay, unless they are of the same machine and way.
Result<comm::Tuning> Earlier(const std::string& path) {
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) return comm::Tuning();
  return comm::Tuning::Read(path);
}

Status Execute(const Flags& flags) {
  const std::string path = flags.out.empty() ? comm::Tuning::DefaultPath() : flags.out;
  if (path.empty()) {
    return MakeError(Code::kUsage,
                     "--out: expected a file, or HOME in the environment, found neither; give --out FILE");
  }
  TRY_ASSIGN(comm::Tuning tuning, Earlier(path));
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);  // a failure shows in writing
  TRY(tuning.Write(path));                                                   // what cannot be kept need not be measured
  TRY_ASSIGN(const std::vector<std::string> counts, ParseLists(flags.ranks, "--ranks"));
  for (const std::string& count : counts) {
    TRY_ASSIGN(const int64_t ranks, ParseInt(count, "--ranks"));
    GroupFlags group = flags.group;
    group.ranks = ranks;
    group.tuning = "none";
    TRY(RunGroup(group, [&](const GroupRank& rank) -> Status {
      comm::TunedWay result{
          comm::TuningFingerprint(rank.device), {rank.device.backend(), rank.comm.peer() != nullptr, ranks}, {}};
      TRY_ASSIGN(result.one_shot.int64_bytes, Measure<int64_t>(flags, rank, result.way, "int64"));
      TRY_ASSIGN(result.one_shot.float32_bytes, Measure<float>(flags, rank, result.way, "float32"));
      if (rank.comm.rank() == 0) tuning.Put(result);
      return {};
    }));
  }
  TRY(tuning.Write(path));
  if (!flags.group.json) std::printf("kept in %s\n", path.c_str());
  return {};
}

}  // namespace

Run AddTune(CLI::App* app) {
  auto flags = std::make_shared<Flags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  app->add_option("--ranks,-n", flags->ranks, "rank counts to measure, each 2 to 16; commas or repeats")->take_all();
  flags->group.AddWay(app);
  RefuseEmpty(
      app->add_option("--out", flags->out, "file to keep it in, beside what it has; the user's own when absent"));
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
