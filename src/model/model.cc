// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <algorithm>

#include "model/layers.h"

namespace trivet::model {

Status Model::Forward(const StepTokens& tokens, const StepOutput& output) {
  const device::Workspace::Frame frame(&runtime_.workspace);
  const StepView step = StageStep(runtime_, tokens);
  const std::span<float> x = runtime_.workspace.Take<float>(step.tokens * runtime_.geometry.hidden);  // [T, H]
  runtime_.comm.BeginStep();
  TRY(Embed(runtime_, weights_.embed, step, x));
  for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    TRY(Block(static_cast<int64_t>(layer), step, x));
    if (!output.hidden.empty()) {
      runtime_.device.Download(output.hidden.data() + layer * x.size(), x.data(), static_cast<int64_t>(x.size_bytes()));
    }
  }
  return Head(runtime_, weights_, step, x, output.logits);
}

Status Model::Block(int64_t layer, const StepView& step, std::span<float> x) {
  const device::Workspace::Frame frame(&runtime_.workspace);
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const plan::LayerGeometry& kind = runtime_.geometry.layers[static_cast<size_t>(layer)];
  const plan::Partials& partial = runtime_.layout.partial;
  const int64_t tokens = step.tokens;
  const std::span<float> h = runtime_.workspace.Take<float>(static_cast<int64_t>(x.size()));

  runtime_.Norm(x, w.input_norm, h);
  const Sums mixed = runtime_.NewSums(tokens);
  const LayerPlace place{w.index, kind};
  switch (kind.mixer) {
    case plan::Mixer::kAttention:
      AttentionLayer(runtime_, w.attention, place, step, h, mixed);
      TRY(runtime_.AddResidual({"attn", layer, partial.attention, w.mixer_norm}, mixed, x));
      break;
    case plan::Mixer::kLatentAttention:
      LatentAttentionLayer(runtime_, w.latent, place, step, h, mixed);
      TRY(runtime_.AddResidual({"attn", layer, partial.attention, w.mixer_norm}, mixed, x));
      break;
    case plan::Mixer::kDeltaNet:
      DeltaNetLayer(runtime_, w.delta_net, w.index, step, h, mixed);
      TRY(runtime_.AddResidual({"gdn", layer, partial.delta_net, w.mixer_norm}, mixed, x));
      break;
  }

  runtime_.Norm(x, w.post_norm, h);
  const Sums channels = runtime_.NewSums(tokens);
  if (kind.channel_mixer == plan::ChannelMixer::kMlp) {
    MlpLayer(runtime_, w.mlp, h, tokens, nullptr, channels);
    return runtime_.AddResidual({"mlp", layer, partial.mlp, w.channel_norm}, channels, x);
  }
  MoeLayer(runtime_, w.moe, h, channels);
  return runtime_.AddResidual({"moe", layer, partial.experts || partial.shared, w.channel_norm}, channels, x);
}

int64_t Model::WorkspaceBytes(const plan::Geometry& geometry, const plan::RankShard& shard, const StepSize& size) {
  const int64_t hidden = geometry.hidden;
  const plan::AttentionGeometry& attention = geometry.attention;
  const plan::LatentGeometry& latent = geometry.latent;
  const plan::DeltaNetGeometry& delta = geometry.delta_net;
  const plan::MoeGeometry& moe = geometry.moe;
  // Per token, 4-byte words: what the step is, the residual stream, its norm and two sums of 8 bytes; then the largest
  // layer.
  const int64_t stream = StagedWords(geometry) + hidden * (1 + 1 + 2 * 2);
  const int64_t heads = shard.attention.q_heads, q = heads * attention.head_dim;
  const int64_t attn =
      latent.rank > 0 ? latent.query_rank + geometry.key_dim() + q +
                            heads * (geometry.key_dim() + latent.rank + latent.value_dim) + 1
                      : q * (attention.output_gate ? 2 : 1) + 2 * shard.attention.kv_heads * attention.head_dim + q + 1;
  const int64_t values = shard.delta_net.v_heads * delta.v_dim;
  const int64_t channels = 2 * shard.delta_net.k_heads * delta.k_dim + values;
  const int64_t gdn = (channels + values + 2 * shard.delta_net.v_heads) + channels + values;
  // Pairs of a token and an expert: gate, up, act, and four words of routing.
  const int64_t pairs = moe.top_k * (3 * shard.experts.channels.width + 4);
  const int64_t mlp = 3 * std::max(shard.mlp.width, shard.shared.width) + pairs + (moe.experts + 1) + 1;
  const int64_t head = size.rows * (2 * hidden + shard.vocab.rows);
  const int64_t pages = size.pages * (1 + Windows(geometry));
  const auto slots = static_cast<int64_t>(shard.experts.slots.size()) + 1;
  // Every Take rounds up to 64 bytes; a step makes fewer than 64 of them at a time.
  return 4 * (size.tokens * (stream + std::max({attn, gdn, mlp, hidden})) + head + slots + pages) + 64 * 64;
}

}  // namespace trivet::model
