// SPDX-License-Identifier: Apache-2.0
#include "engine/scoring.h"

#include <algorithm>
#include <cmath>

namespace trivet::engine {
namespace {

// Appends the hidden states of one span, [count, H] of every layer.
void TakeHidden(const Engine& engine, const sched::Span& span, ScoredSequence* out) {
  const auto layers = engine.model().geometry.layers.size();
  out->hidden.resize(layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    const std::span<const float> rows = engine.Hidden(span, layer);
    out->hidden[layer].insert(out->hidden[layer].end(), rows.begin(), rows.end());
  }
}

// The sequences under way: ended however scoring ends, so that the engine can be asked again.
class Submitted {
 public:
  explicit Submitted(Engine* engine) : engine_(engine) {}
  ~Submitted() {
    for (int64_t i = 0; i < count_; ++i) engine_->Finish(SeqId{i});
  }
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;

  Status Add(std::vector<TokenId> tokens, sched::LogitsMode logits) {
    sched::Request request;
    request.id = SeqId{count_};
    request.prompt = std::move(tokens);
    request.logits = logits;
    TRY(engine_->Submit(std::move(request)));
    ++count_;
    return {};
  }

 private:
  Engine* engine_;
  int64_t count_ = 0;
};

}  // namespace

Result<std::vector<ScoredSequence>> Score(Engine* engine, const ScoreRequest& request) {
  std::vector<ScoredSequence> scored(request.sequences.size());
  if (request.hidden) engine->KeepHidden();
  // Hidden states are read off spans, and only spans with logits are shown.
  const bool last = request.last_only && !request.hidden;
  Submitted submitted(engine);
  for (const std::vector<TokenId>& sequence : request.sequences) {
    TRY(submitted.Add(sequence, last ? sched::LogitsMode::kLast : sched::LogitsMode::kAll));
  }
  bool more = true;
  while (more) {
    TRY_ASSIGN(more, engine->Step([&](const sched::Span& span, const SpanOutput& output,
                                      bool) -> Result<std::optional<TokenId>> {
      const auto i = static_cast<size_t>(span.seq);
      ScoredSequence& out = scored[i];
      if (request.last_only) out.logits.clear();
      const std::span<const float> kept =
          request.last_only ? output.logits.last(static_cast<size_t>(engine->model().geometry.vocab)) : output.logits;
      out.logits.insert(out.logits.end(), kept.begin(), kept.end());
      if (request.hidden) TakeHidden(*engine, span, &out);
      return std::optional<TokenId>();
    }));
  }
  return scored;
}

std::vector<double> TokenLogprobs(std::span<const TokenId> tokens, std::span<const float> logits, int64_t vocab) {
  std::vector<double> logprobs;
  for (size_t t = 0; t + 1 < tokens.size(); ++t) {
    const std::span<const float> row = logits.subspan(t * static_cast<size_t>(vocab), static_cast<size_t>(vocab));
    const double max = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float value : row) sum += std::exp(static_cast<double>(value) - max);
    logprobs.push_back(static_cast<double>(row[static_cast<size_t>(tokens[t + 1])]) - max - std::log(sum));
  }
  return logprobs;
}

}  // namespace trivet::engine
