// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <algorithm>
#include <array>

#include "model/layers.h"

namespace trivet::model {

using plan::StepPart;

namespace {

// Whether a step has a token of every sequence.
bool Decodes(const StepView& step) { return step.tokens == static_cast<int64_t>(step.own.paged.size()); }

}  // namespace

Status Model::Forward(const StepTokens& tokens, const StepOutput& output) {
  const device::Workspace::Frame frame(&runtime_.workspace);
  const StepView step = StageStep(runtime_, tokens);
  // [T, H], of which the first are the rows that this rank keeps.
  const std::span<float> x = runtime_.workspace.Take<float>(step.tokens * runtime_.geometry.hidden);
  const std::span<float> kept = x.first(static_cast<size_t>(step.kept * runtime_.geometry.hidden));
  const int64_t width = runtime_.shard.vocab.rows, logits = step.rows - step.drawn;
  const HeadOutput head{runtime_.workspace.Take<float>(step.rows * width),
                        runtime_.workspace.Take<uint64_t>(step.rows * kernels::kArgmaxParts)};
  runtime_.comm.BeginStep();
  TRY(runtime_.pipeline.Receive(kept));
  const auto compute = [&] { return Compute(step, x, output.hidden, head); };
  TRY(IsRepeated(step, output) ? Repeat(step, compute) : compute());
  const std::vector<uint64_t> keys = TakeResults(step, head);
  if (parts_ && Decodes(step) && step.rows > 0) parts_->End();
  if (!runtime_.shard.stage.last) return runtime_.pipeline.Send(kept);
  TRY(GatherLogits(runtime_, logits, head.local.first(static_cast<size_t>(logits * width)), output.logits));
  return GatherDrawn(runtime_, step, head.local, keys, output.drawn);
}

// What the host needs of every step, in one transfer: what the step met, and the keys of its drawn rows. Prompts whose
// rows nobody wants go on without waiting.
std::vector<uint64_t> Model::TakeResults(const StepView& step, const HeadOutput& head) const {
  if (step.whole_rows == 0) return {};
  std::vector<uint64_t> keys(runtime_.shard.stage.last ? static_cast<size_t>(step.drawn * kernels::kArgmaxParts) : 0);
  uint32_t met = 0;
  const std::span<uint64_t> there = head.keys.last(keys.size());
  runtime_.device.Download(
      std::array<device::Device::Piece, 2>{{{&met, runtime_.tables.flags, sizeof(met)},
                                            {keys.data(), there.data(), static_cast<int64_t>(there.size_bytes())}}});
  runtime_.comm.SetReport(met);
  return keys;
}

// A GPU spends longer on launching the kernels of a short step than on running them.
bool Model::IsRepeated(const StepView& step, const StepOutput& output) const {
  return runtime_.device.backend() == Backend::kCuda && runtime_.comm.recordable() && runtime_.log == nullptr &&
         output.hidden.empty() && Decodes(step) && !parts_;
}

Status Model::Repeat(const StepView& step, const std::function<Status()>& compute) {
  // Decoding changes neither addresses nor sizes as long as as many sequences run.
  device::ReplayClock* const clock = clock_ ? &*clock_ : nullptr;
  Recording& recording = recordings_[{step.tokens, step.rows, HeadDraws(runtime_, step)}];
  if (!recording.graph.recorded()) {
    // The first run is an ordinary one: kernels are loaded by their first launch, which cannot be recorded.
    if (recording.runs++ == 0) return compute();
    TRY_ASSIGN(recording.graph, device::Graph::Record(compute, clock));
    // Making a graph may wait for the whole GPU, which a kernel of another rank that waits for this one would hold up.
    TRY(runtime_.comm.Barrier());
  }
  recording.graph.Launch(clock);
  return {};
}

Status Model::Compute(const StepView& step, std::span<float> x, std::span<float> hidden, const HeadOutput& head) {
  const device::Workspace::Frame frame(&runtime_.workspace);
  const plan::Stage& stage = runtime_.shard.stage;
  if (parts_) parts_->Begin();
  if (stage.first()) TRY(Embed(runtime_, weights_.embed, step, x));
  Mark(StepPart::kEmbed);
  const int64_t width = runtime_.geometry.hidden;
  const Residual state{x.first(static_cast<size_t>(step.kept * width)),
                       runtime_.workspace.Take<float>(step.kept * width), runtime_.JoinedRows(width, step.keepers),
                       runtime_.NewSums(step.tokens)};
  std::span<const float> h;
  if (!weights_.layers.empty()) {
    runtime_.Norm(state.x, weights_.layers.front().input_norm, state.y);
    TRY_ASSIGN(h, Joined({record::Site::kMixerNorm, stage.begin}, step, state));
  }
  Mark(StepPart::kEnds);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    TRY_ASSIGN(h, Block(i, step, state, h));
    if (!hidden.empty()) {
      const auto bytes = static_cast<int64_t>(state.x.size_bytes());
      runtime_.device.Download(hidden.data() + i * state.x.size(), state.x.data(), bytes);
    }
  }
  if (stage.last) TRY(Head(runtime_, weights_, step, state.x, head));
  Mark(StepPart::kHead);
  return {};
}

Result<std::span<const float>> Model::Joined(const RowsSite& site, const StepView& step, const Residual& state) const {
  const int64_t width = runtime_.geometry.hidden;
  TRY_ASSIGN(const comm::RowsView rows, runtime_.JoinRows(site, state.y, width, step.keepers, state.joined));
  return std::span(rows.data, static_cast<size_t>(step.tokens * width));
}

