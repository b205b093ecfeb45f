// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/reference.h"
#include "model/layers.h"

namespace trivet::model {

std::span<const kernels::TokenSpan> KvSpans(const Runtime& runtime, const SpanLists& spans, const LayerPlace& place) {
  const int64_t ring = runtime.caches.ring(place.index);
  if (ring == 0) return spans.paged;
  const auto found = std::find_if(spans.rings.begin(), spans.rings.end(),
                                  [ring](const RingSpans& made) { return made.pages == ring; });
  CHECK(found != spans.rings.end());
  return found->spans;
}

kernels::KvPages KvPagesOf(const Runtime& runtime, const LayerPlace& place, int64_t kv_heads, int64_t head_dim,
                           int64_t value_dim) {
  cache::Caches& caches = runtime.caches;
  return {caches.keys(place.index),      caches.values(place.index),     kv_heads, head_dim, value_dim,
          caches.key_codes(place.index), caches.value_codes(place.index)};
}

void Rotate(const Runtime& runtime, const StepView& step, int64_t rope, float* x, const kernels::NestedRows& heads) {
  const RopeAngles& angles = step.ropes[static_cast<size_t>(rope)];
  const kernels::Rope::Args args{x, heads.stride, heads.head_stride, heads.heads, angles.half, angles.cos, angles.sin};
  runtime.RunParallel(*runtime.kernels.rope, args, step.tokens,
                      step.tokens * heads.heads * angles.half * 2 * Runtime::kElementWork);
}

void Attend(const Runtime& runtime, const StepView& step, const LayerPlace& place, kernels::Attention::Args args) {
  const plan::AttentionGeometry& geometry = runtime.geometry.attention;
  args.spans = KvSpans(runtime, step.own, place);
  args.window = place.layer.window;
  args.softcap = static_cast<float>(geometry.softcap);
  args.scale =
      geometry.scale > 0 ? static_cast<float>(geometry.scale) : 1.0F / std::sqrt(static_cast<float>(geometry.head_dim));
  if (runtime.Planted(comm::FaultKind::kSplitKV, place.index)) {
    constexpr int64_t kFewTokens = 64;
    args.end = step.tokens * args.cache.kv_heads;
    return kernels::SplitAttentionRef(args, step.tokens <= kFewTokens ? 2 : 1);
  }
  runtime.RunParallel(*runtime.kernels.attention, args, step.tokens * args.cache.kv_heads,
                      step.key_visits * args.q_heads * args.cache.head_dim);
}

Status StoreKv(const Runtime& runtime, const StepView& step, const LayerPlace& place, const kernels::KvPages& cache,
               const comm::RowsView& own) {
  // A latent's value is the head of its key.
  const bool latent = place.layer.mixer == plan::Mixer::kLatentAttention;
  const int64_t columns = cache.kv_heads * (cache.head_dim + (latent ? 0 : cache.ValueDim()));
  TRY_ASSIGN(const comm::RowsView rows, runtime.WholeRows(step, own, columns));
  runtime.LogCollective(record::Site::kShown, place.number, runtime.context.last());
  const kernels::KvWrite::Args args{
      rows.data, rows.stride, cache, KvSpans(runtime, step.whole, place), 0, 0, latent ? rows.data : nullptr};
  runtime.RunParallel(*runtime.kernels.kv_write, args, step.whole_tokens,
                      step.whole_tokens * columns * Runtime::kElementWork);
  return {};
}

Status AttentionLayer(const Runtime& runtime, const AttentionWeights& weights, const LayerPlace& place,
                      const StepView& step, std::span<const float> x, const Sums& sums) {
  const plan::AttentionGeometry& geometry = runtime.geometry.attention;
  const plan::AttentionShard& shard = runtime.shard.attention;
  if (shard.q_heads == 0) {
    runtime.LogCollective(record::Site::kShown, place.number, {});  // nothing to show
    return {};
  }
  const device::Workspace::Frame frame(&runtime.workspace);
  const int64_t tokens = step.tokens;
  const int64_t dim = geometry.head_dim, stride = weights.qkv.n;
  const int64_t q_head = geometry.output_gate ? 2 * dim : dim;  // a head's query, and its gate behind it

  const std::span<float> qkv = runtime.workspace.Take<float>(tokens * stride);
  runtime.Multiply(x, tokens, weights.qkv, qkv);
  runtime.AddBias(weights.qkv_bias, tokens, stride, qkv);
  float* q = qkv.data();
  float* k = q + shard.q_heads * q_head;
  const kernels::NestedRows queries{shard.q_heads, stride, q_head}, keys{shard.kv_heads, stride, dim};
  const double eps = runtime.geometry.norm_eps, offset = runtime.geometry.norm_offset;
  runtime.NormInPlace(q, queries, tokens, {weights.q_norm, dim, eps, offset});
  runtime.NormInPlace(k, keys, tokens, {weights.k_norm, dim, eps, offset});
  Rotate(runtime, step, place.layer.rope, q, queries);
  Rotate(runtime, step, place.layer.rope, k, keys);

  const kernels::KvPages cache = KvPagesOf(runtime, place, shard.kv_heads, dim, dim);
  TRY(StoreKv(runtime, step, place, cache, {k, stride}));
  const std::span<float> out = runtime.workspace.Take<float>(tokens * shard.q_heads * dim);  // [T, q_heads * D]
  kernels::Attention::Args args;
  args.q = q;
  args.q_stride = stride;
  args.q_head_stride = q_head;
  args.q_heads = shard.q_heads;
  args.q_to_kv = runtime.tables.q_to_kv;
  args.cache = cache;
  args.out = out.data();
  args.sinks = weights.sinks;
  Attend(runtime, step, place, args);
  if (geometry.output_gate) {
    const kernels::SigmoidGate::Args gate{out.data(), q + dim, stride, q_head, shard.q_heads, dim};
    runtime.RunParallel(*runtime.kernels.sigmoid_gate, gate, tokens,
                        tokens * shard.q_heads * dim * Runtime::kElementWork);
  }
  runtime.MultiplyAdd(out, tokens, weights.o, {}, sums);
  runtime.AddBias(weights.o_bias, tokens, {}, sums);
  return {};
}

}  // namespace trivet::model
