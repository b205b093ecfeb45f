// SPDX-License-Identifier: Apache-2.0
// Times of steps while a long prompt is prefilled beside decoders, without a server, under one prefill budget and
// another in turn: step_times DIR DECODERS PROMPT_TOKENS ROUNDS PREFILL_BUDGET..., where 0 is the scheduler's own. Of
// every long step it says what the system did meanwhile.
#include <sys/resource.h>
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

// What the system did to this thread so far: pages that it gave it, and how often it ran something else instead.
struct Interference {
  int64_t pages = 0, preemptions = 0;

  static Interference Now() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return {usage.ru_minflt, usage.ru_nivcsw};
  }
};

struct StepFacts {
  double ms = 0;
  Interference met;
  int64_t computed = 0, count = 0;  // tokens of the prompt before it, and in it
  double stretch = 0;               // over a step without the prompt
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// What the rounds of one budget have seen.
struct Series {
  int64_t budget;
  std::unique_ptr<engine::Engine> engine;
  std::vector<double> steady_ms, later_ms, stretch, longest, modelled,
      prompt_ms;                           // one a round, but stretch one a step
  std::vector<StepFacts> long_steps = {};  // those of more than kMostStretch
};

constexpr double kMostStretch = 3;  // the aim

// Decoders alone, then beside a prompt until it is through.
class Round {
 public:
  Round(Series* series, int64_t decoders, int64_t prompt) : series_(*series), decoders_(decoders), prompt_(prompt) {}

  Status Run(int64_t first_id) {
    last_ = first_id + decoders_;
    for (int64_t id = first_id; id < last_; ++id)
      TRY(Submit(id, kDecoderPrompt, static_cast<int32_t>(prompt_) + kSteady));
    while (engine().counts().running < decoders_ || engine().step_tokens() != decoders_) TRY(Step());
    TRY_ASSIGN(const double before, MedianStep());
    TRY(Submit(last_, prompt_, 1));
    double modelled = 0;
    std::vector<StepFacts> steps;
    for (int64_t computed = 0; !through_;) {
      TRY_ASSIGN(StepFacts step, Step());
      step.computed = computed;
      step.count = engine().step_tokens() - decoders_;
      modelled = std::max(modelled, Modelled(computed, step.count));
      computed += step.count;
      steps.push_back(step);
    }
    TRY_ASSIGN(const double after, MedianStep());
    Take(steps, before, after);
    series_.steady_ms.push_back(before);
    series_.later_ms.push_back(after);
    series_.modelled.push_back(modelled);
    for (int64_t id = first_id; id <= last_; ++id) engine().Finish(SeqId{id});
    return {};
  }

 private:
  static constexpr int64_t kDecoderPrompt = 16;
  static constexpr int kAlone = 40;        // steps without the prompt before it, and as many after it
  static constexpr int32_t kSteady = 150;  // decoders outlast the prompt by so many tokens

  engine::Engine& engine() { return *series_.engine; }

  Status Submit(int64_t id, int64_t length, int32_t most) {
    return engine().Submit({SeqId{id}, Prompt(id, length), most, 0, sched::LogitsMode::kLast});
  }

  Result<double> MedianStep() {
    std::vector<double> ms;
    for (int i = 0; i < kAlone; ++i) {
      TRY_ASSIGN(const StepFacts step, Step());
      ms.push_back(step.ms);
    }
    return Median(ms);
  }

  // Compares the steps beside the prompt with what they would have taken without it. That grows meanwhile: the decoders
  // see ever more of their own keys.
  void Take(std::vector<StepFacts> steps, double before, double after) {
    double longest = 0, all = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      StepFacts& step = steps[i];
      const double alone = before + (after - before) * static_cast<double>(i + 1) / static_cast<double>(steps.size());
      step.stretch = step.ms / alone;
      series_.stretch.push_back(step.stretch);
      longest = std::max(longest, step.stretch);
      all += step.ms;
      if (step.stretch > kMostStretch) series_.long_steps.push_back(step);
    }
    series_.longest.push_back(longest);
    series_.prompt_ms.push_back(all);
  }

  Result<StepFacts> Step() {
    const Interference before = Interference::Now();
    const double begin = ProcessorMs();
    TRY(engine().Step([&](const sched::Span& span, const engine::SpanOutput&, bool) -> Result<std::optional<TokenId>> {
      through_ = through_ || span.seq == SeqId{last_};
      position_ = span.start;
      return std::optional<TokenId>(static_cast<TokenId>(10 + (span.start * 7) % 900));
    }));
    StepFacts facts;
    facts.ms = ProcessorMs() - begin;
    const Interference after = Interference::Now();
    facts.met = {after.pages - before.pages, after.preemptions - before.preemptions};
    return facts;
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

// Whose the long steps are: the system's, when it took the processor away or gave pages of memory, or ours.
void PrintLongSteps(const Series& series) {
  size_t paged = 0, preempted = 0;
  std::vector<StepFacts> ours;
  for (const StepFacts& step : series.long_steps) {
    paged += step.met.pages > 0;
    preempted += step.met.pages == 0 && step.met.preemptions > 0;
    if (step.met.pages == 0 && step.met.preemptions == 0) ours.push_back(step);
  }
  std::printf("  %zu of %zu steps above %.0f: %zu were given memory, %zu more lost the processor, %zu neither\n",
              series.long_steps.size(), series.stretch.size(), kMostStretch, paged, preempted, ours.size());
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(kShown, ours.size()); ++i) {
    std::printf("    %.2f: %ld tokens behind %ld of the prompt\n", ours[i].stretch, ours[i].count, ours[i].computed);
  }
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
    options.prefix_cache = true;  // as a server has it: states are copied at borders of pages
    TRY_ASSIGN(std::unique_ptr<engine::Engine> engine, engine::Engine::Start(model, options, {}));
    all.push_back({budget, std::move(engine), {}, {}, {}, {}, {}, {}});
  }
  for (int64_t round = 0; round < rounds; ++round) {
    for (Series& series : all) TRY(Round(&series, decoders, prompt).Run(round * (decoders + 1)));
  }
  std::printf("%ld decoders, a prompt of %ld tokens, %ld rounds in turn; a step without the prompt is 1\n", decoders,
              prompt, rounds);
  for (const Series& series : all) {
    std::printf(
        "budget %3ld: step without %.2f ms, after the prompt %.2f; with a prompt: median %.2f, 90 %% %.2f, 99 %% %.2f; "
        "longest of a round: "
        "median %.2f, least %.2f; by the scheduler's model %.2f; prompt through in %.0f ms\n",
        series.budget, Median(series.steady_ms), Median(series.later_ms), Median(series.stretch),
        Percentile(series.stretch, 90), Percentile(series.stretch, 99), Median(series.longest),
        Percentile(series.longest, 0), Median(series.modelled), Median(series.prompt_ms));
    PrintLongSteps(series);
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
