// SPDX-License-Identifier: Apache-2.0
// Decode and prefill, exact and fast in turn on the same machine state, against a plain read of as many bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/clock.h"
#include "base/str.h"
#include "base/thread_pool.h"
#include "cli/bench_group.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "device/buffer.h"
#include "plan/cost.h"
#include "sampling/sampler.h"

namespace trivet::cli {
namespace {

struct BenchFlags {
  EngineFlags engine;
  int64_t prompt = 512, tokens = 64, rounds = 7, sequences = 1;
  bool json = false;
  bool alone = false;  // one numerics instead of both in turn
  bool parts = false;  // where the time of a step goes
};

// Seconds of one round, and microseconds in which a GPU waited between recorded steps.
struct Sample {
  double prefill_s = 0, decode_s = 0;
  std::vector<double> gaps_us;
  std::vector<model::PartTimes> parts_us;
};

// One request per sequence with `prompt` tokens and `tokens` to come: whole prompts first, then decode steps.
Result<Sample> Round(engine::Engine* engine, const BenchFlags& flags, int64_t* next_id) {
  Sample sample;
  std::vector<SeqId> ids;
  for (int64_t i = 0; i < flags.sequences; ++i) {
    sched::Request request;
    request.id = SeqId{(*next_id)++};
    ids.push_back(request.id);
    for (int64_t t = 0; t < flags.prompt; ++t) {
      request.prompt.push_back(static_cast<TokenId>((t * 7919 + i * 104729 + 13) % engine->model().geometry.vocab));
    }
    request.max_new_tokens = static_cast<int32_t>(flags.tokens);
    request.logits = sched::LogitsMode::kDrawn;
    TRY(engine->Submit(std::move(request)));
  }
  bool more = true;
  while (more) {
    const int64_t begin = NowUs();
    TRY_ASSIGN(more, engine->Step([&](const sched::Span&, const engine::SpanOutput& output,
                                      bool) -> Result<std::optional<TokenId>> {
      TRY_ASSIGN(const TokenId token, sampling::TokenOf(*output.drawn, engine->model().geometry.vocab));
      return std::optional<TokenId>(token);
    }));
    if (!more) break;
    (engine->step_tokens() > flags.sequences ? sample.prefill_s : sample.decode_s) +=
        static_cast<double>(NowUs() - begin) * 1e-6;
  }
  for (const SeqId id : ids) engine->Finish(id);
  sample.gaps_us = engine->TakeReplayGaps();
  sample.parts_us = engine->TakePartTimes();
  return sample;
}

// What a decode step could reach at most: a plain read of as many bytes as the weights by as many threads, or, on a
// GPU, a copy on the device, whose reads and writes both count.
class ReadLoop {
 public:
  // The most that a GPU copies here: far more than its cache holds.
  static constexpr int64_t kCopyBytes = int64_t{2} << 30;

  static Result<std::unique_ptr<ReadLoop>> Make(const device::Device& device, int64_t bytes, int threads) {
    const bool copy = device.backend() != Backend::kCpu;
    if (copy) bytes = std::min(bytes, kCopyBytes);
    TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(device, bytes / 128 * 128, "read benchmark"));
    std::unique_ptr<ReadLoop> loop(new ReadLoop(device, std::move(buffer), threads));
    if (!copy) std::fill(loop->words_.begin(), loop->words_.end(), 1);
    return loop;
  }

  // Bytes per second of one pass.
  double Pass() {
    device_.Wait();
    const int64_t begin = NowUs();
    const int64_t half = buffer_.bytes() / 2;
    if (device_.backend() != Backend::kCpu) {
      for (int i = 0; i < 8; ++i) device_.Copy(buffer_.data() + half, buffer_.data(), half);
      device_.Wait();
      return 8 * static_cast<double>(buffer_.bytes()) / std::max(1e-6, static_cast<double>(NowUs() - begin) * 1e-6);
    }
    pool_.ParallelFor(static_cast<int64_t>(words_.size()), 1 << 16, [&](int64_t from, int64_t to) {
      uint64_t sums[8] = {};
      for (int64_t i = from; i + 8 <= to; i += 8) {
        for (int64_t j = 0; j < 8; ++j) sums[j] += words_[static_cast<size_t>(i + j)];
      }
      sink_ += std::accumulate(sums, sums + 8, uint64_t{0});
    });
    return static_cast<double>(buffer_.bytes()) / std::max(1e-6, static_cast<double>(NowUs() - begin) * 1e-6);
  }

