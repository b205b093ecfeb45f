// SPDX-License-Identifier: Apache-2.0
// What a sum over ranks costs by size, one by one and inside a recorded graph; and whether very many are right.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/list.h"
#include "base/str.h"
#include "cli/bench_group.h"
#include "cli/options.h"
#include "comm/nccl.h"
#include "device/buffer.h"
#include "device/graph.h"
#include "engine/rank.h"

namespace trivet::cli {
namespace {

// Of the message, as it is carried; 40 KiB is a token of 5,120 channels in exact mode, 80 MiB 2,048 of them.
constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr int64_t kSizes[] = {1 * kKiB,  4 * kKiB,   8 * kKiB,   16 * kKiB,  32 * kKiB,  40 * kKiB,
                              64 * kKiB, 128 * kKiB, 256 * kKiB, 320 * kKiB, 512 * kKiB, 1 * kMiB,
                              2 * kMiB,  4 * kMiB,   8 * kMiB,   20 * kMiB,  80 * kMiB};

struct Flags {
  GroupFlags group;
  std::string type = "int64", algorithm = "auto", nccl;
  std::vector<std::string> weights;
  int64_t soak = 0, norm = 0;
  bool compress = false;
};

// One by one, and inside a recorded graph where there can be one.  Units: microseconds.
struct Times {
  double eager = 0;
  std::optional<double> graph;

