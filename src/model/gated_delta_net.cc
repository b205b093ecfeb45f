// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "model/layers.h"

namespace trivet::model {

namespace {

// Queries and keys, normalised, and values of the whole step, after the convolution: [T, channels].
std::span<float> Convolve(const Runtime& runtime, const DeltaNetWeights& weights, int64_t index, const StepView& step,
                          const comm::RowsView& in) {
  const plan::DeltaNetGeometry& geometry = runtime.geometry.delta_net;
  const plan::DeltaNetShard& shard = runtime.shard.delta_net;
  const int64_t tokens = step.whole_tokens;
  const int64_t dk = geometry.k_dim;
  const int64_t channels = 2 * shard.k_heads * dk + shard.v_heads * geometry.v_dim;
  const std::span<float> qkv = runtime.workspace.Take<float>(tokens * channels);
  const kernels::Conv1d::Args conv{
      in.data,    in.stride, weights.taps,        runtime.caches.conv(index), runtime.caches.conv_stride(),
      qkv.data(), channels,  geometry.conv_width, step.whole.paged,           tokens,
      0,          0};
  // Sixteen channels at a time keep vectors whole.
  runtime.Parallel((channels + 15) / 16, tokens * channels * 16, [&](int64_t begin, int64_t end) {
    kernels::Conv1d::Args part = conv;
    part.begin = begin * 16;
    part.end = std::min(end * 16, channels);
    runtime.kernels.conv1d->run(part);
  });
  const int64_t heads = 2 * shard.k_heads;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dk)));
  const kernels::L2Norm::Args norm{qkv.data(), {heads, channels, dk}, dk, scale, shard.k_heads, 0, 0};
  runtime.RunParallel(*runtime.kernels.l2_norm, norm, tokens * heads, tokens * heads * dk * Runtime::kElementWork);
  return qkv;
}

// The recurrence over all rows of the step, of this rank's share of the heads; then this rank's own rows of all heads:
// [T, v_heads * dv].
Result<std::span<float>> Recur(const Runtime& runtime, const DeltaNetWeights& weights, int64_t index,
                               const StepView& step, const comm::RowsView& in) {
  const plan::DeltaNetGeometry& geometry = runtime.geometry.delta_net;
  const plan::DeltaNetShard& shard = runtime.shard.delta_net;
  const int64_t tokens = step.whole_tokens;
  const int64_t dk = geometry.k_dim, dv = geometry.v_dim, values = shard.v_heads * dv;
  const int64_t channels = 2 * shard.k_heads * dk + values;  // queries, keys, values
  const std::span<float> qkv = Convolve(runtime, weights, index, step, in);
  const std::span<float> out = runtime.workspace.Take<float>(tokens * values);
  const kernels::DeltaNet::Args delta{qkv.data(),
                                      channels,
                                      in.data + channels + values,
                                      in.stride,
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
                                      step.whole.paged,
                                      0,
                                      0};
  const comm::Share heads = comm::ShareOf(shard.v_heads, runtime.context.size(), runtime.context.rank());
  const int64_t count = heads.end - heads.begin;
  runtime.Parallel(count, tokens * count * dk * dv * 4, [&](int64_t begin, int64_t end) {
    kernels::DeltaNet::Args part = delta;
    part.begin = heads.begin + begin;
    part.end = heads.begin + end;
    runtime.kernels.delta_net->run(part);
  });
  return runtime.context.ReturnRows(out, shard.v_heads, dv, step.runs,
                                    runtime.workspace.Take<float>(step.tokens * values));
}

}  // namespace

Status DeltaNetLayer(const Runtime& runtime, const DeltaNetWeights& weights, const LayerPlace& place,
                     const StepView& step, std::span<const float> x, const Sums& sums) {
  const plan::DeltaNetGeometry& geometry = runtime.geometry.delta_net;
  const plan::DeltaNetShard& shard = runtime.shard.delta_net;
  if (shard.v_heads == 0) {
    for (const record::Site site : {record::Site::kShown, record::Site::kReturned}) {
      runtime.LogCollective(site, place.number, {});  // nothing to show
    }
    return {};
  }
  const device::Workspace::Frame frame(&runtime.workspace);
  const int64_t tokens = step.tokens;
  const int64_t dv = geometry.v_dim, stride = weights.in.n;
  const std::span<float> in = runtime.workspace.Take<float>(tokens * stride);
  runtime.Multiply(x, tokens, weights.in, in);
  TRY_ASSIGN(const comm::RowsView whole, runtime.WholeRows(step, {in.data(), stride}, stride));
  runtime.LogCollective(record::Site::kShown, place.number, runtime.context.last());
  TRY_ASSIGN(const std::span<float> out, Recur(runtime, weights, place.index, step, whole));
  runtime.LogCollective(record::Site::kReturned, place.number, runtime.context.last());
  const float* z = in.data() + 2 * shard.k_heads * geometry.k_dim + shard.v_heads * dv;
  const kernels::NestedRows out_rows{shard.v_heads, shard.v_heads * dv, dv};
  const kernels::NestedRows z_rows{shard.v_heads, stride, dv};
  const auto eps = static_cast<float>(runtime.geometry.norm_eps);
  const int64_t values = tokens * shard.v_heads;
  runtime.Parallel(values, values * dv * 16, [&](int64_t begin, int64_t end) {
    runtime.kernels.gated_norm->run({out.data(), out_rows, z, z_rows, weights.norm, dv, eps, begin, end});
  });
  runtime.MultiplyAdd(out, tokens, weights.out, {}, sums);
  return {};
}

}  // namespace trivet::model
