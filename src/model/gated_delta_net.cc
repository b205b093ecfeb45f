// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "model/layers.h"

namespace trivet::model {

namespace {

// Queries and keys, normalised, and values, after the convolution: [T, channels].
std::span<float> Convolve(const Runtime& runtime, const DeltaNetWeights& weights, int64_t index, const StepView& step,
                          std::span<const float> in) {
  const plan::DeltaNetGeometry& geometry = runtime.geometry.delta_net;
  const plan::DeltaNetShard& shard = runtime.shard.delta_net;
  const int64_t tokens = step.tokens;
  const int64_t dk = geometry.k_dim, stride = weights.in.n;
  const int64_t channels = 2 * shard.k_heads * dk + shard.v_heads * geometry.v_dim;
  const std::span<float> qkv = runtime.workspace.Take<float>(tokens * channels);
  const kernels::Conv1d::Args conv{in.data(),
                                   stride,
                                   weights.taps,
                                   runtime.caches.conv(index),
                                   runtime.caches.conv_stride(),
                                   qkv.data(),
                                   channels,
                                   geometry.conv_width,
                                   step.spans,
                                   0,
                                   0};
  // Sixteen channels at a time keep vectors whole.
  runtime.Parallel((channels + 15) / 16, tokens * channels * 16, [&](int64_t begin, int64_t end) {
    kernels::Conv1d::Args part = conv;
    part.begin = begin * 16;
    part.end = std::min(end * 16, channels);
    runtime.kernels.conv1d->run(part);
  });
  const int64_t heads = 2 * shard.k_heads;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dk)));
  runtime.kernels.l2_norm->run({qkv.data(), {heads, channels, dk}, dk, scale, shard.k_heads, 0, tokens * heads});
  return qkv;
}

}  // namespace

void DeltaNetLayer(const Runtime& runtime, const DeltaNetWeights& weights, int64_t index, const StepView& step,
                   std::span<const float> x, const Sums& sums) {
  const plan::DeltaNetGeometry& geometry = runtime.geometry.delta_net;
  const plan::DeltaNetShard& shard = runtime.shard.delta_net;
  if (shard.v_heads == 0) return;
  const device::Workspace::Frame frame(&runtime.workspace);
  const int64_t tokens = step.tokens;
  const int64_t dk = geometry.k_dim, dv = geometry.v_dim, stride = weights.in.n;
  const int64_t channels = 2 * shard.k_heads * dk + shard.v_heads * dv;  // queries, keys, values

  const std::span<float> in = runtime.workspace.Take<float>(tokens * stride);
  runtime.Multiply(x, tokens, weights.in, in);
  const float* z = in.data() + channels;
  const float* ba = z + shard.v_heads * dv;

  const std::span<float> qkv = Convolve(runtime, weights, index, step, in);
  const std::span<float> out = runtime.workspace.Take<float>(tokens * shard.v_heads * dv);  // [T, v_heads * dv]
  const kernels::DeltaNet::Args delta{qkv.data(),
                                      channels,
                                      ba,
                                      stride,
                                      weights.a_log,
                                      weights.dt_bias,
                                      runtime.tables.v_to_k,
                                      shard.k_heads,
                                      shard.v_heads,
                                      dk,
                                      dv,
                                      runtime.caches.state(index),
                                      runtime.caches.state_stride(),
                                      out.data(),
                                      step.spans,
                                      0,
                                      0};
  runtime.Parallel(shard.v_heads, tokens * shard.v_heads * dk * dv * 4, [&](int64_t begin, int64_t end) {
    kernels::DeltaNet::Args part = delta;
    part.begin = begin;
    part.end = end;
    runtime.kernels.delta_net->run(part);
  });
  const kernels::NestedRows out_rows{shard.v_heads, shard.v_heads * dv, dv};
  const kernels::NestedRows z_rows{shard.v_heads, stride, dv};
  const auto eps = static_cast<float>(runtime.geometry.norm_eps);
  const int64_t values = tokens * shard.v_heads;
  runtime.Parallel(values, values * dv * 16, [&](int64_t begin, int64_t end) {
    runtime.kernels.gated_norm->run({out.data(), out_rows, z, z_rows, weights.norm, dv, eps, begin, end});
  });
  runtime.MultiplyAdd(out, tokens, weights.out, {}, sums);
}

}  // namespace trivet::model
