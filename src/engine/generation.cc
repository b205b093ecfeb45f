// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace trivet::engine {
namespace {

// Whether a request needs nothing of logits but a token that is drawn from them.
bool TokenIsAll(const GenerationRequest& request) {
  return sampling::IsRuled(request.sampling) && !request.logprobs && request.constraint == nullptr &&
         request.min_tokens == 0;
}

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kError:
      return "error";
  }
  return "none";
}

Result<int64_t> Generator::Submit(GenerationRequest request) {
  TRY(sampling::Validate(request.sampling));
  using Cut = sampling::StopMatcher::Cut;
  TRY_ASSIGN(sampling::StopMatcher stop,
             sampling::StopMatcher::Make(request.stop, request.include_stop ? Cut::kAfter : Cut::kBefore));
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t context = engine_->limits().max_context;
  const int64_t room = context - prompt;
  if (room < (request.max_tokens == 0 ? 0 : 1)) {
    return MakeError(Code::kCapacity,
                     fmt::format("prompt: expected at most {} tokens, so that one more fits the context of "
                                 "{}, found {}; shorten it, or raise --max-model-len or --kv-tokens",
                                 context - 1, context, prompt));
  }
  request.max_tokens = std::clamp<int64_t>(request.max_tokens.value_or(room), 0, room);
  const SeqId id{submitted_};
  sched::Request sequence;
  sequence.id = id;
  sequence.prompt = request.prompt;
  sequence.priority = request.priority;
  sequence.max_new_tokens = static_cast<int32_t>(*request.max_tokens);
  if (TokenIsAll(request)) sequence.logits = sched::LogitsMode::kDrawn;
  if (request.prompt_logprobs) sequence.logits = sched::LogitsMode::kAll;
  // Seed, choice and position alone: a text does not depend on its place in a batch.
  TRY(engine_->Submit(std::move(sequence), [params = request.sampling, choice = request.choice](int64_t position) {
    return sampling::RuleOf(params, choice, position);
  }));
  text::StreamingDetokenizer detokenizer(tokenizer_, !request.special_tokens);
  auto active = std::unique_ptr<Active>(
      new Active{std::move(request), {}, {}, std::move(detokenizer), std::move(stop), std::nullopt});
  if (active->request.constraint != nullptr) active->matcher.emplace(active->request.constraint);
  active->generation.index = submitted_;
  active->generation.times.submitted_us = NowUs();
  active->generation.prompt = active->request.prompt;
  active->history.AddPrompt(active->request.prompt);
  active_.emplace(id, std::move(active));
  return submitted_++;
}

void Generator::Cancel(int64_t index) {
  const auto found = active_.find(SeqId{index});
  if (found == active_.end()) return;
  engine_->Finish(found->first);
  active_.erase(found);
}

// Log-probabilities of the prompt's tokens that the span's rows come before.
void Generator::ScorePrompt(Active* active, const sched::Span& span, std::span<const float> logits) const {
  if (!active->request.prompt_logprobs) return;
  Generation& generation = active->generation;
  const auto vocab = static_cast<size_t>(engine_->model().geometry.vocab);
  for (int32_t row = 0; row < span.logits_count; ++row) {
    const auto next = static_cast<size_t>(span.start + span.count - span.logits_count + row + 1);
    if (next >= generation.prompt.size()) return;
    generation.prompt_logprobs.push_back(sampling::Logprobs(logits.subspan(static_cast<size_t>(row) * vocab, vocab),
                                                            generation.prompt[next],
                                                            active->request.sampling.logprobs));
  }
}