Status Model::Mix(size_t at, const StepView& step, std::span<const float> h, const Sums& sums) {
  const int64_t layer = runtime_.shard.stage.begin + static_cast<int64_t>(at);
  const LayerWeights& w = weights_.layers[at];
  const LayerPlace place{w.index, runtime_.geometry.layers[static_cast<size_t>(layer)], layer};
  switch (place.layer.mixer) {
    case plan::Mixer::kAttention:
      return AttentionLayer(runtime_, w.attention, place, step, h, sums);
    case plan::Mixer::kLatentAttention:
      return LatentAttentionLayer(runtime_, w.latent, place, step, h, sums);
    case plan::Mixer::kDeltaNet:
      break;
  }
  return DeltaNetLayer(runtime_, w.delta_net, place, step, h, sums);
}

Result<std::span<const float>> Model::Block(size_t at, const StepView& step, const Residual& state,
                                            std::span<const float> h) {
  const device::Workspace::Frame frame(&runtime_.workspace);
  const int64_t layer = runtime_.shard.stage.begin + static_cast<int64_t>(at);
  const LayerWeights& w = weights_.layers[at];
  const plan::LayerGeometry& kind = runtime_.geometry.layers[static_cast<size_t>(layer)];
  const plan::Partials& partial = runtime_.layout.partial;
  const bool delta_net = kind.mixer == plan::Mixer::kDeltaNet;
  const bool mixer_partial = delta_net ? partial.delta_net : partial.attention;
  TRY(Mix(at, step, h, state.sums));
  Mark(delta_net ? StepPart::kDeltaNet : StepPart::kAttention);
  TRY(runtime_.AddResidual({record::Site::kMixer, layer, mixer_partial, w.mixer_norm, step.keepers}, state.sums,
                           state.x, {w.post_norm, state.y}));
  TRY_ASSIGN(h, Joined({record::Site::kChannelsNorm, layer}, step, state));
  Mark(StepPart::kEnds);

  const bool last = at + 1 == weights_.layers.size();
  const NextBranch next{last ? nullptr : weights_.layers[at + 1].input_norm, state.y};
  const bool mlp = kind.channel_mixer == plan::ChannelMixer::kMlp;
  bool channels_partial = partial.mlp;
  if (mlp) {
    MlpLayer(runtime_, w.mlp, h, step.tokens, nullptr, state.sums);
  } else {
    channels_partial = partial.experts || partial.shared;
    TRY(MoeLayer(runtime_, w.moe, layer, {h, state.y, step.keepers}, state.sums));
  }
  Mark(mlp ? StepPart::kMlp : StepPart::kExperts);
  TRY(runtime_.AddResidual({record::Site::kChannels, layer, channels_partial, w.channel_norm, step.keepers}, state.sums,
                           state.x, next));
  if (!last) {
    TRY_ASSIGN(h, Joined({record::Site::kMixerNorm, layer + 1}, step, state));
  }
  Mark(StepPart::kEnds);
  return h;
}

int64_t Model::WorkspaceBytes(const plan::Geometry& geometry, const plan::RankShard& shard, const StepSize& size) {
  const int64_t hidden = geometry.hidden;
  const plan::AttentionGeometry& attention = geometry.attention;
  const plan::LatentGeometry& latent = geometry.latent;
  const plan::DeltaNetGeometry& delta = geometry.delta_net;
  const plan::MoeGeometry& moe = geometry.moe;
  // Per token, 4-byte words: the residual stream, its norm and a sum of 8 bytes; then the largest layer, of which
  // mixers have rows of the whole step besides their own; or the end of a branch, with its sum as floats and normed.
  const int64_t stream = hidden * (1 + 1 + 2);
  const int64_t heads = shard.attention.q_heads, q = heads * attention.head_dim;
  const int64_t attn =
      latent.rank > 0 ? latent.query_rank + geometry.key_dim() + q +
                            heads * (geometry.key_dim() + latent.rank + latent.value_dim) + geometry.key_dim() + 1
                      : q * (attention.output_gate ? 2 : 1) + 4 * shard.attention.kv_heads * attention.head_dim + q + 1;
  const int64_t values = shard.delta_net.v_heads * delta.v_dim;
  const int64_t channels = 2 * shard.delta_net.k_heads * delta.k_dim + values;
  const int64_t gdn = 2 * (channels + values + 2 * shard.delta_net.v_heads) + channels + 2 * values;
  // Pairs of a token and an expert: gate, up, act, four words of routing, and three of its record.
  const int64_t pairs = moe.top_k * (3 * shard.experts.channels.width + 4 + 3) + 1;
  const int64_t mlp = 3 * std::max(shard.mlp.width, shard.shared.width) + pairs + (moe.experts + 1) + 1;
  // Of a row of the head besides: a key and its number, where rows come together to be drawn from.
  const int64_t head = size.rows * (2 * hidden + shard.vocab.rows + 2 * kernels::kArgmaxParts + 3);
  const auto slots = static_cast<int64_t>(shard.experts.slots.size()) + 1;
  // Norms, router's logits and last norms of all rows, where a rank keeps a part of them.
  const int64_t joined = size.dealt * (hidden + moe.experts + 1) + (size.dealt > 0 ? size.rows * hidden : 0);
  // Every Take rounds up to 64 bytes; a step makes fewer than 64 of them at a time.
  return StagedBytes(geometry, size) +
         4 * (size.tokens * (stream + std::max({attn, gdn, mlp, 2 * hidden})) + joined + head + slots) + 64 * 64;
}

}  // namespace trivet::model