  double best() const { return graph.value_or(eager); }
  std::string Text() const {
    return fmt::format("eager {:9.2f} us  graph {:>9} us", eager, graph ? fmt::format("{:.2f}", *graph) : "-");
  }
  void AddTo(Json* line, const std::string& prefix) const {
    (*line)[prefix + "eager_us"] = eager;
    if (graph) (*line)[prefix + "graph_us"] = *graph;
  }
};

Result<Times> TimesOf(const GroupRank& rank, int64_t calls, const std::function<Status()>& call) {
  const auto work = [&]() -> Status {
    for (int64_t i = 0; i < calls; ++i) TRY(call());
    return {};
  };
  Times times;
  TRY_ASSIGN(times.eager, TimeOf(rank, calls, work));
  if (Records(rank)) {
    TRY_ASSIGN(times.graph, GraphTimeOf(rank, calls, work));
  }
  return times;
}

// One size: our times, and NCCL's when it was asked for.
struct SizeTimes {
  int64_t bytes = 0;
  const char* algorithm = "";
  Times ours;
  std::optional<Times> nccl;
};

void Print(const Flags& flags, const SizeTimes& size) {
  const double rate = static_cast<double>(size.bytes) / size.ours.best();  // MB/s
  if (flags.group.json) {
    Json line = {
        {"ranks", flags.group.ranks}, {"type", flags.type}, {"bytes", size.bytes}, {"algorithm", size.algorithm}};
    size.ours.AddTo(&line, "");
    line["bytes_per_s"] = rate * 1e6;
    if (size.nccl) size.nccl->AddTo(&line, "nccl_");
    std::puts(DumpJson(line).c_str());
  } else {
    std::printf("%10ld bytes  %-10s  %s  %8.2f GB/s%s\n", size.bytes, size.algorithm, size.ours.Text().c_str(),
                rate * 1e-3, size.nccl ? fmt::format("   NCCL  {}", size.nccl->Text()).c_str() : "");
  }
  std::fflush(stdout);
}

// --weights, one for each rank.
Result<comm::Weights> WeightsOf(const Flags& flags) {
  TRY_ASSIGN(const std::vector<std::string> texts, ParseLists(flags.weights, "--weights"));
  std::vector<int64_t> weights;
  int64_t sum = 0;
  for (const std::string& text : texts) {
    TRY_ASSIGN(const int64_t weight, ParseInt(text, "--weights"));
    if (weight < 0 || weight > comm::Weights::kMost) break;
    weights.push_back(weight);
    sum += weight;
  }
  if (std::ssize(weights) == flags.group.ranks && weights.size() == texts.size() && sum > 0) {
    return comm::Weights::Of(weights);
  }
  return MakeError(Code::kUsage, fmt::format("--weights: expected a number of 0 to {} for each of {} ranks, not all 0, "
                                             "found \"{}\"; give such a list",
                                             comm::Weights::kMost, flags.group.ranks,
                                             Quote(fmt::format("{}", fmt::join(texts, ",")))));
}

// How sums are made, as the flags ask for it.
Status SetForms(const Flags& flags, const GroupRank& rank) {
  if (!flags.weights.empty()) {
    TRY_ASSIGN(const comm::Weights weights, WeightsOf(flags));
    rank.comm.SetWeights(weights);
  }
  if (flags.algorithm == "auto") return {};
  TRY_ASSIGN(const comm::Algorithm algorithm, comm::ParseAlgorithm(flags.algorithm));
  rank.comm.Insist(algorithm);
  return {};
}

template <class T>
Status TimeSizes(const Flags& flags, const GroupRank& rank) {
  if (flags.compress) rank.comm.Compress();
  std::unique_ptr<comm::Nccl> nccl;
  if (!flags.nccl.empty()) {
    TRY_ASSIGN(nccl, comm::Nccl::Make(&rank.comm, rank.device, flags.nccl));
    if (rank.comm.rank() == 0) std::fprintf(stderr, "NCCL %s\n", nccl->Version().c_str());
  }
  TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(rank.device, *std::rbegin(kSizes), "message"));
  if (rank.device.backend() == Backend::kCpu) std::fill_n(buffer.data(), buffer.bytes(), std::byte{0});
  for (const int64_t bytes : kSizes) {
    const std::span<T> values = buffer.As<T>().first(static_cast<size_t>(bytes) / sizeof(T));
    const int64_t calls = std::clamp<int64_t>(64 * kMiB / bytes, 1, 100);
    SizeTimes size{bytes, flags.compress ? "compressed" : comm::AlgorithmName(rank.comm.Choose<T>(bytes)), {}, {}};
    TRY_ASSIGN(size.ours, TimesOf(rank, calls, [&] { return rank.comm.AllReduce(values); }));
    if (nccl != nullptr) {
      TRY_ASSIGN(size.nccl, TimesOf(rank, calls, [&] { return nccl->AllReduce(values); }));
    }
    if (rank.comm.rank() == 0) Print(flags, size);
  }
  return {};
}

// Time of a sum with the norm behind it, as two kernels and as one, for as few rows as decoding has.
template <class T>
Status TimeNorms(const Flags& flags, const GroupRank& rank) {
  constexpr int64_t kMostRows = 8, kCalls = 50;
  const int64_t n = flags.norm;
  TRY_ASSIGN(const kernels::Kernels chosen, kernels::SelectKernels(engine::TargetOf(rank.device), {}));
  TRY_ASSIGN(device::Buffer sums, device::Buffer::Make(rank.device, kMostRows * n * 8, "sums"));
  TRY_ASSIGN(device::Buffer floats, device::Buffer::Make(rank.device, kMostRows * n * 4, "sums"));
  TRY_ASSIGN(device::Buffer rows, device::Buffer::Make(rank.device, (2 * kMostRows + 1) * n * 4, "rows"));
  if (rank.device.backend() == Backend::kCpu) {
    std::fill_n(sums.data(), sums.bytes(), std::byte{0});
    std::fill_n(floats.data(), floats.bytes(), std::byte{0});
    std::fill_n(rows.data(), rows.bytes(), std::byte{0});
  }
  kernels::AddNorm::Args args;
  args.x = rows.As<float>().data(), args.y = args.x + kMostRows * n, args.weight = args.y + kMostRows * n;
  args.n = n, args.eps = 1e-6F;
  args.sums_fixed = sums.As<int64_t>().data();
  args.sums_fast = std::is_same_v<T, float> ? floats.As<float>().data() : nullptr;
  device::Buffer& message = std::is_same_v<T, float> ? floats : sums;
  for (args.end = 1; args.end <= kMostRows; ++args.end) {
    TRY_ASSIGN(const Times apart, TimesOf(rank, kCalls, [&]() -> Status {
                 kernels::AddNorm::Args norm = args;
                 if (args.sums_fast != nullptr) {
                   chosen.round_sums->run({args.sums_fixed, args.sums_fast, 0, args.end * n});
                   norm.sums_fixed = nullptr;
                 }
                 TRY(rank.comm.AllReduce(message.As<T>().first(static_cast<size_t>(args.end * n))));
                 chosen.add_norm->run(norm);
                 return {};
               }));
    std::optional<Times> joined;
    if (rank.comm.JoinsNorm(args)) {
      TRY_ASSIGN(joined, TimesOf(rank, kCalls, [&] { return rank.comm.AllReduceAddNorm(args); }));
    }
    if (rank.comm.rank() != 0) continue;
    if (flags.group.json) {
      Json line = {{"ranks", flags.group.ranks}, {"type", flags.type}, {"rows", args.end}, {"n", n}};
      apart.AddTo(&line, "apart_");
      if (joined) joined->AddTo(&line, "joined_");
      std::puts(DumpJson(line).c_str());
    } else {
      std::printf("%ld rows of %ld   sum, then norm: %s   as one: %s\n", args.end, n, apart.Text().c_str(),
                  joined ? joined->Text().c_str() : "-");
    }
    std::fflush(stdout);
  }
  return {};
}

// Sums of known numbers in sizes, types and ways that follow each other at random, alike on all ranks.
class Soak {
 public:
  static Result<std::unique_ptr<Soak>> Make(const GroupRank& rank) {
    TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(rank.device, kMost * 8, "message"));
    return std::unique_ptr<Soak>(new Soak(rank, std::move(buffer)));
  }