bool Generator::Ends(const Active& active, TokenId token) const {
  const std::vector<TokenId>& more = active.request.stop_tokens;
  if (std::find(more.begin(), more.end(), token) != more.end()) return true;
  return !active.request.ignore_eos && std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

// The tokens that may come next; empty when all may.
grammar::TokenMask Generator::Allowed(Active* active) const {
  const GenerationRequest& request = active->request;
  const bool early = static_cast<int64_t>(active->generation.tokens.size()) < request.min_tokens;
  if (!active->matcher && !early) return {};
  const auto words = (static_cast<size_t>(engine_->model().geometry.vocab) + 63) / 64;
  grammar::TokenMask mask(words, active->matcher ? 0 : ~uint64_t{0});
  if (active->matcher) {
    const grammar::TokenMask& texts = active->matcher->Allowed();
    std::copy_n(texts.begin(), std::min(words, texts.size()), mask.begin());
  }
  const bool may_end = !early && active->matcher->CanEnd();
  const auto set = [&](int64_t token) {
    if (token < 0 || static_cast<size_t>(token) / 64 >= words) return;
    uint64_t& word = mask[static_cast<size_t>(token) / 64];
    const uint64_t bit = uint64_t{1} << token % 64;
    word = may_end ? word | bit : word & ~bit;
  };
  for (const TokenId token : request.stop_tokens) set(token);
  if (!request.ignore_eos) std::for_each(end_tokens_.begin(), end_tokens_.end(), set);
  return mask;
}

// What comes next.
Result<sampling::SampleResult> Generator::Sample(const Active& active, const SpanOutput& output,
                                                 grammar::TokenMask allowed) const {
  const int64_t vocab = engine_->model().geometry.vocab;
  if (output.drawn) {
    TRY_ASSIGN(const TokenId token, sampling::TokenOf(*output.drawn, vocab));
    return sampling::SampleResult{token, 0, {}};
  }
  const Generation& generation = active.generation;
  const auto position = static_cast<int64_t>(generation.prompt.size() + generation.tokens.size());
  sampling::SamplingParams params = active.request.sampling;
  if (!active.request.logprobs) params.logprobs = -1;
  return sampling::Sample(output.logits.last(static_cast<size_t>(vocab)), params, active.history, active.request.choice,
                          position, allowed);
}

// Samples the next tokens of all sequences that want one. Their rows are independent, hence who samples them is, too.
void Generator::SampleAll(std::span<const ShownSpan> shown) {
  struct Row {
    Active* active;
    const SpanOutput* output;
    grammar::TokenMask allowed;
  };
  std::vector<Row> rows;
  for (const ShownSpan& one : shown) {
    if (!one.wanted) continue;
    Active* active = active_.at(one.span->seq).get();
    rows.push_back({active, &one.output, Allowed(active)});  // here: answers share a grammar's state
  }
  engine_->ParallelFor(static_cast<int64_t>(rows.size()), [&](int64_t i) {
    const Row& row = rows[static_cast<size_t>(i)];
    row.active->sampled = Sample(*row.active, *row.output, row.allowed);
  });
}

// The next token; one that cannot be sampled ends the request with its error, and the token means nothing.
TokenId Generator::Take(Active* active) {
  Generation& generation = active->generation;
  CHECK(active->sampled.has_value());
  Result<sampling::SampleResult> result = *std::exchange(active->sampled, std::nullopt);
  if (!result.ok()) {
    generation.finish = FinishReason::kError;
    generation.error = result.error();
    return 0;
  }
  const TokenId token = result->token;
  active->history.AddOutput(token);
  generation.tokens.push_back(token);
  if (active->request.logprobs) generation.logprobs.push_back(std::move(result).value());
  return token;
}

// The text that a token makes certain; sets why the text ends with it, if it does.
std::string Generator::TextOf(Active* active, TokenId token) {
  Generation& generation = active->generation;
  const GenerationRequest& request = active->request;
  const auto count = static_cast<int64_t>(generation.tokens.size());
  std::string piece;
  if (Ends(*active, token)) {
    generation.finish = FinishReason::kStop;
    if (request.include_stop) piece = active->stop.Push(active->detokenizer.Push(token));
  } else {
    piece = active->detokenizer.Push(token);
    if (count >= request.min_tokens) piece = active->stop.Push(piece);
    if (active->matcher) active->matcher->Accept(token);
    if (active->stop.matched() || (active->matcher && active->matcher->MustEnd())) {
      generation.finish = FinishReason::kStop;
    } else if (count >= *request.max_tokens) {
      generation.finish = FinishReason::kLength;
    }
  }
  if (generation.finish != FinishReason::kNone && !active->stop.matched()) {
    piece += active->stop.Push(active->detokenizer.Flush());
    piece += active->stop.Flush();
  }
  generation.text += piece;
  return piece;
}

// What a step's output for one span brings its request.
std::optional<TokenId> Generator::Look(Active* active, const sched::Span& span, const SpanOutput& output, bool wanted,
                                       std::string* piece) {
  active->generation.cached_tokens = engine_->CachedTokens(span.seq);
  ScorePrompt(active, span, output.logits);
  if (!wanted) {
    const bool whole = span.start + span.count == static_cast<int32_t>(active->generation.prompt.size());
    if (whole && active->request.max_tokens == 0) active->generation.finish = FinishReason::kLength;
    return std::nullopt;
  }
  const TokenId token = Take(active);
  if (active->generation.finish == FinishReason::kNone) *piece = TextOf(active, token);
  return token;
}

Result<bool> Generator::Step(const GenerationSink& sink) {
  if (active_.empty()) return false;
  const int64_t begin = NowUs();
  int64_t sampled = 0;
  std::vector<int64_t> ended;
  const Result<bool> stepped = engine_->Step(
      [&](const sched::Span& span, const SpanOutput& output, bool wanted) -> Result<std::optional<TokenId>> {
        Active* active = active_.at(span.seq).get();
        GenerationTimes& times = active->generation.times;
        if (times.begun_us == 0) times.begun_us = begin;
        std::string piece;
        const std::optional<TokenId> token = Look(active, span, output, wanted, &piece);
        const bool over = active->generation.finish != FinishReason::kNone;
        sampled += token.has_value();
        if (token) times.last_us = NowUs();
        if (times.first_us == 0) times.first_us = times.last_us;
        if (token || over) sink(active->generation, piece);
        if (over) ended.push_back(active->generation.index);
        return token;
      },
      [this](std::span<const ShownSpan> shown) { SampleAll(shown); });
  TRY(stepped);
  CHECK(*stepped);
  const int64_t tokens = engine_->step_tokens();
  const double seconds = static_cast<double>(NowUs() - begin) * 1e-6;
  (tokens > sampled ? times_.prompt_s : times_.decode_s) += seconds;
  (tokens > sampled ? times_.prompt_tokens : times_.decode_tokens) += tokens;
  for (const int64_t index : ended) Cancel(index);
  for (const auto& [id, active] : active_) {  // prompts under way
    if (active->generation.times.begun_us == 0 && engine_->Begun(id)) active->generation.times.begun_us = begin;
  }
  return true;
}

Status Generator::Run(const GenerationSink& sink) {
  std::optional<Error> error;
  const GenerationSink watching = [&](const Generation& generation, const std::string& piece) {
    if (generation.error && !error) error = generation.error;
    sink(generation, piece);
  };
  while (!error) {
    TRY_ASSIGN(const bool stepped, Step(watching));
    if (!stepped) return {};
  }
  return *error;
}

}  // namespace trivet::engine
