// SPDX-License-Identifier: Apache-2.0
// Times of steps while a long prompt is prefilled beside decoders, without a server, under one prefill budget and
// another in turn: step_times DIR DECODERS PROMPT_TOKENS ROUNDS PREFILL_BUDGET..., where 0 is the scheduler's own.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/open_model.h"

namespace trivet {
namespace {

std::vector<TokenId> Prompt(int64_t id, int64_t length) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(10 + (id * 131 + i * 17) % 900));
  return tokens;
}

// Processor time of this thread, which does all of a step's work: what a step takes when nobody else uses the machine.
double ProcessorMs() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// What the rounds of one budget have seen.
struct Series {
  int64_t budget;
  std::unique_ptr<engine::Engine> engine;
  std::vector<double> steady_ms, stretch, longest, modelled, prompt_ms;  // one a round, but stretch one a step
};

// Decoders alone, then beside a prompt until it is through.
class Round {
 public:
  Round(Series* series, int64_t decoders, int64_t prompt) : series_(*series), decoders_(decoders), prompt_(prompt) {}

  Status Run(int64_t first_id) {
    last_ = first_id + decoders_;
    for (int64_t id = first_id; id < last_; ++id)
      TRY(Submit(id, kDecoderPrompt, static_cast<int32_t>(prompt_) + kSteady));
    while (engine().counts().running < decoders_ || engine().step_tokens() != decoders_) TRY(Step());
    std::vector<double> before;
    for (int i = 0; i < 40; ++i) {
      TRY_ASSIGN(const double ms, Step());
      before.push_back(ms);
    }
    const double median = Median(before);
    TRY(Submit(last_, prompt_, 1));
    double longest = 0, modelled = 0, all = 0;
    for (int64_t computed = 0; !through_;) {
      TRY_ASSIGN(const double ms, Step());
      const int64_t count = engine().step_tokens() - decoders_;
      modelled = std::max(modelled, Modelled(computed, count));
      computed += count;
      series_.stretch.push_back(ms / median);
      longest = std::max(longest, ms / median);
      all += ms;
    }
    series_.steady_ms.push_back(median);
    series_.longest.push_back(longest);
    series_.modelled.push_back(modelled);
    series_.prompt_ms.push_back(all);
    for (int64_t id = first_id; id <= last_; ++id) engine().Finish(SeqId{id});
    return {};
  }

 private:
  static constexpr int64_t kDecoderPrompt = 16;
  static constexpr int32_t kSteady = 100;  // decoders outlast the prompt by so many tokens

  engine::Engine& engine() { return *series_.engine; }

  Status Submit(int64_t id, int64_t length, int32_t most) {
    return engine().Submit({SeqId{id}, Prompt(id, length), most, 0, sched::LogitsMode::kLast});
  }

  Result<double> Step() {
    const double begin = ProcessorMs();
    TRY(engine().Step([&](const sched::Span& span, const engine::SpanOutput&, bool) -> Result<std::optional<TokenId>> {
      through_ = through_ || span.seq == SeqId{last_};
      position_ = span.start;
      return std::optional<TokenId>(static_cast<TokenId>(10 + (span.start * 7) % 900));
    }));
    return ProcessorMs() - begin;
  }

  // How much longer the scheduler takes the last step to be than one without the prompt's tokens.
  double Modelled(int64_t start, int64_t count) {
    sched::StepWork work(&engine().limits().cost);
    for (int64_t i = 0; i < decoders_; ++i) work = work.With({position_, 1, 1});
    return work.With({start, count, start + count == prompt_ ? 1 : 0}).total() / work.total();
  }

  Series& series_;
  const int64_t decoders_, prompt_;
  int64_t last_ = 0, position_ = 0;
  bool through_ = false;
};

double Percentile(std::vector<double> values, size_t percent) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, values.size() * percent / 100)];
}

Status Measure(const std::string& dir, int64_t decoders, int64_t prompt, int64_t rounds,
               const std::vector<int64_t>& budgets) {
  TRY_ASSIGN(const engine::OpenedModel model, engine::OpenModel(dir, dir));
  std::vector<Series> all;
  for (const int64_t budget : budgets) {
    engine::EngineOptions options;
    options.threads = 1;
    options.max_sequences = decoders + 1;
    options.max_context = std::min(prompt + 200, model.geometry.max_positions);
    options.kv_tokens = (decoders + 1) * (options.max_context + 64);
    options.prefill_budget = budget;
    TRY_ASSIGN(std::unique_ptr<engine::Engine> engine, engine::Engine::Start(model, options, {}));
    all.push_back({budget, std::move(engine), {}, {}, {}, {}, {}});
  }
  for (int64_t round = 0; round < rounds; ++round) {
    for (Series& series : all) TRY(Round(&series, decoders, prompt).Run(round * (decoders + 1)));
  }
  std::printf("%ld decoders, a prompt of %ld tokens, %ld rounds in turn; a median step without a prompt is 1\n",
              decoders, prompt, rounds);
  for (const Series& series : all) {
    std::printf(
        "budget %3ld: step without %.2f ms; with a prompt: median %.2f, 90 %% %.2f, 99 %% %.2f; longest of a round: "
        "median %.2f, least %.2f; by the scheduler's model %.2f; prompt through in %.0f ms\n",
        series.budget, Median(series.steady_ms), Median(series.stretch), Percentile(series.stretch, 90),
        Percentile(series.stretch, 99), Median(series.longest), Percentile(series.longest, 0), Median(series.modelled),
        Median(series.prompt_ms));
  }
  return {};
}

}  // namespace
}  // namespace trivet

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: step_times DIR DECODERS PROMPT_TOKENS ROUNDS PREFILL_BUDGET...\n");
    return 2;
  }
  std::vector<int64_t> budgets;
  for (int i = 5; i < argc; ++i) budgets.push_back(std::atol(argv[i]));
  const trivet::Status status =
      trivet::Measure(argv[1], std::atol(argv[2]), std::atol(argv[3]), std::atol(argv[4]), budgets);
  if (!status.ok()) std::fprintf(stderr, "step_times: %s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
