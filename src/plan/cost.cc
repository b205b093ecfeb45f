// SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/check.h"
#include "plan/part_cost.h"

namespace trivet::plan {
namespace {

// How many layers use each part.
struct LayerCounts {
  int64_t attention = 0, delta_net = 0, mlp = 0, moe = 0;
};

LayerCounts CountLayers(const Geometry& geometry, const Stage& stage) {
  LayerCounts counts;
  for (int64_t i = stage.begin; i < stage.end; ++i) {
    const LayerGeometry& layer = geometry.layers[static_cast<size_t>(i)];
    (HasKv(layer.mixer) ? counts.attention : counts.delta_net) += 1;
    (layer.channel_mixer == ChannelMixer::kMlp ? counts.mlp : counts.moe) += 1;
  }
  return counts;
}

// Bytes of one rank, all layers: what it holds, and what a one-token step reads.
struct RankBytes {
  double resident = 0;
  std::array<double, kStepParts> parts{};  // of the step

  double& Of(StepPart part) { return parts[static_cast<size_t>(part)]; }
  double Step() const { return std::accumulate(parts.begin(), parts.end(), 0.0); }
};

// What no cut changes, of all layers of a stage together, and the final norm.
double ReplicatedStageBytes(const Geometry& geometry, const Stage& stage, const ElementBytes& bytes) {
  double total = stage.last ? static_cast<double>(geometry.hidden * 4) : 0;
  for (int64_t i = stage.begin; i < stage.end; ++i) {
    total += ReplicatedBytes(geometry, geometry.layers[static_cast<size_t>(i)], bytes);
  }
  return total;
}

// Parts of which a step reads every resident byte, by site, all layers of the stage.
std::vector<double> DenseParts(const Geometry& geometry, const RankShard& shard, const ElementBytes& bytes) {
  const LayerCounts layers = CountLayers(geometry, shard.stage);
  return {static_cast<double>(layers.attention) * AttentionWeightBytes(geometry, shard.attention, bytes),
          static_cast<double>(layers.delta_net) * DeltaNetWeightBytes(geometry, shard.delta_net, bytes),
          static_cast<double>(layers.moe) * GatedMlpBytes(geometry, shard.shared.width, bytes.Of(StepPart::kExperts)),
          static_cast<double>(layers.mlp) * GatedMlpBytes(geometry, shard.mlp.width, bytes.Of(StepPart::kMlp)),
          shard.stage.last ? VocabBytes(geometry, shard.vocab.rows, bytes.Of(StepPart::kHead)) : 0};
}

RankBytes PriceRank(const Geometry& geometry, const RankShard& shard, const ElementBytes& bytes) {
  const std::vector<double> dense = DenseParts(geometry, shard, bytes);
  const double moe_layers = static_cast<double>(CountLayers(geometry, shard.stage).moe);
  RankBytes rank;
  const StepPart sites[] = {StepPart::kAttention, StepPart::kDeltaNet, StepPart::kExperts, StepPart::kMlp,
                            StepPart::kHead};
  for (size_t i = 0; i < dense.size(); ++i) rank.Of(sites[i]) = dense[i];
  // Norms, and routers with them.
  rank.Of(StepPart::kEnds) = ReplicatedStageBytes(geometry, shard.stage, bytes);
  rank.resident = rank.Step() + moe_layers * ExpertWeightBytes(geometry, shard.experts, bytes);
  if (moe_layers > 0) rank.Of(StepPart::kExperts) += moe_layers * ExpertStepBytes(geometry, shard.experts, bytes);
  // One table is looked up and multiplied by where both happen.
  const bool same_table = geometry.tied_head && shard.stage.last;
  if (shard.stage.first() && !same_table)
    rank.resident += VocabBytes(geometry, shard.vocab.rows, bytes.Of(StepPart::kEmbed));
  return rank;
}

// Ranks of a stage wait for each other after every part, so it takes as long as the busiest rank of every part; and a
// step goes through all stages.
double CriticalBytes(const Geometry& geometry, const Layout& layout, const ElementBytes& bytes) {
  double total = 0;
  for (const Stage& stage : layout.stages) {
    std::vector<double> busiest;
    for (const RankShard& shard : layout.shards) {
      if (shard.stage != stage) continue;
      const std::vector<double> dense = DenseParts(geometry, shard, bytes);
      busiest.resize(dense.size());
      for (size_t i = 0; i < dense.size(); ++i) busiest[i] = std::max(busiest[i], dense[i]);
    }
    total += std::accumulate(busiest.begin(), busiest.end(), ReplicatedStageBytes(geometry, stage, bytes));
    const int64_t moe_layers = CountLayers(geometry, stage).moe;
    if (moe_layers > 0) total += static_cast<double>(moe_layers) * BusiestExpertBytes(geometry, layout.shards, bytes);
  }
  return total;
}

// What ranks of a context group show each other of a token in every layer with attention, or with a delta net.
void AddContext(const Geometry& geometry, const Layout& layout, const LayerCounts& layers,
                std::vector<CollectiveCost>* collectives) {
  if (layout.context.ranks == 1) return;
  int64_t keys = 0, states = 0;  // elements of the busiest rank
  for (const RankShard& shard : layout.shards) {
    const int64_t value = geometry.latent.rank > 0 ? 0 : geometry.value_dim();
    keys = std::max(keys, shard.attention.kv_heads * (geometry.key_dim() + value));
    const DeltaNetGeometry& delta = geometry.delta_net;
    const int64_t values = shard.delta_net.v_heads * delta.v_dim;
    // Queries, keys, values, the gate and two numbers of every head; and values come back.
    states = std::max(states, 2 * shard.delta_net.k_heads * delta.k_dim + 3 * values + 2 * shard.delta_net.v_heads);
  }
  if (layers.attention > 0) collectives->push_back({"keys", layers.attention, keys, keys * 4, keys * 4});
  if (layers.delta_net > 0) collectives->push_back({"states", layers.delta_net, states, states * 4, states * 4});
}

// What ranks that cut a layer show each other of the rows that are dealt to them: every norm, and a router's logits
// with the gate of a shared expert.
void AddDealt(const Geometry& geometry, const Layout& layout, const LayerCounts& layers,
              std::vector<CollectiveCost>* collectives) {
  if (!layout.sequence_parallel || layout.ranks == 1) return;
  const auto norms = 2 * static_cast<int64_t>(geometry.layers.size()) + 1;
  const int64_t columns = geometry.moe.experts + (geometry.moe.shared_width > 0 && geometry.moe.shared_gate ? 1 : 0);
  collectives->push_back({"norms", norms, geometry.hidden, geometry.hidden * 4, geometry.hidden * 4});
  if (layers.moe > 0) collectives->push_back({"routers", layers.moe, columns, columns * 4, columns * 4});
}

std::vector<CollectiveCost> Collectives(const Geometry& geometry, const Layout& layout) {
  std::vector<CollectiveCost> collectives;
  const auto borders = static_cast<int64_t>(layout.stages.size()) - 1;
  const LayerCounts layers = CountLayers(geometry, {0, static_cast<int64_t>(geometry.layers.size()), true});
  const auto add_sum = [&](const char* site, int64_t count, bool partial) {
    const int64_t elements = geometry.hidden;
    if (count > 0 && partial && layout.ranks > 1)
      collectives.push_back({site, count, elements, elements * 8, elements * 4});
  };
  const bool moe_partial = layout.partial.experts || (geometry.moe.shared_width > 0 && layout.partial.shared);
  add_sum("embed", 1, layout.partial.vocab);
  add_sum("attn", layers.attention, layout.partial.attention);
  add_sum("gdn", layers.delta_net, layout.partial.delta_net);
  add_sum("moe", layers.moe, moe_partial);
  add_sum("mlp", layers.mlp, layout.partial.mlp);
  if (layout.partial.vocab && layout.ranks > 1) {
    collectives.push_back({"logits", 1, geometry.vocab, geometry.vocab * 4, geometry.vocab * 4});
  }
  AddDealt(geometry, layout, layers, &collectives);
  AddContext(geometry, layout, layers, &collectives);
  if (borders > 0) {
    collectives.push_back({"stage", borders, geometry.hidden, geometry.hidden * 4, geometry.hidden * 4});
    collectives.push_back({"sampler", 1, geometry.vocab, geometry.vocab * 4, geometry.vocab * 4});
  }
  return collectives;
}

// The one-rank layout, what the ideal 1/N refers to.
Layout OneRank(const Geometry& geometry) {
  Result<Layout> one = MakeLayout(geometry, LayoutOptions{});
  CHECK(one.ok());
  return std::move(one).value();
}

double Factor(double largest, double total, int64_t ranks) {
  return total > 0 ? largest * static_cast<double>(ranks) / total : 1;
}

// C(n, k) as a floating-point number; exact counting would need hundreds of bits and no one reads that many.
long double Choose(int64_t n, int64_t k) {
  long double ways = 1;
  for (int64_t i = 1; i <= k; ++i) ways *= static_cast<long double>(n - k + i) / static_cast<long double>(i);
  return ways;
}

// Ways to draw `top_k` experts so that no group's weigh more than `most`: the coefficient of x^top_k in the product
// over groups of sum_{j * weight <= most} C(held, j) x^j.
long double WaysWithin(const std::vector<ExpertGroup>& groups, int64_t top_k, int64_t most) {
  std::vector<long double> ways(static_cast<size_t>(top_k) + 1, 0);
  ways[0] = 1;
  for (const ExpertGroup& group : groups) {
    std::vector<long double> next(ways.size(), 0);
    for (int64_t j = 0; j <= std::min(top_k, group.held) && j * group.weight <= most; ++j) {
      const long double choices = Choose(group.held, j);
      for (size_t drawn = 0; drawn + static_cast<size_t>(j) < ways.size(); ++drawn) {
        next[drawn + static_cast<size_t>(j)] += ways[drawn] * choices;
      }
    }
    ways = std::move(next);
  }
  return ways.back();
}

}  // namespace

double ExpectedMaxRouted(const std::vector<ExpertGroup>& groups, int64_t top_k) {
  int64_t experts = 0;
  for (const ExpertGroup& group : groups) experts += group.held;
  const int64_t drawn = std::min(top_k, experts);
  if (drawn <= 0) return 0;
  std::set<int64_t> totals;  // that a group may have
  for (const ExpertGroup& group : groups) {
    for (int64_t j = 1; j <= std::min(drawn, group.held); ++j) totals.insert(j * group.weight);
  }
  // E[max] = sum over steps from one total to the next of their height times P(max is beyond the lower).
  const long double all = Choose(experts, drawn);
  long double expected = 0;
  int64_t below = 0;
  for (const int64_t total : totals) {
    expected += static_cast<long double>(total - below) * (1 - WaysWithin(groups, drawn, below) / all);
    below = total;
  }
  return static_cast<double>(expected);
}

double ResidentBytes(const Geometry& geometry, const RankShard& shard, const ElementBytes& bytes) {
  return PriceRank(geometry, shard, bytes).resident;
}

LayoutCost PriceLayout(const Geometry& geometry, const Layout& layout, const ElementBytes& bytes) {
  const Layout one = OneRank(geometry);
  const RankShard& whole = one.shards.front();
  LayoutCost cost;
  RankCost largest;
  for (const RankShard& shard : layout.shards) {
    const LayerCounts layers = CountLayers(geometry, shard.stage);
    const RankBytes rank = PriceRank(geometry, shard, bytes);
    RankCost& out = cost.ranks.emplace_back();
    out.weight_bytes = std::llround(rank.resident);
    out.step_bytes = std::llround(rank.Step());
    out.part_bytes = rank.parts;
    out.kv_token_bytes = layers.attention * KvTokenBytes(geometry, shard.attention, bytes);
    out.state_bytes = layers.delta_net * StateBytes(geometry, shard.delta_net);
    largest.weight_bytes = std::max(largest.weight_bytes, out.weight_bytes);
    largest.kv_token_bytes = std::max(largest.kv_token_bytes, out.kv_token_bytes);
  }
  cost.collectives = Collectives(geometry, layout);
  cost.critical_bytes = std::llround(CriticalBytes(geometry, layout, bytes));
  const auto ranks = static_cast<int64_t>(layout.shards.size());
  const int64_t kv_layers = CountLayers(geometry, whole.stage).attention;
  cost.weight_factor =
      Factor(static_cast<double>(largest.weight_bytes), PriceRank(geometry, whole, bytes).resident, ranks);
  cost.step_factor = Factor(CriticalBytes(geometry, layout, bytes), CriticalBytes(geometry, one, bytes), ranks);
  cost.kv_factor = Factor(static_cast<double>(largest.kv_token_bytes),
                          static_cast<double>(kv_layers * KvTokenBytes(geometry, whole.attention, bytes)), ranks);
  return cost;
}

}  // namespace trivet::plan
