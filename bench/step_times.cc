// SPDX-License-Identifier: Apache-2.0
// Times of steps while a long prompt is prefilled beside decoders, without a server:
// step_times DIR DECODERS PROMPT_TOKENS [PREFILL_BUDGET].
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/open_model.h"

namespace trivet {
namespace {

std::vector<TokenId> Prompt(int64_t id, int64_t length) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(10 + (id * 131 + i * 17) % 900));
  return tokens;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

Status Measure(const std::string& dir, int64_t decoders, int64_t prompt, int64_t budget) {
  TRY_ASSIGN(const engine::OpenedModel model, engine::OpenModel(dir, dir));
  engine::EngineOptions options;
  options.max_sequences = decoders + 1;
  options.prefill_budget = budget;
  TRY_ASSIGN(const std::unique_ptr<engine::Engine> engine, engine::Engine::Start(model, options, {}));
  const auto submit = [&](int64_t id, int64_t length, int32_t most) {
    return engine->Submit({SeqId{id}, Prompt(id, length), most, 0, sched::LogitsMode::kLast});
  };
  bool through = false;
  const auto step = [&]() -> Result<double> {
    const int64_t begin = NowUs();
    TRY(engine->Step([&](const sched::Span& span, std::span<const float>, bool) -> Result<std::optional<TokenId>> {
      through = through || span.seq == SeqId{decoders};
      return std::optional<TokenId>(static_cast<TokenId>(10 + (span.start * 7) % 900));
    }));
    return static_cast<double>(NowUs() - begin) * 1e-3;
  };
  for (int64_t id = 0; id < decoders; ++id) TRY(submit(id, 16, 400));
  while (engine->counts().running < decoders || engine->step_tokens() != decoders) TRY(step());
  std::vector<double> before, during;
  for (int i = 0; i < 40; ++i) {
    TRY_ASSIGN(const double ms, step());
    before.push_back(ms);
  }
  TRY(submit(decoders, prompt, 1));
  while (!through) {
    TRY_ASSIGN(const double ms, step());
    during.push_back(ms);
  }
  const double median = Median(before), longest = *std::max_element(during.begin(), during.end());
  std::printf(
      "%ld decoders: median step %.1f ms; %zu steps with a prompt of %ld tokens: median %.1f ms = %.2f, longest "
      "%.1f ms = %.2f of it\n",
      decoders, median, during.size(), prompt, Median(during), Median(during) / median, longest, longest / median);
  return {};
}

}  // namespace
}  // namespace trivet

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: step_times DIR DECODERS PROMPT_TOKENS [PREFILL_BUDGET]\n");
    return 2;
  }
  const trivet::Status status =
      trivet::Measure(argv[1], std::atol(argv[2]), std::atol(argv[3]), argc > 4 ? std::atol(argv[4]) : 0);
  if (!status.ok()) std::fprintf(stderr, "step_times: %s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
