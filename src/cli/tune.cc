// SPDX-License-Identifier: Apache-2.0
// `trivet tune`: where sums over ranks change from one form to the other on this machine, and by which weights long
// ones are shared out.
#include <fmt/format.h>
#include <fmt/ranges.h>

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
#include "cli/signals.h"
#include "device/buffer.h"

namespace trivet::cli {
namespace {

constexpr int64_t kCalls = 20;  // of one measurement, at most
constexpr int64_t kMiB = 1 << 20;

struct Flags {
  GroupFlags group;
  std::vector<std::string> ranks = {"2,3,4,5,6,7,8"};
  std::string out;
};

// Powers of two and what lies between them, up to the longest that goes one-shot.
std::vector<int64_t> Sizes(int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t bytes = comm::kShortestTuned; bytes <= most; bytes *= 2) {
    sizes.push_back(bytes);
    if (bytes * 3 / 2 <= most) sizes.push_back(bytes * 3 / 2);
  }
  return sizes;
}

template <class T>
Result<double> TimeForm(const GroupRank& rank, comm::Algorithm form, std::span<T> values) {
  rank.comm.Insist(form);
  const int64_t calls = std::clamp<int64_t>(16 * kMiB / static_cast<int64_t>(values.size_bytes()), 1, kCalls);
  const auto work = [&]() -> Status {
    for (int64_t call = 0; call < calls; ++call) TRY(rank.comm.AllReduce(values));
    return {};
  };
  return Records(rank) ? GraphTimeOf(rank, calls, work) : TimeOf(rank, calls, work);
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

void PrintRates(const Flags& flags, const comm::Way& way, std::span<const double> rates, const comm::Weights& weights) {
  if (flags.group.json) {
    std::puts(DumpJson({{"ranks", way.ranks},
                        {"write_bytes_per_s", std::vector<double>(rates.begin(), rates.end())},
                        {"weights", weights.All()}})
                  .c_str());
    return;
  }
  std::string text;
  for (const double rate : rates) text += fmt::format("{}{:.1f}", text.empty() ? "" : ", ", rate * 1e-9);
  std::printf("%s: links of %s GB/s, shares of %s\n", way.Name().c_str(), text.c_str(),
              weights == comm::Weights::Equal(way.ranks) ? "equal size"
                                                         : fmt::format("{}", fmt::join(weights.All(), ", ")).c_str());
}

// By which weights long sums are shared out, as the links ask for it, and from where on that is faster.
Result<comm::WeightedShares> MeasureWeights(const Flags& flags, const GroupRank& rank, const comm::Way& way) {
  TRY_ASSIGN(const std::vector<double> rates, WriteRates(rank));
  const comm::Weights weights = comm::WeightsFor(rates);
  if (rank.comm.rank() == 0) PrintRates(flags, way, rates, weights);
  if (weights == comm::Weights::Equal(way.ranks)) return comm::WeightedShares{weights};
  rank.comm.SetWeights(weights);
  TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(rank.device, *std::rbegin(comm::kLongSums), "message"));
  if (rank.device.backend() == Backend::kCpu) std::fill_n(buffer.data(), buffer.bytes(), std::byte{0});
  std::vector<comm::WeightedTimes> times;
  for (const int64_t bytes : comm::kLongSums) {
    const std::span<int64_t> values = buffer.As<int64_t>().first(static_cast<size_t>(bytes) / sizeof(int64_t));
    comm::WeightedTimes time{bytes};
    TRY_ASSIGN(time.equal_us, TimeForm(rank, comm::Algorithm::kTwoShot, values));
    TRY_ASSIGN(time.weighted_us, TimeForm(rank, comm::Algorithm::kWeighted, values));
    times.push_back(time);
    if (rank.comm.rank() != 0) continue;
    if (flags.group.json) {
      std::puts(DumpJson({{"ranks", way.ranks},
                          {"bytes", bytes},
                          {"two_shot_us", time.equal_us},
                          {"weighted_us", time.weighted_us}})
                    .c_str());
    } else {
      std::printf("  %8ld bytes   two-shot %9.2f us   weighted %9.2f us\n", bytes, time.equal_us, time.weighted_us);
    }
  }
  const int64_t from = comm::WeightedFrom(times);
  if (rank.comm.rank() == 0 && !flags.group.json) {
    std::puts(from == INT64_MAX ? "  no gain: shares stay equal"
                                : fmt::format("  weighted from {} bytes", from).c_str());
  }
  return comm::WeightedShares{weights, from};
}

// Earlier results stay, unless they are of the same machine and way.
Result<comm::Tuning> Earlier(const std::string& path) {
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) return comm::Tuning();
  return comm::Tuning::Read(path);
}

// The groups to measure, one for every rank count.
Result<std::vector<GroupFlags>> GroupsOf(const Flags& flags) {
  TRY_ASSIGN(const std::vector<std::string> counts, ParseLists(flags.ranks, "--ranks"));
  std::vector<GroupFlags> groups;
  for (const std::string& count : counts) {
    groups.push_back(flags.group);
    TRY_ASSIGN(groups.back().ranks, ParseInt(count, "--ranks"));
    groups.back().tuning = "none";
    TRY(groups.back().Check());
  }
  return groups;
}

Status MeasureAll(const Flags& flags, const std::vector<GroupFlags>& groups, comm::Tuning* tuning) {
  for (const GroupFlags& group : groups) {
    TRY(RunGroup(group, [&](const GroupRank& rank) -> Status {
      comm::TunedWay result{comm::TuningFingerprint(rank.device),
                            {rank.device.backend(), rank.comm.peer() != nullptr, group.ranks},
                            {},
                            {}};
      TRY_ASSIGN(result.one_shot.int64_bytes, Measure<int64_t>(flags, rank, result.way, "int64"));
      TRY_ASSIGN(result.one_shot.float32_bytes, Measure<float>(flags, rank, result.way, "float32"));
      TRY_ASSIGN(result.weighted, MeasureWeights(flags, rank, result.way));
      if (rank.comm.rank() == 0) tuning->Put(result);
      return {};
    }));
  }
  return {};
}

Status Execute(const Flags& flags) {
  const std::string path = flags.out.empty() ? comm::Tuning::DefaultPath() : flags.out;
  if (path.empty()) {
    return MakeError(Code::kUsage,
                     "--out: expected a file, or HOME in the environment, found neither; give --out FILE");
  }
  TRY_ASSIGN(const std::vector<GroupFlags> groups, GroupsOf(flags));
  TRY_ASSIGN(comm::Tuning tuning, Earlier(path));
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);  // a failure shows in writing
  const bool is_new = !std::filesystem::exists(path, failed);
  const FileWatch watch(path);
  // What cannot be kept need not be measured; whatever ends this earlier leaves no file without results.
  TRY(tuning.Write(path));
  if (is_new) std::filesystem::remove(path, failed);
  TRY(MeasureAll(flags, groups, &tuning));
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
