// SPDX-License-Identifier: Apache-2.0
// Scoring: the logits of given tokens, as a batch.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace trivet::engine {

/// What to score.
struct ScoreRequest {
  std::vector<std::vector<TokenId>> sequences;  // each at least one token; scored as one batch
  bool last_only = false;                       // logits of the last position alone
  bool hidden = false;                          // hidden states after every block
};

/// Scores of one sequence.
struct ScoredSequence {
  std::vector<float> logits;               // [T, V], or [1, V] with last_only
  std::vector<std::vector<float>> hidden;  // [layers] of [T, H], when asked for
};

/// Scores all sequences and returns them in the order given.
/// Errors:  kCapacity when a sequence is longer than the context; those of Engine::Step.
Result<std::vector<ScoredSequence>> Score(Engine* engine, const ScoreRequest& request);

/// Natural log-probability of each token after the first, given those before it: [T - 1].
///   logits  [T, V] as Score gives them
std::vector<double> TokenLogprobs(std::span<const TokenId> tokens, std::span<const float> logits, int64_t vocab);

}  // namespace trivet::engine