  Status Run(int64_t calls) {
    for (int64_t call = 0; call < calls; ++call) {
      if (mine_() % 2000 == 0) std::this_thread::sleep_for(std::chrono::microseconds(mine_() % 500));
      const uint64_t kind = shared_() % 3;
      TRY(kind == 0 ? Call<int64_t>(call) : kind == 1 ? Call<float>(call) : Call<uint32_t>(call));
      if (rank_.comm.rank() == 0 && (call + 1) % kSumsALine == 0 && call + 1 < calls) {
        std::fprintf(stderr, "%ld of %ld sums are right\n", call + 1, calls);
      }
    }
    return {};
  }

 private:
  static constexpr int64_t kSumsALine = 100000;                      // of progress
  static constexpr int64_t kMost = 1500000;                          // more than one call carries
  static constexpr int64_t kFixed[] = {1, 61, 5120, 40960, 300001};  // sizes that are repeated as graphs

  Soak(const GroupRank& rank, device::Buffer buffer)
      : rank_(rank), buffer_(std::move(buffer)), mine_(static_cast<uint64_t>(rank.comm.rank())) {}

  // What `rank` gives at place i of a call.
  template <class T>
  static T Term(int64_t rank, int64_t call, int64_t i) {
    uint64_t bits =
        static_cast<uint64_t>(call * 16 + rank) * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(i) * 0xD1B54A32D192ED03U;
    bits ^= bits >> 29;
    bits *= 0xBF58476D1CE4E5B9U;
    if constexpr (std::is_same_v<T, int64_t>) return static_cast<int64_t>(bits) >> 5;
    // Magnitudes far apart, so that the order of additions shows.
    if constexpr (std::is_same_v<T, float>)
      return std::ldexp(static_cast<float>(static_cast<int32_t>(bits)), static_cast<int>(bits >> 60));
    return static_cast<uint32_t>(bits);
  }

  template <class T>
  Status Call(int64_t call) {
    // Few large ones among many small: neighbours differ in algorithm, blocks and shares.
    const uint64_t draw = shared_() % 400;
    const bool fixed = draw < 100;
    int64_t count = 1 + static_cast<int64_t>(shared_() % 60);
    if (fixed) count = kFixed[draw < 80 ? draw % 2 : draw < 98 ? 2 : draw == 98 ? 3 : 4];
    if (draw == 100) count = 1 + static_cast<int64_t>(shared_() % (shared_() % 20 == 0 ? kMost : 100000));
    std::vector<T> values(static_cast<size_t>(count)), sum(values.size());
    const int64_t ranks = rank_.comm.size();
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      values[at] = Term<T>(rank_.comm.rank(), call, i);
      sum[at] = Term<T>(0, call, i);
      for (int64_t from = 1; from < ranks; ++from) sum[at] += Term<T>(from, call, i);
    }
    const std::span<T> there = buffer_.As<T>().first(values.size());
    const auto bytes = static_cast<int64_t>(there.size_bytes());
    rank_.device.Upload(there.data(), values.data(), bytes);
    const auto work = [&] { return rank_.comm.AllReduce(there); };
    TRY(fixed && rank_.comm.recordable() && rank_.device.backend() == Backend::kCuda
            ? Repeat(bytes * 4 + kKind<T>, work)
            : work());
    TRY(rank_.comm.Wait());
    rank_.device.Download(values.data(), there.data(), bytes);
    if (std::ranges::equal(std::as_bytes(std::span(values)), std::as_bytes(std::span(sum)))) return {};
    return MakeError(
        Code::kDiffers,
        fmt::format("rank {}, call {}: expected the sum of {} known numbers, found others; a defect of the "
                    "links between ranks, or of Trivet",
                    rank_.comm.rank(), call, count));
  }

  Status Repeat(int64_t key, const std::function<Status()>& work) {
    device::Graph& graph = graphs_[key];
    if (!graph.recorded()) {
      TRY_ASSIGN(graph, device::Graph::Record(work));
      TRY(rank_.comm.Barrier());
    }
    graph.Launch();
    return {};
  }

  template <class T>
  static constexpr int64_t kKind = std::is_same_v<T, int64_t> ? 0
                                   : std::is_same_v<T, float> ? 1
                                                              : 2;

  const GroupRank rank_;
  device::Buffer buffer_;
  std::mt19937_64 shared_{7}, mine_;
  std::map<int64_t, device::Graph> graphs_;
};

