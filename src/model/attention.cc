// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "model/layers.h"

namespace trivet::model {
namespace {

// Norm of every head of one section of the projections, in place.
void HeadNorm(const Runtime& runtime, float* x, const kernels::NormRows& rows, int64_t tokens, const float* weight) {
  if (weight == nullptr || rows.heads == 0) return;
  kernels::RmsNorm::Args args;
  args.x = x;
  args.y = x;
  args.x_rows = args.y_rows = rows;
  args.weight = weight;
  args.n = runtime.geometry.attention.head_dim;
  args.eps = static_cast<float>(runtime.geometry.norm_eps);
  args.offset = static_cast<float>(runtime.geometry.norm_offset);
  args.end = tokens * rows.heads;
  runtime.kernels.rms_norm->run(args);
}

}  // namespace

RopeTable MakeRopeTable(const Runtime& runtime, const StepView& step) {
  const plan::AttentionGeometry& attention = runtime.geometry.attention;
  const int64_t half = attention.rotary_dim / 2;
  const auto count = static_cast<int64_t>(step.tokens.size()) * half;
  RopeTable table{runtime.workspace.Take<float>(count), runtime.workspace.Take<float>(count)};
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(attention.rotary_dim);
    const auto frequency = static_cast<float>(std::pow(attention.rope_theta, exponent));
    for (const kernels::TokenSpan& span : step.spans) {
      for (int64_t j = 0; j < span.count; ++j) {
        const double angle = static_cast<double>(static_cast<float>(span.start + j) * frequency);
        const auto at = static_cast<size_t>((span.token_begin + j) * half + i);
        table.cos[at] = static_cast<float>(std::cos(angle));
        table.sin[at] = static_cast<float>(std::sin(angle));
      }
    }
  }
  return table;
}

void AttentionLayer(const Runtime& runtime, const AttentionWeights& weights, int64_t index, const StepView& step,
                    std::span<const float> x, const Sums& sums) {
  const plan::AttentionGeometry& geometry = runtime.geometry.attention;
  const plan::AttentionShard& shard = runtime.shard.attention;
  if (shard.q_heads == 0) return;
  const device::Workspace::Frame frame(&runtime.workspace);
  const auto tokens = static_cast<int64_t>(step.tokens.size());
  const int64_t dim = geometry.head_dim, stride = weights.qkv.n;
  const int64_t q_head = geometry.output_gate ? 2 * dim : dim;  // a head's query, and its gate behind it

  const std::span<float> qkv = runtime.workspace.Take<float>(tokens * stride);
  runtime.Multiply(x, tokens, weights.qkv, qkv);
  float* q = qkv.data();
  float* k = q + shard.q_heads * q_head;
  HeadNorm(runtime, q, {shard.q_heads, stride, q_head}, tokens, weights.q_norm);
  HeadNorm(runtime, k, {shard.kv_heads, stride, dim}, tokens, weights.k_norm);
  const RopeTable rope = MakeRopeTable(runtime, step);
  const int64_t half = geometry.rotary_dim / 2;
  runtime.kernels.rope->run({q, stride, q_head, shard.q_heads, half, rope.cos.data(), rope.sin.data(), 0, tokens});
  runtime.kernels.rope->run({k, stride, dim, shard.kv_heads, half, rope.cos.data(), rope.sin.data(), 0, tokens});

  const kernels::KvPages cache{runtime.caches.keys(index), runtime.caches.values(index), shard.kv_heads, dim};
  runtime.kernels.kv_write->run({k, stride, cache, step.spans, 0, tokens});
  const std::span<float> out = runtime.workspace.Take<float>(tokens * shard.q_heads * dim);  // [T, q_heads * D]
  kernels::Attention::Args args{q,
                                stride,
                                q_head,
                                shard.q_heads,
                                shard.q_to_kv.data(),
                                cache,
                                1.0F / std::sqrt(static_cast<float>(dim)),
                                out.data(),
                                step.spans,
                                0,
                                0};
  int64_t work = 0;
  for (const kernels::TokenSpan& span : step.spans) work += span.count * (span.start + span.count);
  runtime.Parallel(tokens * shard.kv_heads, work * shard.q_heads * dim, [&](int64_t begin, int64_t end) {
    kernels::Attention::Args part = args;
    part.begin = begin;
    part.end = end;
    runtime.kernels.attention->run(part);
  });
  if (geometry.output_gate) {
    runtime.kernels.sigmoid_gate->run({out.data(), q + dim, stride, q_head, shard.q_heads, dim, 0, tokens});
  }
  runtime.MultiplyAdd(out, tokens, weights.o, {}, sums);
}

}  // namespace trivet::model
