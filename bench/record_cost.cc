// SPDX-License-Identifier: Apache-2.0
// What recording at digest level costs: a prefill and a decode without and with it, in turn, each with an engine of its
// own, in processor time of all threads and in time on the clock:
// record_cost DIR RANKS THREADS PREFILL_TOKENS DECODE_TOKENS ROUNDS
#include <fmt/format.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/open_model.h"

namespace trivet {
namespace {

// Milliseconds so far: of all threads of this process, and on the clock.
struct Times {
  double processor = 0, clock = 0;
};

Times Now() {
  const auto read = [](clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  };
  return {read(CLOCK_PROCESS_CPUTIME_ID), read(CLOCK_MONOTONIC)};
}

Times operator-(const Times& a, const Times& b) { return {a.processor - b.processor, a.clock - b.clock}; }

// The parts of one run.
struct Parts {
  Times start, steps, seal;
};

struct Options {
  std::string dir;
  int64_t ranks = 1;
  int threads = 1;
  int64_t prefill = 0, decode = 0;
  int rounds = 0;
};

std::vector<TokenId> Prompt(int64_t length) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(10 + i * 17 % 900));
  return tokens;
}

// Computes a prompt, and then `decode` tokens that do not depend on the logits. An empty `dir` records nothing.
Result<Parts> Run(const engine::OpenedModel& model, const Options& options, int64_t prompt, int64_t decode,
                  const std::string& dir) {
  engine::EngineOptions engine_options;
  engine_options.layout.ranks = options.ranks;
  engine_options.threads = options.threads;
  engine_options.max_sequences = 1;
  engine_options.max_context = std::min(prompt + decode, model.geometry.max_positions);
  engine_options.kv_tokens = engine_options.max_context + 64;
  if (!dir.empty()) {
    engine_options.proof = {record::Level::kDigest, dir, "record_cost", {}};
  }
  const Times begin = Now();
  TRY_ASSIGN(const std::unique_ptr<engine::Engine> engine, engine::Engine::Start(model, engine_options, {}));
  const Times started = Now();
  TRY(engine->Submit({SeqId{0}, Prompt(prompt), static_cast<int32_t>(decode), 0, sched::LogitsMode::kLast}));
  for (bool more = true; more;) {
    TRY_ASSIGN(more, engine->Step([](const sched::Span& span, const engine::SpanOutput&,
                                     bool wanted) -> Result<std::optional<TokenId>> {
      if (!wanted) return std::optional<TokenId>();
      return std::optional<TokenId>(static_cast<TokenId>(10 + (span.start + span.count) * 7 % 900));
    }));
  }
  const Times ran = Now();
  TRY(engine->SealProof());
  return Parts{started - begin, ran - started, Now() - ran};
}

using Pick = double (*)(const std::vector<double>& sorted);

double Median(const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; }

// What a busy machine disturbs least.
double Least(const std::vector<double>& sorted) { return sorted[0]; }

// Runs of one kind, without and with a record.
struct Series {
  std::vector<Parts> off, on;

  void Print(const char* name, double Times::*time, Pick pick) const {
    const auto of = [&](const std::vector<Parts>& runs, Times Parts::*part) {
      std::vector<double> values;
      for (const Parts& run : runs) values.push_back(run.*part.*time);
      std::sort(values.begin(), values.end());
      return pick(values);
    };
    const double without = of(off, &Parts::steps), steps = of(on, &Parts::steps) - without;
    const double seal = of(on, &Parts::seal), start = of(on, &Parts::start) - of(off, &Parts::start);
    std::printf(
        "%s: %.2f ms; recording %+.2f ms (%+.1f %%), sealing %.2f ms (%+.1f %%), starting %+.2f ms; in all %+.1f %%\n",
        name, without, steps, 100 * steps / without, seal, 100 * seal / without, start, 100 * (steps + seal) / without);
  }
};

Status Measure(const Options& options) {
  TRY_ASSIGN(const engine::OpenedModel model, engine::OpenModel(options.dir, options.dir));
  std::string folder = (std::filesystem::temp_directory_path() / "record_cost_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return MakeError(Code::kIo, folder + ": expected to make the folder, found that it cannot be; check TMPDIR");
  }
  Series prefill, decode;
  const auto run = [&](Series* series, int64_t prompt, int64_t tokens, bool recorded) -> Status {
    const std::string dir = recorded ? folder + "/run" : "";
    TRY_ASSIGN(const Parts parts, Run(model, options, prompt, tokens, dir));
    if (recorded) std::filesystem::remove_all(dir);
    (recorded ? series->on : series->off).push_back(parts);
    return {};
  };
  Status status;
  for (int round = 0; round < options.rounds && status.ok(); ++round) {
    for (const bool second : {false, true}) {
      const bool recorded = second != (round % 2 == 1);
      if (status.ok()) status = run(&prefill, options.prefill, 1, recorded);
      if (status.ok()) status = run(&decode, 1, options.decode, recorded);
    }
  }
  std::filesystem::remove_all(folder);
  TRY(status);
  std::printf("%ld ranks of %d threads, %d rounds in turn: a prefill of %ld tokens, a decode of %ld\n", options.ranks,
              options.threads, options.rounds, options.prefill, options.decode);
  for (const auto& [pick, picked] : {std::pair(&Median, "median"), std::pair(&Least, "least")}) {
    for (const auto& [time, unit] :
         {std::pair(&Times::processor, "processor time"), std::pair(&Times::clock, "time on the clock")}) {
      prefill.Print(fmt::format("{} {}, prefill", picked, unit).c_str(), time, pick);
      decode.Print(fmt::format("{} {}, decode", picked, unit).c_str(), time, pick);
    }
  }
  return {};
}

}  // namespace
}  // namespace trivet

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: record_cost DIR RANKS THREADS PREFILL_TOKENS DECODE_TOKENS ROUNDS\n");
    return 2;
  }
  trivet::Options options{
      argv[1], std::atol(argv[2]), std::atoi(argv[3]), std::atol(argv[4]), std::atol(argv[5]), std::atoi(argv[6])};
  if (options.ranks < 1 || options.threads < 1 || options.prefill < 1 || options.decode < 1 || options.rounds < 1) {
    std::fprintf(stderr, "record_cost: expected numbers above 0\n");
    return 2;
  }
  const trivet::Status status = trivet::Measure(options);
  if (!status.ok()) std::fprintf(stderr, "record_cost: %s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
