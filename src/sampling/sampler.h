// SPDX-License-Identifier: Apache-2.0
// From one row of logits to one token, with its log-probability. A pure function of its arguments: the random number is
// keyed by what it is for, and how it becomes a token is defined by integers (kernels/draw.h), so that whoever has the
// logits, on a processor or a GPU, finds the same one.
//
// Order: mask, logit bias, repetition penalty, frequency and presence penalty, temperature, min-p, top-k, top-p, draw.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/draw_rule.h"
#include "base/ids.h"
#include "base/result.h"

namespace trivet::sampling {

/// How to sample. The defaults sample the model's own distribution.
struct SamplingParams {
  double temperature = 1;         // below kGreedyTemperature: the largest logit
  int64_t top_k = 0;              // keep the k best; 0 or -1: off
  double top_p = 1;               // keep the smallest best set whose mass reaches p
  double min_p = 0;               // keep what has at least min_p times the best probability
  double repetition_penalty = 1;  // prompt and output tokens: positive logits divided, others multiplied
  double frequency_penalty = 0;   // output tokens: subtracted once per occurrence
  double presence_penalty = 0;    // output tokens: subtracted once
  uint64_t seed = 0;
  int logprobs = 0;                     // alternatives to report; -1: no log-probability at all
  std::map<TokenId, float> logit_bias;  // added; -infinity forbids the token
};

/// Temperatures below this are greedy.
inline constexpr double kGreedyTemperature = 1e-5;

/// Checks ranges.  Errors: kInvalid, naming the parameter, its range and the value.
Status Validate(const SamplingParams& params);

/// The tokens of one sequence that penalties look at.
class TokenHistory {
 public:
  /// Adds prompt tokens.
  void AddPrompt(std::span<const TokenId> tokens);
  /// Adds one generated token.
  void AddOutput(TokenId token) { ++output_counts_[token]; }
  /// Occurrences in the output of every token of prompt and output; 0 for those of the prompt alone.
  const std::unordered_map<TokenId, int32_t>& output_counts() const { return output_counts_; }

 private:
  std::unordered_map<TokenId, int32_t> output_counts_;
};

/// A sampled token.
struct SampleResult {
  TokenId token = 0;
  float logprob = 0;                           // natural log-softmax of the raw logits; 0 without logprobs
  std::vector<std::pair<TokenId, float>> top;  // the `logprobs` best of the raw logits, best first
};

/// The token with the largest logit, the lowest of equals.
///   logits   [V] f32 without NaN, V > 0
TokenId Greatest(std::span<const float> logits);

/// Whether a rule says how to draw from raw logits, whatever has come before: without bias and penalties.
bool IsRuled(const SamplingParams& params);

/// That rule; the best token below kGreedyTemperature.
///   request, position  as in Sample
DrawRule RuleOf(const SamplingParams& params, uint64_t request, int64_t position);

/// A token and its logit.
struct TokenLogit {
  TokenId token = 0;
  float logit = 0;
};

/// The token that Sample would give under IsRuled, from what was found without it.
///   found     the token that the rule gives; or that of the first NaN or +infinity; or one of -infinity, when all are
///   vocab     number of logits
/// Errors:     kInvalid as Sample: a NaN or +infinity among the logits, and when every token is forbidden.
Result<TokenId> TokenOf(const TokenLogit& found, int64_t vocab);

/// What the logits say of a given token.
///   logits   [V] f32, raw and finite;  token: in [0, V);  count: of the best to report
SampleResult Logprobs(std::span<const float> logits, TokenId token, int count);

/// Samples one token.
///   logits   [V] f32, raw; -infinity forbids a token
///   history  looked at only when a penalty is on
///   request  tells requests of one seed apart
///   position of the token to be sampled, in [0, 2^32)
///   allowed  a bit for each token, the lowest first; those without one are forbidden. Empty: all are allowed.
/// Errors:  kInvalid for parameters out of range, a NaN or +infinity among the logits, a token id outside V, and when
///          every token is forbidden.
Result<SampleResult> Sample(std::span<const float> logits, const SamplingParams& params, const TokenHistory& history,
                            uint64_t request, int64_t position, std::span<const uint64_t> allowed = {});

}  // namespace trivet::sampling
