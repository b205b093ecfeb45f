// SPDX-License-Identifier: Apache-2.0
// `trivet explain`: what would be chosen, by choosing it; and the first reason against every other row.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <vector>

#include "cli/bench_group.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "comm/wht6.h"
#include "device/buffer.h"
#include "engine/knobs.h"
#include "engine/rank.h"

namespace trivet::cli {
namespace {

struct ExplainFlags {
  GroupFlags group;
  std::string operation, numerics = "exact", rows;
  std::vector<std::string> force;
  int64_t bytes = 2048;
  bool compress = false;
};

// One row of one question.
struct Answer {
  std::string question;
  kernels::RowAnswer row;
};

// What rank 0 found when all ranks made the sum.
struct Made {
  comm::CollectiveFacts facts;
  std::string detour;
  bool peer = false;
  comm::CrossoverChoice crossovers;
  comm::Forms forms;  // of them, for parts of this type
};

template <class T>
Status Sum(const GroupRank& rank, const ExplainFlags& flags, Made* made) {
  const int64_t bytes = flags.bytes;
  if (flags.compress) rank.comm.Compress();
  TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(rank.device, bytes, "message"));
  if (rank.device.backend() == Backend::kCpu) std::fill_n(buffer.data(), bytes, std::byte{0});
  TRY(rank.comm.AllReduce(buffer.As<T>()));
  TRY(rank.comm.Wait());
  if (rank.comm.rank() > 0) return {};
  *made = {rank.comm.last(), rank.comm.detour(), rank.comm.peer() != nullptr, rank.comm.crossovers(),
           rank.comm.FormsOf<T>()};
  return {};
}

// Why a sum of that size is shared out by weights, or not.
std::string WeightsReason(const comm::Forms& forms) {
  if (forms.weighted_bytes == INT64_MAX) return "no weights: trivet tune keeps some where links differ enough";
  return fmt::format("weights {} from {} bytes", fmt::join(forms.weights.All(), ", "), forms.weighted_bytes);
}

std::vector<Answer> WaysOf(const ExplainFlags& flags, const Made& made) {
  std::string no_peer = made.detour;
  if (no_peer.empty()) no_peer = "ranks are on the processor";
  const auto is = [&](comm::Algorithm algorithm) { return made.facts.actual == comm::AlgorithmName(algorithm); };
  const std::string size = fmt::format("{} bytes, and one shot goes up to {}", flags.bytes, made.forms.one_shot_bytes);
  const std::string as = fmt::format("{} parts of {}, sum in {}, order: {}, rounded: {}", flags.group.ranks,
                                     made.facts.payload, made.facts.accumulate, made.facts.order, made.facts.round_at);
  const bool weighted = is(comm::Algorithm::kWeighted);
  const bool measured = made.crossovers.measured;
  const std::string& reason = made.crossovers.reason;
  const bool exact = flags.numerics != "fast";
  return {{"transport", {"peer", made.peer, made.peer ? "every GPU reaches the others" : no_peer}},
          {"transport", {"host", !made.peer, made.peer ? "peer stands before it" : "memory that all ranks share"}},
          {"crossover", {"measured", measured, reason}},
          {"crossover", {"built-in", !measured, measured ? "measured on this machine" : "the only one left"}},
          {"algorithm", {"one-shot", is(comm::Algorithm::kOneShot), size}},
          {"algorithm", {"two-shot", is(comm::Algorithm::kTwoShot), weighted ? WeightsReason(made.forms) : size}},
          {"algorithm", {"weighted", weighted, WeightsReason(made.forms)}},
          {"algorithm",
           {"compressed", flags.compress,
            flags.compress ? "--compress-sums, whatever the size" : "it changes bits: --compress-sums asks for it"}},
          {"sum", {"int64", exact, exact ? as : "--numerics fast adds in float32"}},
          {"sum", {"float32", !exact, exact ? "its rounding depends on who holds what; expected the same bits" : as}}};
}

Result<std::vector<Answer>> ExplainSum(const ExplainFlags& flags) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (flags.bytes < 8 || flags.bytes > kMost || flags.bytes % 8 != 0) {
    return MakeError(
        Code::kUsage,
        fmt::format("--bytes: expected a multiple of 8 from 8 to {}, found {}; choose another", kMost, flags.bytes));
  }
  Made made;
  const bool fast = flags.numerics == "fast";
  constexpr int64_t kGroupBytes = comm::kWhtGroup * sizeof(float);
  if (flags.compress && (!fast || flags.bytes % kGroupBytes != 0)) {
    return MakeError(
        Code::kUsage,
        fmt::format("--compress-sums: expected --numerics fast and --bytes in whole groups of {}, found {} "
                    "and {}; choose others, or leave it out",
                    kGroupBytes, flags.numerics, flags.bytes));
  }
  TRY(RunGroup(flags.group, [&](const GroupRank& rank) {
    return fast ? Sum<float>(rank, flags, &made) : Sum<int64_t>(rank, flags, &made);
  }));
  return WaysOf(flags, made);
}

Status AddRows(const ExplainFlags& flags, const engine::EngineOptions& options, const std::string& family,
               std::vector<Answer>* answers) {
  TRY_ASSIGN(const Backend backend, ParseBackend(flags.group.backend));
  TRY_ASSIGN(const device::Device device, device::Device::Open(backend, 0));
  TRY_ASSIGN(const std::vector<kernels::RowAnswer> rows,
             kernels::ExplainRows(engine::TargetOf(device), options.kernels, family));
  for (const kernels::RowAnswer& row : rows) answers->push_back({"kernel", row});
  return {};
}

Status Execute(const ExplainFlags& flags) {
  TRY(flags.group.Check());
  engine::EngineOptions options;
  TRY(engine::SetNumerics(flags.numerics, &options));
  options.kernels.rows = flags.rows;
  TRY(AddForce(flags.force, &options));
  std::vector<Answer> answers;
  const bool sum = flags.operation == "allreduce";
  if (sum) {
    TRY_ASSIGN(answers, ExplainSum(flags));
  }
  TRY(AddRows(flags, options, sum ? "add_sums" : flags.operation, &answers));
  for (const Answer& answer : answers) {
    if (flags.group.json) {
      std::puts(DumpJson({{"question", answer.question},
                          {"row", answer.row.row},
                          {"chosen", answer.row.chosen},
                          {"reason", answer.row.reason}})
                    .c_str());
      continue;
    }
    std::printf("%-10s %-20s %-8s %s\n", answer.question.c_str(), answer.row.row.c_str(),
                answer.row.chosen ? "chosen" : "refused", answer.row.reason.c_str());
  }
  return {};
}

}  // namespace

Run AddExplain(CLI::App* app) {
  auto flags = std::make_shared<ExplainFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  app->add_option("OPERATION", flags->operation,
                  "allreduce, or a kernel family such as gemm (trivet doctor lists them)")
      ->required();
  flags->group.Add(app);
  app->add_option("--bytes", flags->bytes, "of the sum that every rank has a part of");
  app->add_option("--numerics", flags->numerics, "exact, portable or fast");
  app->add_flag("--compress-sums", flags->compress, "as other commands have it: parts travel in 6 bits a value");
  app->add_option("--rows", flags->rows,
                  "kernel rows by suffix: ref, avx2, avx512 or avx512vnni; the best one when empty");
  app->add_option("--force", flags->force, "one kernel row, such as gemm=gemm/ref; commas or repeats")->take_all();
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
