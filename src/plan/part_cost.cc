// SPDX-License-Identifier: Apache-2.0
#include "plan/part_cost.h"

#include <algorithm>

#include "plan/leaf.h"

namespace trivet::plan {
namespace {

constexpr int64_t kVectorBytes = 4;  // float32

// Down projections, and one head's query, key-up, value-up and output projections.
double LatentWeightBytes(const Geometry& geometry, const AttentionShard& shard, const ElementBytes& bytes) {
  if (shard.q_heads == 0) return 0;
  const LatentGeometry& latent = geometry.latent;
  const int64_t down = (latent.query_rank + latent.rank + latent.rope_dim) * geometry.hidden;
  const int64_t query_in = latent.query_rank > 0 ? latent.query_rank : geometry.hidden;
  const int64_t head = geometry.attention.head_dim * query_in + HeadRows(latent.rank) * latent.nope_dim +
                       HeadRows(latent.value_dim) * latent.rank + latent.value_dim * geometry.hidden;
  return static_cast<double>(down + shard.q_heads * head) * bytes.Of(StepPart::kAttention);
}

}  // namespace

double AttentionWeightBytes(const Geometry& geometry, const AttentionShard& shard, const ElementBytes& bytes) {
  if (geometry.Uses(Mixer::kLatentAttention)) return LatentWeightBytes(geometry, shard, bytes);
  const AttentionGeometry& attention = geometry.attention;
  const int64_t query_parts = attention.output_gate ? 2 : 1;
  const int64_t heads = shard.q_heads * (query_parts + 1) + shard.kv_heads * 2;
  return static_cast<double>(heads * attention.head_dim * geometry.hidden) * bytes.Of(StepPart::kAttention);
}

int64_t KvTokenBytes(const Geometry& geometry, const AttentionShard& shard, const ElementBytes& bytes) {
  return shard.kv_heads * ((geometry.key_dim() + geometry.value_dim()) * bytes.cache + 2 * bytes.cache_row);
}

double DeltaNetWeightBytes(const Geometry& geometry, const DeltaNetShard& shard, const ElementBytes& bytes) {
  const DeltaNetGeometry& net = geometry.delta_net;
  const int64_t keys = shard.k_heads * net.k_dim;
  const int64_t values = shard.v_heads * net.v_dim;
  const int64_t in_rows = 2 * keys + 2 * values + 2 * shard.v_heads;
  const int64_t vectors = (2 * keys + values) * net.conv_width + 2 * shard.v_heads;
  return static_cast<double>((in_rows + values) * geometry.hidden) * bytes.Of(StepPart::kDeltaNet) +
         static_cast<double>(vectors * kVectorBytes);
}

int64_t StateBytes(const Geometry& geometry, const DeltaNetShard& shard) {
  const DeltaNetGeometry& net = geometry.delta_net;
  const int64_t recurrent = shard.v_heads * net.v_dim * net.k_dim;
  const int64_t convolution = (net.conv_width - 1) * (2 * shard.k_heads * net.k_dim + shard.v_heads * net.v_dim);
  return (recurrent + convolution) * kVectorBytes;
}

double GatedMlpBytes(const Geometry& geometry, int64_t width, double element) {
  return static_cast<double>(3 * width * geometry.hidden) * element;
}

int64_t HeldExperts(const ExpertShard& shard) {
  return std::count_if(shard.slots.begin(), shard.slots.end(), [](int64_t expert) { return expert >= 0; });
}

double ExpertWeightBytes(const Geometry& geometry, const ExpertShard& shard, const ElementBytes& bytes) {
  return static_cast<double>(HeldExperts(shard)) *
         GatedMlpBytes(geometry, shard.channels.width, bytes.Of(StepPart::kExperts));
}

double ExpertStepBytes(const Geometry& geometry, const ExpertShard& shard, const ElementBytes& bytes) {
  const double routed_fraction = static_cast<double>(geometry.moe.top_k) / static_cast<double>(geometry.moe.experts);
  return ExpertWeightBytes(geometry, shard, bytes) * routed_fraction;
}

double BusiestExpertBytes(const Geometry& geometry, const std::vector<RankShard>& shards, const ElementBytes& bytes) {
  std::vector<ExpertGroup> groups;  // a weight counts the channels of the group's widest member
  for (const RankShard& shard : shards) {
    const ExpertShard& experts = shard.experts;
    groups.resize(std::max(groups.size(), static_cast<size_t>(experts.group) + 1), {0, 0});
    ExpertGroup& group = groups[static_cast<size_t>(experts.group)];
    group.held = std::max(group.held, HeldExperts(experts));
    group.weight = std::max(group.weight, experts.channels.width);
  }
  return ExpectedMaxRouted(groups, geometry.moe.top_k) * GatedMlpBytes(geometry, 1, bytes.Of(StepPart::kExperts));
}

double VocabBytes(const Geometry& geometry, int64_t rows, double element) {
  return static_cast<double>(rows * geometry.hidden) * element;
}

double ReplicatedBytes(const Geometry& geometry, const LayerGeometry& layer, const ElementBytes& bytes) {
  int64_t vectors = (geometry.branch_norms ? 4 : 2) * geometry.hidden;
  if (layer.mixer == Mixer::kDeltaNet) vectors += geometry.delta_net.v_dim;
  if (layer.mixer == Mixer::kAttention && geometry.attention.qk_norm) vectors += 2 * geometry.attention.head_dim;
  double router = 0;
  if (layer.channel_mixer == ChannelMixer::kMoe) {
    const bool gate = geometry.moe.shared_width > 0 && geometry.moe.shared_gate;
    const int64_t rows = geometry.moe.experts + (gate ? 1 : 0);
    router = static_cast<double>(rows * geometry.hidden) * bytes.Of(StepPart::kEnds);
  }
  return router + static_cast<double>(vectors * kVectorBytes);
}

}  // namespace trivet::plan
