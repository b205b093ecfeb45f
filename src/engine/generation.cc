// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"

namespace trivet::engine {

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
  }
  return "none";
}

Result<int64_t> Generator::Submit(GenerationRequest request) {
  TRY(sampling::Validate(request.sampling));
  TRY_ASSIGN(sampling::StopMatcher stop, sampling::StopMatcher::Make(request.stop));
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t context = engine_->limits().max_context;
  if (prompt >= context) {
    return MakeError(Code::kCapacity,
                     fmt::format("prompt: expected at most {} tokens, so that one more fits the context of "
                                 "{}, found {}; shorten it, or raise --max-model-len or --kv-tokens",
                                 context - 1, context, prompt));
  }
  if (request.max_tokens <= 0 || request.max_tokens > context - prompt) request.max_tokens = context - prompt;
  const SeqId id{submitted_};
  sched::Request sequence;
  sequence.id = id;
  sequence.prompt = request.prompt;
  sequence.max_new_tokens = static_cast<int32_t>(request.max_tokens);
  TRY(engine_->Submit(std::move(sequence)));
  auto active = std::unique_ptr<Active>(
      new Active{std::move(request), {}, {}, text::StreamingDetokenizer(tokenizer_, true), std::move(stop)});
  active->generation.index = submitted_;
  active->generation.prompt = active->request.prompt;
  active->history.AddPrompt(active->request.prompt);
  active_.emplace(id, std::move(active));
  return submitted_++;
}

Result<TokenId> Generator::Take(Active* active, std::span<const float> logits, const GenerationSink& sink) {
  Generation& generation = active->generation;
  const auto position = static_cast<int64_t>(generation.prompt.size() + generation.tokens.size());
  sampling::SamplingParams params = active->request.sampling;
  if (!active->request.logprobs) params.logprobs = -1;
  // Seed and position alone: a text does not depend on its place in a batch.
  TRY_ASSIGN(sampling::SampleResult result, sampling::Sample(logits, params, active->history, 0, position));
  const TokenId token = result.token;
  active->history.AddOutput(token);
  generation.tokens.push_back(token);
  if (active->request.logprobs) generation.logprobs.push_back(std::move(result));
  std::string piece;
  const bool end = std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
  if (end && !active->request.ignore_eos) {
    generation.finish = FinishReason::kStop;
  } else {
    piece = active->stop.Push(active->detokenizer.Push(token));
    if (active->stop.matched()) {
      generation.finish = FinishReason::kStop;
    } else if (static_cast<int64_t>(generation.tokens.size()) >= active->request.max_tokens) {
      generation.finish = FinishReason::kLength;
    }
  }
  if (generation.finish != FinishReason::kNone && !active->stop.matched()) {
    piece += active->stop.Push(active->detokenizer.Flush());
    piece += active->stop.Flush();
  }
  generation.text += piece;
  sink(generation, piece);
  return token;
}

Status Generator::Run(const GenerationSink& sink) {
  while (!active_.empty()) {
    const int64_t begin = NowUs();
    int64_t sampled = 0;
    std::vector<SeqId> ended;
    const Result<bool> stepped = engine_->Step(
        [&](const sched::Span& span, std::span<const float> logits, bool) -> Result<std::optional<TokenId>> {
          Active* active = active_.at(span.seq).get();
          ++sampled;
          TRY_ASSIGN(const TokenId token, Take(active, logits, sink));
          if (active->generation.finish != FinishReason::kNone) ended.push_back(span.seq);
          return std::optional<TokenId>(token);
        });
    TRY(stepped);
    CHECK(*stepped);
    const int64_t tokens = engine_->step_tokens();
    const double seconds = static_cast<double>(NowUs() - begin) * 1e-6;
    (tokens > sampled ? times_.prompt_s : times_.decode_s) += seconds;
    (tokens > sampled ? times_.prompt_tokens : times_.decode_tokens) += tokens;
    for (const SeqId id : ended) {
      engine_->Finish(id);
      active_.erase(id);
    }
  }
  return {};
}

}  // namespace trivet::engine