 private:
  ReadLoop(const device::Device& device, device::Buffer buffer, int threads)
      : device_(device), buffer_(std::move(buffer)), words_(buffer_.As<uint64_t>()), pool_(threads) {}

  const device::Device device_;
  device::Buffer buffer_;
  std::span<uint64_t> words_;
  ThreadPool pool_;
  std::atomic<uint64_t> sink_{0};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// The rounds of one numerics.
struct Series {
  const char* numerics;
  engine::Engine* engine;
  std::vector<double> prefill, decode, gaps_us;
  std::vector<model::PartTimes> parts_us;
};

// What a part of a step took, and what it reads.
struct PartShare {
  const char* name;
  double us, bytes;
};

// The median of every part that the first stage has, on rank 0, and its bytes for a step of one token. None where
// another share of the sequences had all tokens.
std::vector<PartShare> SharesOf(const Series& series) {
  const engine::Engine& engine = *series.engine;
  std::vector<PartShare> shares;
  if (series.parts_us.empty()) return shares;
  for (size_t part = 0; part < plan::kStepParts; ++part) {
    std::vector<double> times;
    for (const model::PartTimes& step : series.parts_us) times.push_back(step[part]);
    double bytes = 0;
    for (size_t rank = 0; rank < engine.cost().ranks.size(); ++rank) {
      // Ranks on a processor share its memory; those of other stages and shares of sequences read at other times.
      const plan::RankPlace place = engine.layout().At(static_cast<int64_t>(rank));
      const bool beside = engine.device().backend() == Backend::kCpu && place.pp == 0 && place.cp == 0;
      if (rank == 0 || beside) bytes += engine.cost().ranks[rank].part_bytes[part];
    }
    const auto which = static_cast<plan::StepPart>(part);
    if (bytes > 0 || which == plan::StepPart::kEmbed || which == plan::StepPart::kEnds)
      shares.push_back({plan::kStepPartNames[part], Median(times), bytes});
  }
  return shares;
}

void PrintParts(const BenchFlags& flags, const Series& series, double read_rate) {
  const std::vector<PartShare> shares = SharesOf(series);
  if (shares.empty()) std::fputs("notice: no decode step had a token for rank 0; ask for more --tokens\n", stderr);
  double all = 0;
  for (const PartShare& share : shares) all += share.us;
  if (!flags.json) std::printf("part           time of rank 0    of all        bytes      read  of a plain read\n");
  for (const PartShare& share : shares) {
    const double rate = share.bytes / share.us * 1e6;
    if (flags.json) {
      std::puts(DumpJson({{"part", share.name},
                          {"us", share.us},
                          {"bytes", share.bytes},
                          {"read_bytes_per_s", rate},
                          {"fraction_of_peak", rate / read_rate}})
                    .c_str());
      continue;
    }
    std::printf("%-12s %13.1f us %7.1f %% %12s %9s/s %9.0f %%\n", share.name, share.us, 100 * share.us / all,
                HumanBytes(share.bytes).c_str(), HumanBytes(rate).c_str(), 100 * rate / read_rate);
  }
}

void Print(const BenchFlags& flags, const Series& series, double step_bytes, double read_rate) {
  const double decode_step = Median(series.decode) / static_cast<double>(std::max<int64_t>(1, flags.tokens - 1));
  const double prefill = static_cast<double>(flags.prompt * flags.sequences) / Median(series.prefill);
  const double decode = static_cast<double>(flags.sequences) / decode_step;
  const double rate = step_bytes / decode_step;
  if (flags.json) {
    const plan::Layout& layout = series.engine->layout();
    Json line = {{"model", flags.engine.layout.model}, {"ranks", layout.ranks},
                 {"context", layout.context.ranks},    {"sequence_parallel", layout.sequence_parallel},
                 {"stages", layout.stages.size()},     {"replicas", layout.replicas},
                 {"numerics", series.numerics},        {"sequences", flags.sequences},
                 {"prompt_tokens", flags.prompt},      {"prefill_tokens_per_s", prefill},
                 {"decode_tokens_per_s", decode},      {"decode_step_us", decode_step * 1e6},
                 {"step_bytes", step_bytes},           {"read_bytes_per_s", rate},
                 {"peak_read_bytes_per_s", read_rate}, {"fraction_of_peak", rate / read_rate}};
    if (!series.gaps_us.empty()) line["replay_gap_us"] = Median(series.gaps_us);
    std::puts(DumpJson(line).c_str());
    return;
  }
  std::printf(
      "%-8s prefill %9.0f tokens/s   decode %9.1f tokens/s   step %9.1f us   weights %s/s, %.0f %% of a plain "
      "read (%s/s)\n",
      series.numerics, prefill, decode, decode_step * 1e6, HumanBytes(rate).c_str(), 100 * rate / read_rate,
      HumanBytes(read_rate).c_str());
  if (series.gaps_us.empty()) return;
  std::printf("%-8s gap between replays of a decode step, median of %zu: %.1f us\n", series.numerics,
              series.gaps_us.size(), Median(series.gaps_us));
}

// The ratios of paired rounds.
void PrintRatios(const BenchFlags& flags, const Series& exact, const Series& fast) {
  std::vector<double> decode, prefill;
  for (size_t i = 0; i < exact.decode.size(); ++i) {
    decode.push_back(exact.decode[i] / fast.decode[i]);
    prefill.push_back(exact.prefill[i] / fast.prefill[i]);
  }
  if (flags.json) {
    std::puts(
        DumpJson({{"exact_over_fast_decode", Median(decode)}, {"exact_over_fast_prefill", Median(prefill)}}).c_str());
  } else {
    std::printf("exact over fast, median of %ld interleaved rounds: decode %.3f, prefill %.3f\n", flags.rounds,
                Median(decode), Median(prefill));
  }
}

// Rounds of all series in turn; returns the median rate of the plain read between them.
Result<double> Interleave(const BenchFlags& flags, std::vector<Series>* series, ReadLoop* read) {
  std::vector<double> reads;
  int64_t next_id = 0;
  const size_t count = series->size();
  for (int64_t round = -1; round < flags.rounds; ++round) {  // the first warms up
    for (size_t i = 0; i < count; ++i) {
      // Who goes first changes from round to round: the second finds a warmer processor.
      Series& one = (*series)[(i + static_cast<size_t>(round & 1)) % count];
      TRY_ASSIGN(const Sample sample, Round(one.engine, flags, &next_id));
      if (round < 0) continue;
      one.prefill.push_back(sample.prefill_s);
      one.decode.push_back(sample.decode_s);
      one.gaps_us.insert(one.gaps_us.end(), sample.gaps_us.begin(), sample.gaps_us.end());
      one.parts_us.insert(one.parts_us.end(), sample.parts_us.begin(), sample.parts_us.end());
    }
    reads.push_back(read->Pass());
  }
  return Median(reads);
}

Status Execute(BenchFlags flags) {
  if (flags.engine.layout.model.empty()) {
    return MakeError(Code::kUsage, "bench: expected MODEL, allreduce or p2p, found none; see trivet bench --help");
  }
  if (flags.tokens < 2) {
    return MakeError(Code::kUsage,
                     fmt::format("--tokens: expected at least 2, of which the first ends the prompt, found {}; "
                                 "choose more",
                                 flags.tokens));
  }
  const int64_t needed = flags.prompt + flags.tokens;
  for (const auto& [name, value] : {std::pair{"--prompt-tokens", flags.prompt},
                                    {"--tokens", flags.tokens},
                                    {"--rounds", flags.rounds},
                                    {"--sequences", flags.sequences}}) {
    if (value >= 1 && value <= 1000000) continue;
    return MakeError(Code::kUsage,
                     fmt::format("{}: expected 1 to 1000000, found {}; choose a value in that range", name, value));
  }
  flags.engine.sizes.max_context = needed;
  flags.engine.sizes.max_sequences = flags.sequences;
  TRY_ASSIGN(engine::EngineOptions options, flags.engine.Options());
  options.time_replays = !flags.parts;
  options.time_parts = flags.parts;
  options.prefill_budget = options.prefill_chunk;  // all prompts first, then steps that only decode
  TRY_ASSIGN(const Loaded loaded, Load(flags.engine, options));
  const bool fast_first = options.numerics == kernels::Numerics::kFast;
  std::unique_ptr<engine::Engine> other;
  std::vector<Series> series = {{flags.engine.numerics.c_str(), loaded.engine.get(), {}, {}, {}, {}}};
  if (!flags.alone) {
    options.numerics = fast_first ? kernels::Numerics::kExact : kernels::Numerics::kFast;
    TRY_ASSIGN(other, engine::Engine::Start(*loaded.model, options, {}));
    series.push_back({fast_first ? "exact" : "fast", other.get(), {}, {}, {}, {}});
    if (fast_first) std::swap(series[0], series[1]);
  }
  double step_bytes = 0, weights = 0;  // of all ranks: they share the machine's memory
  for (const plan::RankCost& rank : loaded.engine->cost().ranks) {
    step_bytes += static_cast<double>(rank.step_bytes * loaded.engine->layout().replicas);
    weights += static_cast<double>(rank.weight_bytes * loaded.engine->layout().replicas);
  }
  const int threads = loaded.engine->rank_options().threads * static_cast<int>(loaded.engine->layout().world());
  TRY_ASSIGN(const std::unique_ptr<ReadLoop> read,
             ReadLoop::Make(loaded.engine->device(), static_cast<int64_t>(weights), threads));
  TRY_ASSIGN(const double read_rate, Interleave(flags, &series, read.get()));
  for (const Series& one : series) Print(flags, one, step_bytes, read_rate);
  if (flags.parts) PrintParts(flags, series[0], read_rate);
  if (series.size() == 2) PrintRatios(flags, series[0], series[1]);
  return {};
}

// What is given in front of a measurement's name would belong to `bench` itself.
Status CheckNothingBefore(const CLI::App& app, const CLI::App& measurement) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    return MakeError(Code::kUsage,
                     fmt::format("bench {0}: expected its flags behind the name, found {1} in front of it; "
                                 "see bench {0} --help",
                                 measurement.get_name(), option->get_name()));
  }
  return {};
}

}  // namespace

