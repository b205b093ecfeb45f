// SPDX-License-Identifier: Apache-2.0
#include "tests/support/model_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "base/check.h"
#include "checkpoint/checkpoint.h"

namespace trivet::support {
namespace {

template <class T>
std::vector<T> ReadTensor(const checkpoint::Checkpoint& file, const std::string& name) {
  const checkpoint::TensorInfo* info = file.Find(name);
  if (info == nullptr) return {};
  std::vector<T> values(static_cast<size_t>(info->bytes) / sizeof(T));
  CHECK(file.Read(*info, 0, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

GoldenCase ReadCase(const checkpoint::Checkpoint& file, const std::string& prefix) {
  const std::vector<int64_t> tokens = ReadTensor<int64_t>(file, prefix + "tokens");
  return {{tokens.begin(), tokens.end()},
          ReadTensor<float>(file, prefix + "logits"),
          ReadTensor<float>(file, prefix + "hidden")};
}

}  // namespace

engine::OpenedModel Open(const std::string& dir) {
  Result<engine::OpenedModel> model = engine::OpenModel(dir, dir);
  CHECK_MSG(model.ok(), model.error().message);
  return std::move(model).value();
}

std::vector<GoldenCase> ReadGolden(const std::string& path) {
  std::vector<std::string> notices;
  const Result<checkpoint::Checkpoint> file = checkpoint::Checkpoint::Open(path, &notices);
  CHECK_MSG(file.ok(), file.error().message);
  std::vector<GoldenCase> cases;
  if (file->Find("tokens") != nullptr) cases.push_back(ReadCase(*file, ""));
  for (int i = 0; file->Find(fmt::format("case{}.tokens", i)) != nullptr; ++i) {
    cases.push_back(ReadCase(*file, fmt::format("case{}.", i)));
  }
  CHECK(!cases.empty());
  return cases;
}

std::vector<TokenId> RandomTokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(vocab)));
  return tokens;
}

TokenSet TwoThousandTokens(const std::vector<GoldenCase>& golden, int64_t vocab) {
  constexpr int64_t kTotal = 2000, kLong = 640;
  TokenSet set;
  for (const GoldenCase& one : golden) set.push_back(one.tokens);
  for (const int64_t length : {1, 2, 3, 7, 63, 64, 65, 127, 128, 129}) {
    set.push_back(RandomTokens(length, vocab, static_cast<uint64_t>(length)));
  }
  set.push_back(RandomTokens(kLong, vocab, 1));
  set.emplace_back(200, static_cast<TokenId>(vocab - 1));  // one token over and over
  std::vector<TokenId> cycle;
  for (int64_t i = 0; i < 193; ++i) cycle.push_back(golden[0].tokens[static_cast<size_t>(i) % golden[0].tokens.size()]);
  set.push_back(std::move(cycle));
  set.push_back(RandomTokens(kTotal - Count(set), vocab, 2));
  CHECK(Count(set) == kTotal);
  return set;
}

int64_t Count(const TokenSet& set) {
  size_t count = 0;
  for (const std::vector<TokenId>& sequence : set) count += sequence.size();
  return static_cast<int64_t>(count);
}

Result<std::vector<float>> ScoreAll(engine::Engine* engine, const TokenSet& set, size_t batch) {
  const size_t step = batch == 0 ? std::max<size_t>(1, set.size()) : batch;
  std::vector<float> logits;
  logits.reserve(static_cast<size_t>(Count(set) * engine->model().geometry.vocab));
  for (size_t begin = 0; begin < set.size(); begin += step) {
    const auto from = set.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = set.begin() + static_cast<std::ptrdiff_t>(std::min(begin + step, set.size()));
    TRY_ASSIGN(const std::vector<engine::ScoredSequence> scored, engine::Score(engine, {{from, to}, false, false}));
    for (const engine::ScoredSequence& one : scored) logits.insert(logits.end(), one.logits.begin(), one.logits.end());
  }
  return logits;
}

Result<std::vector<float>> Logits(const engine::OpenedModel& model, const engine::EngineOptions& options,
                                  const TokenSet& set, size_t batch) {
  TRY_ASSIGN(const std::unique_ptr<engine::Engine> engine, engine::Engine::Start(model, options, {}));
  return ScoreAll(engine.get(), set, batch);
}

Result<TokenSet> Continue(engine::Engine* engine, const TokenSet& prompts, int32_t max_new,
                          const std::vector<sched::LogitsMode>& modes,
                          const std::vector<sampling::SamplingParams>& sampling) {
  const int64_t vocab = engine->model().geometry.vocab;
  TokenSet answers(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    TRY(engine->Submit({SeqId{static_cast<int64_t>(i)}, prompts[i], max_new, 0, modes[i]},
                       [&sampling, i](int64_t position) { return sampling::RuleOf(sampling[i], i, position); }));
  }
  bool more = true;
  while (more) {
    TRY_ASSIGN(more, engine->Step([&](const sched::Span& span, const engine::SpanOutput& output,
                                      bool wanted) -> Result<std::optional<TokenId>> {
      if (!wanted) return std::optional<TokenId>();
      const auto i = static_cast<size_t>(span.seq);
      CHECK(output.drawn.has_value() == (modes[i] == sched::LogitsMode::kDrawn));
      CHECK(output.logits.empty() == output.drawn.has_value());
      TokenId token = 0;
      if (output.drawn) {
        TRY_ASSIGN(token, sampling::TokenOf(*output.drawn, vocab));
      } else {
        TRY_ASSIGN(const sampling::SampleResult sampled,
                   sampling::Sample(output.logits.last(static_cast<size_t>(vocab)), sampling[i], {}, i,
                                    int64_t{span.start} + span.count));
        token = sampled.token;
      }
      answers[i].push_back(token);
      return std::optional(token);
    }));
  }
  for (size_t i = 0; i < prompts.size(); ++i) engine->Finish(SeqId{static_cast<int64_t>(i)});
  return answers;
}

std::vector<sampling::SamplingParams> WaysToSample(size_t count) {
  std::vector<sampling::SamplingParams> all(count);
  for (size_t i = 0; i < count; ++i) {
    sampling::SamplingParams& one = all[i];
    one.temperature = i == 0 ? 0 : 0.5 + 0.3 * static_cast<double>(i % 4);
    one.top_k = i % 3 == 2 ? 12 : 0;
    one.top_p = i % 4 >= 2 ? 0.9 : 1;
    one.min_p = i % 5 == 4 ? 0.01 : 0;
    one.seed = i;
  }
  return all;
}

std::string FirstDifference(const std::vector<float>& a, const std::vector<float>& b, int64_t vocab) {
  if (a.size() != b.size()) return fmt::format("{} logits against {}", a.size(), b.size());
  if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) return "";
  size_t i = 0;
  while (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) ++i;
  const auto row = static_cast<size_t>(vocab);
  return fmt::format("token {} id {}: {} against {}", i / row, i % row, a[i], b[i]);
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kNever;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = std::isnan(difference) ? kNever : difference;
  }
  return largest;
}