constexpr int64_t kMostSums = 10000000000;  // a month of them
constexpr int64_t kMostNorm = 1000000;

Status Execute(const Flags& flags) {
  if (flags.type != "int64" && flags.type != "float") {
    return MakeError(Code::kUsage,
                     fmt::format("--type: expected int64 or float, found \"{}\"; choose one", Quote(flags.type)));
  }
  if (flags.algorithm != "auto") {
    TRY(comm::ParseAlgorithm(flags.algorithm));
  }
  if (!flags.weights.empty()) {
    if (flags.algorithm != "weighted") {
      return MakeError(Code::kUsage, fmt::format("--weights: expected --algorithm weighted, found {}; give it",
                                                 Quote(flags.algorithm)));
    }
    TRY(WeightsOf(flags));
  }
  if (flags.soak < 0 || flags.soak > kMostSums) {
    return MakeError(Code::kUsage, fmt::format("--soak: expected 1 to {} sums, found {}; choose a count in that range",
                                               kMostSums, flags.soak));
  }
  if (flags.compress && flags.type != "float") {
    return MakeError(Code::kUsage,
                     "--compress-sums: expected --type float, found int64, whose sums are exact; give it");
  }
  if (flags.compress && flags.algorithm != "auto") {
    return MakeError(Code::kUsage,
                     fmt::format("--algorithm: expected auto with --compress-sums, which has one form, found "
                                 "{}; leave one of them out",
                                 flags.algorithm));
  }
  if (flags.norm < 0 || flags.norm > kMostNorm) {
    return MakeError(Code::kUsage,
                     fmt::format("--norm: expected 1 to {} channels, found {}; choose a width in that range", kMostNorm,
                                 flags.norm));
  }
  TRY(RunGroup(flags.group, [&](const GroupRank& rank) -> Status {
    TRY(SetForms(flags, rank));
    if (flags.norm > 0) return flags.type == "int64" ? TimeNorms<int64_t>(flags, rank) : TimeNorms<float>(flags, rank);
    if (flags.soak > 0) {
      TRY_ASSIGN(const std::unique_ptr<Soak> soak, Soak::Make(rank));
      return soak->Run(flags.soak);
    }
    return flags.type == "int64" ? TimeSizes<int64_t>(flags, rank) : TimeSizes<float>(flags, rank);
  }));
  if (flags.soak == 0) return {};
  if (flags.group.json) {
    std::puts(DumpJson({{"ranks", flags.group.ranks}, {"right_sums", flags.soak}}).c_str());
  } else {
    std::printf("%ld sums over %ld ranks are right\n", flags.soak, flags.group.ranks);
  }
  return {};
}

}  // namespace

std::function<Status()> AddBenchAllReduce(CLI::App* app) {
  auto flags = std::make_shared<Flags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  flags->group.Add(app);
  app->add_option("--type", flags->type, "int64, which exact sums travel as, or float");
  app->add_option("--algorithm", flags->algorithm, "of sums: one-shot, two-shot, weighted, or auto: by size");
  app->add_option("--weights", flags->weights,
                  "with --algorithm weighted: how much of a sum each rank adds, such as 2,2,1; equal when absent, "
                  "unless the tuning has weights")
      ->take_all();
  CLI::Option* soak =
      app->add_option("--soak", flags->soak, "instead: check so many sums of sizes and types that change at random");
  RefuseEmpty(app->add_option("--nccl", flags->nccl,
                              "also time the sums of NCCL, from this library, such as libnccl.so.2; every rank needs a "
                              "GPU of its own"));
  app->add_option(
         "--norm", flags->norm,
         "instead: time sums of 1 to 8 rows of so many channels with the residual and norm behind them, as two "
         "kernels and as one")
      ->excludes(soak);
  app->add_flag("--compress-sums", flags->compress, "with --type float: parts travel in 6 bits a value")
      ->excludes(soak)
      ->excludes(app->get_option("--norm"));
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