Run AddBench(CLI::App* app) {
  auto flags = std::make_shared<BenchFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  flags->engine.Add(app);
  flags->engine.layout.AddDummy(app);
  for (const char* fixed : {"--max-model-len", "--max-num-seqs"}) app->remove_option(app->get_option(fixed));
  app->add_option("--prompt-tokens", flags->prompt, "prompt length of each sequence");
  app->add_option("--tokens", flags->tokens, "tokens to decode for each sequence");
  app->add_option("--sequences", flags->sequences, "sequences at once");
  app->add_option("--rounds", flags->rounds, "rounds of each numerics, in turn; medians are printed");
  app->add_flag("--alone", flags->alone, "measure the chosen numerics alone instead of exact against fast");
  app->get_option("--numerics")->needs(app->get_option("--alone"));
  app->add_flag(
         "--parts", flags->parts,
         "and where the time of a decode step goes: of every part of it time, bytes and share of a plain read; on "
         "a GPU steps are not recorded then")
      ->needs(app->get_option("--alone"));
  app->add_flag("--json", flags->json, "JSON lines");
  // The library would take a required MODEL before the name of a measurement that has none.
  app->get_option("MODEL")->required(false);
  const auto without_model = [&](const char* name, const char* summary) {
    CLI::App* sub = app->add_subcommand(name, summary);
    sub->option_defaults()->take_last()->always_capture_default();
    return sub;
  };
  CLI::App* sums = without_model("allreduce", "measure sums over ranks by size, or check very many of them");
  CLI::App* links = without_model("p2p", "measure the link between every two ranks");
  return [app, flags, sums, links, run_sums = AddBenchAllReduce(sums), run_links = AddBenchPeers(links)]() -> Status {
    for (const CLI::App* measurement : {sums, links}) {
      if (measurement->parsed()) TRY(CheckNothingBefore(*app, *measurement));
    }
    if (sums->parsed()) return run_sums();
    if (links->parsed()) return run_links();
    return Execute(*flags);
  };
}

}  // namespace trivet::cli
