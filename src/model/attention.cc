// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/layers.h"

namespace trivet::model {

std::vector<RopeAngles> MakeRopeAngles(const Runtime& runtime, const StepView& step) {
  std::vector<RopeAngles> all;
  for (const plan::RopeTable& table : runtime.geometry.ropes) {
    const auto half = static_cast<int64_t>(table.frequencies.size());
    const auto count = static_cast<int64_t>(step.tokens.size()) * half;
    const std::span<float> cos = runtime.workspace.Take<float>(count), sin = runtime.workspace.Take<float>(count);
    for (const kernels::TokenSpan& span : step.spans) {
      for (int64_t j = 0; j < span.count; ++j) {
        for (int64_t i = 0; i < half; ++i) {
          const float frequency = table.frequencies[static_cast<size_t>(i)];
          const double angle = static_cast<double>(static_cast<float>(span.start + j) * frequency);
          const auto at = static_cast<size_t>((span.token_begin + j) * half + i);
          cos[at] = static_cast<float>(std::cos(angle)) * table.scale;
          sin[at] = static_cast<float>(std::sin(angle)) * table.scale;
        }
      }
    }
    all.push_back({half, cos, sin});
  }
  return all;
}

std::vector<RingSpans> MakeRingSpans(const cache::Caches& caches, const StepView& step) {
  std::vector<RingSpans> all;
  for (const int64_t ring : caches.rings()) {
    RingSpans made{ring, {}, {step.spans.begin(), step.spans.end()}};
    std::vector<size_t> begins;
    for (const kernels::TokenSpan& span : made.spans) {
      begins.push_back(made.page_ids.size());
      for (int64_t page = 0; page * cache::kPageTokens < span.start + span.count; ++page) {
        made.page_ids.push_back(static_cast<int32_t>(span.state_slot * ring + page % ring));
      }
    }
    for (size_t i = 0; i < begins.size(); ++i) made.spans[i].pages = made.page_ids.data() + begins[i];
    all.push_back(std::move(made));
  }
  return all;
}

std::span<const kernels::TokenSpan> KvSpans(const Runtime& runtime, const StepView& step, const LayerPlace& place) {
  const int64_t ring = runtime.caches.ring(place.index);
  if (ring == 0) return step.spans;
  const auto found =
      std::find_if(step.rings.begin(), step.rings.end(), [ring](const RingSpans& made) { return made.pages == ring; });
  CHECK(found != step.rings.end());
  return found->spans;
}

void Rotate(const Runtime& runtime, const StepView& step, int64_t rope, float* x, const kernels::NestedRows& heads) {
  const RopeAngles& angles = step.ropes[static_cast<size_t>(rope)];
  const auto tokens = static_cast<int64_t>(step.tokens.size());
  const kernels::Rope::Args args{x,           heads.stride,      heads.head_stride, heads.heads,
                                 angles.half, angles.cos.data(), angles.sin.data()};
  runtime.RunParallel(*runtime.kernels.rope, args, tokens,
                      tokens * heads.heads * angles.half * 2 * Runtime::kElementWork);
}

void Attend(const Runtime& runtime, const StepView& step, const LayerPlace& place, kernels::Attention::Args args) {
  const plan::AttentionGeometry& geometry = runtime.geometry.attention;
  args.spans = KvSpans(runtime, step, place);
  args.window = place.layer.window;
  args.softcap = static_cast<float>(geometry.softcap);
  args.scale =
      geometry.scale > 0 ? static_cast<float>(geometry.scale) : 1.0F / std::sqrt(static_cast<float>(geometry.head_dim));
  int64_t work = 0;
  for (const kernels::TokenSpan& span : step.spans) work += span.count * (span.start + span.count);
  const auto tokens = static_cast<int64_t>(step.tokens.size());
  runtime.RunParallel(*runtime.kernels.attention, args, tokens * args.cache.kv_heads,
                      work * args.q_heads * args.cache.head_dim);
}

void AttentionLayer(const Runtime& runtime, const AttentionWeights& weights, const LayerPlace& place,
                    const StepView& step, std::span<const float> x, const Sums& sums) {
  const plan::AttentionGeometry& geometry = runtime.geometry.attention;
  const plan::AttentionShard& shard = runtime.shard.attention;
  if (shard.q_heads == 0) return;
  const device::Workspace::Frame frame(&runtime.workspace);
  const auto tokens = static_cast<int64_t>(step.tokens.size());
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

  const kernels::KvPages cache{runtime.caches.keys(place.index), runtime.caches.values(place.index), shard.kv_heads,
                               dim, dim};
  runtime.RunParallel(*runtime.kernels.kv_write,
                      kernels::KvWrite::Args{k, stride, cache, KvSpans(runtime, step, place)}, tokens,
                      tokens * shard.kv_heads * 2 * dim * Runtime::kElementWork);
  const std::span<float> out = runtime.workspace.Take<float>(tokens * shard.q_heads * dim);  // [T, q_heads * D]
  kernels::Attention::Args args;
  args.q = q;
  args.q_stride = stride;
  args.q_head_stride = q_head;
  args.q_heads = shard.q_heads;
  args.q_to_kv = shard.q_to_kv.data();
  args.cache = cache;
  args.out = out.data();
  args.sinks = weights.sinks;
  Attend(runtime, step, place, args);
  if (geometry.output_gate) {
    runtime.kernels.sigmoid_gate->run({out.data(), q + dim, stride, q_head, shard.q_heads, dim, 0, tokens});
  }
  runtime.MultiplyAdd(out, tokens, weights.o, {}, sums);
  runtime.AddBias(weights.o_bias, tokens, {}, sums);
}

}  // namespace trivet::model
