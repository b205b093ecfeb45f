// SPDX-License-Identifier: Apache-2.0
// The layers a block is made of. Each adds this rank's part of its output to `sums`; a rank that holds none of a layer
// adds nothing and still takes part in the reduction that follows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/runtime.h"
#include "model/step_view.h"
#include "model/weights.h"

namespace trivet::model {

/// Cosines and sines of every token's rotation: [T, rotary_dim / 2] each.
struct RopeTable {
  std::span<float> cos;
  std::span<float> sin;
};

/// Angles are position * theta^(-2i/d), the frequency rounded to float32 as references do; cosine and sine are computed
/// in double and rounded once.
RopeTable MakeRopeTable(const Runtime& runtime, const StepView& step);

/// x[t] = embedding of token t.
///   x [T, H]
/// Ranks:   collective: the vocabulary is cut.  Errors: kPeer.
Status Embed(const Runtime& runtime, const Matrix& table, const StepView& step, std::span<float> x);

/// Grouped-query attention with rotary positions, and with head norms and an output gate where the family has them.
///   x      [T, H], normalised
///   index  number of this layer among the attention layers
void AttentionLayer(const Runtime& runtime, const AttentionWeights& weights, int64_t index, const StepView& step,
                    std::span<const float> x, const Sums& sums);

/// Gated delta net: projections, convolution, recurrence, gated norm.
///   index  number of this layer among the delta-net layers
void DeltaNetLayer(const Runtime& runtime, const DeltaNetWeights& weights, int64_t index, const StepView& step,
                   std::span<const float> x, const Sums& sums);

/// down(silu(gate(x)) * up(x)) for the rows of `rows`.
void MlpLayer(const Runtime& runtime, const MlpWeights& weights, std::span<const float> x, int64_t m,
              const RowMap& rows, const Sums& sums);

/// Routed experts and the shared expert. Every rank routes every token and computes the experts it holds.
void MoeLayer(const Runtime& runtime, const MoeWeights& weights, std::span<const float> x, const Sums& sums);

/// Logits of the wanted rows, gathered on rank 0.
///   x  [T, H] after the last block
/// Ranks:   collective.  Errors: kPeer.
Status Head(const Runtime& runtime, const Weights& weights, const StepView& step, std::span<const float> x,
            std::span<float> logits);

}  // namespace trivet::model