std::string Describe(const engine::EngineOptions& options) {
  std::string text = fmt::format("N={}", options.layout.ranks);
  if (options.layout.context > 1) {
    text += fmt::format(" cp={} {} stretch={}", options.layout.context,
                        plan::SequenceSplitName(options.layout.context_split), options.layout.context_stretch);
  }
  if (options.layout.sequence_parallel) text += " sp";
  if (options.layout.stages > 1) text += fmt::format(" pp={}", options.layout.stages);
  if (!options.layout.stage_layers.empty()) {
    text += fmt::format(" layers={}", fmt::join(options.layout.stage_layers, ","));
  }
  if (options.layout.replicas > 1) text += fmt::format(" dp={}", options.layout.replicas);
  if (options.launch == engine::Launch::kProcesses) text += " processes";
  if (options.layout.pad_to > 0) text += fmt::format(" pad_to={}", options.layout.pad_to);
  for (const auto& [axis, cut] : options.layout.cuts) text += fmt::format(" {}={}", axis, cut);
  if (options.layout.ep > 0) text += fmt::format(" ep={}", options.layout.ep);
  if (options.layout.placement) {
    text += fmt::format(" placement={}", fmt::join(options.layout.placement->Sizes(), "/"));
  }
  if (!options.kernels.rows.empty()) text += " rows=" + options.kernels.rows;
  if (options.prefill_chunk != engine::EngineOptions{}.prefill_chunk)
    text += fmt::format(" chunk={}", options.prefill_chunk);
  if (options.threads > 0) text += fmt::format(" threads={}", options.threads);
  if (options.numerics == kernels::Numerics::kFast) text += " fast";
  if (options.kernels.contract == kernels::Contract::kPortable) text += " portable";
  if (options.kv_dtype == cache::KvDtype::kE4M3) text += " kv=fp8";
  return text;
}

}  // namespace trivet::support
