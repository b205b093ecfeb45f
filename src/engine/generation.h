// SPDX-License-Identifier: Apache-2.0
// Text generation on an engine: sampling, stop conditions and streaming text for many requests in one batch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "grammar/constraint.h"
#include "sampling/sampler.h"
#include "sampling/stop.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace trivet::engine {

/// One text to be continued.
struct GenerationRequest {
  std::vector<TokenId> prompt;
  std::optional<int64_t> max_tokens;  // none: as many as the context holds; 0: the prompt is computed and no more
  sampling::SamplingParams sampling;
  int32_t priority = 0;                             // smaller is served first
  uint64_t choice = 0;                              // tells answers to one prompt with one seed apart
  std::shared_ptr<grammar::Constraint> constraint;  // what the text is held to, or null; shared_ptr: see constraints.h
  int64_t min_tokens = 0;                           // before these no end token and no stop string ends the text
  std::vector<TokenId> stop_tokens;                 // end the text as end tokens do, and whatever ignore_eos says
  std::vector<std::string> stop;
  bool include_stop = false;     // stop string and stop token belong to the text
  bool special_tokens = false;   // special tokens are written in the text
  bool ignore_eos = false;       // end tokens do not end the text
  bool logprobs = false;         // keep log-probabilities of the sampled tokens
  bool prompt_logprobs = false;  // and of the prompt's tokens
};

/// When things happened to a request, by NowUs(); 0: not yet.
struct GenerationTimes {
  int64_t submitted_us = 0;
  int64_t begun_us = 0;  // the first step that it had a place in began
  int64_t first_us = 0;  // its first token was sampled
  int64_t last_us = 0;   // and its last so far
};

/// Why a generation ended.
enum class FinishReason { kNone, kStop, kLength, kError };
const char* FinishReasonName(FinishReason reason);

/// What has come of a request.
struct Generation {
  int64_t index = 0;  // order of submission
  std::vector<TokenId> prompt;
  int64_t cached_tokens = 0;                            // of the prompt, found in the prefix cache
  std::vector<TokenId> tokens;                          // sampled, the end token included
  std::vector<sampling::SampleResult> logprobs;         // one per token, when asked for
  std::vector<sampling::SampleResult> prompt_logprobs;  // of the prompt's second token and those after it
  std::string text;                                     // without end token and stop string
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;  // why no token could be sampled: kError
  GenerationTimes times;
};

/// Called for every new piece of text (perhaps empty) and at the end of a request.
using GenerationSink = std::function<void(const Generation& generation, const std::string& piece)>;

/// Runs requests to their ends. One thread uses it.
class Generator {
 public:
  /// `end_tokens` end a text. Engine and tokenizer outlive the generator.
  Generator(Engine* engine, const text::Tokenizer* tokenizer, std::vector<int64_t> end_tokens)
      : engine_(engine), tokenizer_(tokenizer), end_tokens_(std::move(end_tokens)) {}

  /// Queues a request and returns its index.
  /// Errors:  kInvalid for sampling parameters or stop strings; kCapacity gives prompt and context in tokens.
  Result<int64_t> Submit(GenerationRequest request);

  /// Runs one step of the engine; false when no request is left.  Errors: those of Engine::Step. A request whose own
  /// parameters leave no token to sample ends with kError and leaves the others alone.
  Result<bool> Step(const GenerationSink& sink);

  /// Runs until every request has ended.  Errors: those of Step, and that of the first request that ended with kError.
  Status Run(const GenerationSink& sink);

  /// Ends a request without an answer and frees what it holds; an index of none that runs has no effect.
  void Cancel(int64_t index);

  /// Steps with prompt tokens, steps without, their tokens and seconds.
  struct Times {
    int64_t prompt_tokens = 0, decode_tokens = 0;
    double prompt_s = 0, decode_s = 0;
  };
  const Times& times() const { return times_; }

 private:
  struct Active {
    GenerationRequest request;
    Generation generation;
    sampling::TokenHistory history;
    text::StreamingDetokenizer detokenizer;
    sampling::StopMatcher stop;
    std::optional<grammar::Matcher> matcher;  // of the constraint
    // What the current step's logits gave, until it is taken.
    std::optional<Result<sampling::SampleResult>> sampled = {};
  };
  bool Ends(const Active& active, TokenId token) const;
  grammar::TokenMask Allowed(Active* active) const;
  void ScorePrompt(Active* active, const sched::Span& span, std::span<const float> logits) const;
  Result<sampling::SampleResult> Sample(const Active& active, const SpanOutput& output,
                                        grammar::TokenMask allowed) const;
  void SampleAll(std::span<const ShownSpan> shown);
  TokenId Take(Active* active);
  std::string TextOf(Active* active, TokenId token);
  std::optional<TokenId> Look(Active* active, const sched::Span& span, const SpanOutput& output, bool wanted,
                              std::string* piece);

  Engine* engine_;
  const text::Tokenizer* tokenizer_;
  const std::vector<int64_t> end_tokens_;
  std::map<SeqId, std::unique_ptr<Active>> active_;
  int64_t submitted_ = 0;
  Times times_;
};

}  // namespace trivet::engine
