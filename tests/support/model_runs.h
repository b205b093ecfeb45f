// SPDX-License-Identifier: Apache-2.0
// Models, token sets and runs for tests that look at logits: the demo model, its golden cases, and scoring under any
// engine options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/open_model.h"
#include "engine/scoring.h"

namespace trivet::support {

/// Sequences of tokens.
using TokenSet = std::vector<std::vector<TokenId>>;

/// The model in `dir`, which must open.
engine::OpenedModel Open(const std::string& dir);

/// A reference run: tokens, and what another implementation computed for them in float32.
struct GoldenCase {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [T, V]
  std::vector<float> hidden;  // [1 + layers, T, H], the embedding first and the last one after the final norm; or empty
};

/// The cases of a golden file: "case<i>.tokens" and "case<i>.logits", or plain "tokens", "logits" and "hidden".
std::vector<GoldenCase> ReadGolden(const std::string& path);

/// Exactly 2,000 tokens: the demo's golden cases, random tokens of lengths around the borders of pages and chunks, one
/// of 640 tokens, and tokens that repeat.
TokenSet TwoThousandTokens(const std::vector<GoldenCase>& golden, int64_t vocab);

/// Deterministic random tokens.
std::vector<TokenId> RandomTokens(int64_t count, int64_t vocab, uint64_t seed);

/// Tokens of all sequences.
int64_t Count(const TokenSet& set);

/// Scores `set` on a started engine, `batch` sequences at a time (0: all at once).
///   returns  the logits of all sequences in order: [tokens, V]
Result<std::vector<float>> ScoreAll(engine::Engine* engine, const TokenSet& set, size_t batch = 0);

/// Starts an engine with `options` and scores `set` on it.
Result<std::vector<float>> Logits(const engine::OpenedModel& model, const engine::EngineOptions& options,
                                  const TokenSet& set, size_t batch = 0);

/// Continuations of `prompts` as one batch, with `max_new` tokens each.
///   modes     one for each prompt: kLast, where the token comes from whole logits, or kDrawn, where it comes alone
///   sampling  one for each prompt, as sampling::IsRuled
Result<TokenSet> Continue(engine::Engine* engine, const TokenSet& prompts, int32_t max_new,
                          const std::vector<sched::LogitsMode>& modes,
                          const std::vector<sampling::SamplingParams>& sampling);

/// `count` ways to sample: greedy first, then one by temperature alone, and others with every kind of filter.
std::vector<sampling::SamplingParams> WaysToSample(size_t count);

/// Names the first logit whose bytes differ, or says nothing when all are equal.
std::string FirstDifference(const std::vector<float>& a, const std::vector<float>& b, int64_t vocab);

/// Largest |a - b|; infinity when the sizes differ or a value is no number.
double LargestDifference(const std::vector<float>& a, const std::vector<float>& b);

/// "N=3 processes attn=pad chunk=7": options as a failure message shows them.
std::string Describe(const engine::EngineOptions& options);

}  // namespace trivet::support
