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

/// One layer: its number among the layers with the same kind of cache, what it is made of, and its number among all.
struct LayerPlace {
  int64_t index = 0;
  const plan::LayerGeometry& layer;
  int64_t number = 0;
};

/// The input of a layer, normalised: all rows, those that this rank keeps, and who keeps which.
struct KeptRows {
  std::span<const float> all, kept;            // [T, H], [O, H]
  std::span<const comm::RowRun> keepers = {};  // none: every rank all
};

/// Brings a step to the device, with the angles of its tokens for every rope table, in scratch memory.
StepView StageStep(const Runtime& runtime, const StepTokens& step);

/// The spans with the pages of the layer's keys and values.
std::span<const kernels::TokenSpan> KvSpans(const Runtime& runtime, const SpanLists& spans, const LayerPlace& place);

/// The layer's keys and values, however they are kept.
///   value_dim  channels of a value, as head_dim of a key
kernels::KvPages KvPagesOf(const Runtime& runtime, const LayerPlace& place, int64_t kv_heads, int64_t head_dim,
                           int64_t value_dim);

/// Rotates `heads` heads, `head_stride` apart in rows `stride` apart, by the layer's table.
void Rotate(const Runtime& runtime, const StepView& step, int64_t rope, float* x, const kernels::NestedRows& heads);

/// Stores keys and values of the whole step, of which this rank has those of its own tokens.
///   own     a token's keys of all heads, then its values of all heads; with latent attention its one key, whose first
///           channels are the value too
/// Ranks:   collective over a context group.  Errors: kPeer.
Status StoreKv(const Runtime& runtime, const StepView& step, const LayerPlace& place, const kernels::KvPages& cache,
               const comm::RowsView& own);

/// Runs the attention kernel over all tokens; `args` has everything but the layer's window and the spans.
void Attend(const Runtime& runtime, const StepView& step, const LayerPlace& place, kernels::Attention::Args args);

/// x[t] = embedding of token t, scaled as the family does, for the rows that this rank keeps.
///   x [T, H], of which the first [O, H] are these
/// Ranks:   collective: the vocabulary is cut.  Errors: kPeer.
Status Embed(const Runtime& runtime, const Matrix& table, const StepView& step, std::span<float> x);

/// Grouped-query attention with rotary positions, and with biases, head norms, sinks and an output gate where the
/// family has them.
///   x      [T, H], normalised
/// Ranks:   collective over a context group.  Errors: kPeer.
Status AttentionLayer(const Runtime& runtime, const AttentionWeights& weights, const LayerPlace& place,
                      const StepView& step, std::span<const float> x, const Sums& sums);

/// Attention over a latent: every head's query is brought to the latent's channels, so that one cached key and value
/// serve all heads, and a head's share of the latent comes back through its value projection.
///   x      [T, H], normalised
/// Source:  DeepSeek-V2, multi-head latent attention, absorbed form.
/// Ranks:   collective over a context group.  Errors: kPeer.
Status LatentAttentionLayer(const Runtime& runtime, const LatentWeights& weights, const LayerPlace& place,
                            const StepView& step, std::span<const float> x, const Sums& sums);

/// Gated delta net: projections, convolution, recurrence, gated norm. A state meets the tokens of a sequence one by
/// one, so in between ranks of a context group have all rows of the step and a share of the heads.
/// Ranks:   collective over a context group.  Errors: kPeer.
Status DeltaNetLayer(const Runtime& runtime, const DeltaNetWeights& weights, const LayerPlace& place,
                     const StepView& step, std::span<const float> x, const Sums& sums);

/// The family's activation from [m, 2F] gate and up values to [m, F], over a range that the caller sets.
kernels::GatedAct::Args Activate(const Runtime& runtime, const float* gate_up, int64_t width, float* act);

/// row_scale * down(act(gate(x)) * up(x)) for m rows; without row_scale, times 1.
void MlpLayer(const Runtime& runtime, const MlpWeights& weights, std::span<const float> x, int64_t m,
              const float* row_scale, const Sums& sums);

/// Routed experts and the shared expert. Every rank computes the router's logits of the rows that it keeps, routes
/// every token and computes the experts it holds.
///   layer  its number, for the log
/// Ranks:   collective over those that cut a layer.  Errors: kPeer.
Status MoeLayer(const Runtime& runtime, const MoeWeights& weights, int64_t layer, const KeptRows& rows,
                const Sums& sums);

/// What the head leaves.
struct HeadOutput {
  std::span<float> local;    // [R, V_local] logits, pads included
  std::span<uint64_t> keys;  // [R, kernels::kArgmaxParts]
};

/// Logits of the head's rows for the rank's share of the vocabulary, and the best tokens of those that ask for one;
/// where the share is the whole vocabulary, the tokens that are drawn.
///   x      [O, H] after the last block
///   keys   as kernels::Argmax and kernels::Draw leave them
/// Ranks:   collective over those that cut a layer.  Errors: kPeer.
Status Head(const Runtime& runtime, const Weights& weights, const StepView& step, std::span<const float> x,
            const HeadOutput& output);

/// Whether Head draws tokens: some need not be the best, and this rank has all of their logits.
bool HeadDraws(const Runtime& runtime, const StepView& step);

/// Brings the logits of all ranks of a stage together on its first, pads left out.
///   local   [rows, V_local];  logits: first rank: [rows, V]; others: empty
/// Ranks:   collective.  Errors: kPeer.
Status GatherLogits(const Runtime& runtime, int64_t rows, std::span<const float> local, std::span<float> logits);

/// The drawn tokens on the first rank of a stage: of every row the largest key of all ranks, which is the best token;
/// then, where the ranks share out the vocabulary, what is drawn otherwise, from rows that are brought together.
///   logits  [R, V_local] as Head leaves them
///   keys    [G, kernels::kArgmaxParts], those of the drawn rows, on the host
///   drawn   first rank: [G]; others: empty
/// Ranks:    collective.  Errors: kPeer.
Status GatherDrawn(const Runtime& runtime, const StepView& step, std::span<const float> logits,
                   std::span<const uint64_t> keys, std::span<uint64_t> drawn);

}  // namespace trivet::model
