// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_json.h"

#include <cmath>

namespace trivet::plan {
namespace {

Json CostJson(const LayoutCost& cost) {
  Json json = {{"weight_factor", RoundedFactor(cost.weight_factor)},
               {"step_factor", RoundedFactor(cost.step_factor)},
               {"kv_factor", RoundedFactor(cost.kv_factor)},
               {"critical_bytes", cost.critical_bytes},
               {"ranks", Json::array()},
               {"collectives", Json::array()}};
  for (const RankCost& rank : cost.ranks) {
    json["ranks"].push_back({{"weight_bytes", rank.weight_bytes},
                             {"step_bytes", rank.step_bytes},
                             {"kv_token_bytes", rank.kv_token_bytes},
                             {"state_bytes", rank.state_bytes}});
  }
  for (const CollectiveCost& collective : cost.collectives) {
    json["collectives"].push_back({{"site", collective.site},
                                   {"count", collective.count},
                                   {"elements", collective.elements},
                                   {"bytes_exact", collective.bytes_exact},
                                   {"bytes_fast", collective.bytes_fast}});
  }
  return json;
}

}  // namespace

Json GeometryJson(const Geometry& geometry) {
  Json json = {{"family", geometry.family},
               {"hidden", geometry.hidden},
               {"vocab", geometry.vocab},
               {"layers", geometry.layers.size()},
               {"tied_head", geometry.tied_head}};
  if (geometry.Uses(Mixer::kAttention)) {
    json["attention"] = {{"q_heads", geometry.attention.q_heads},
                         {"kv_heads", geometry.attention.kv_heads},
                         {"head_dim", geometry.attention.head_dim}};
  }
  if (geometry.Uses(Mixer::kLatentAttention)) {
    json["latent"] = {{"heads", geometry.attention.q_heads},  {"query_rank", geometry.latent.query_rank},
                      {"rank", geometry.latent.rank},         {"nope_dim", geometry.latent.nope_dim},
                      {"rope_dim", geometry.latent.rope_dim}, {"value_dim", geometry.latent.value_dim}};
  }
  if (geometry.Uses(Mixer::kDeltaNet)) {
    json["delta_net"] = {{"k_heads", geometry.delta_net.k_heads},
                         {"v_heads", geometry.delta_net.v_heads},
                         {"k_dim", geometry.delta_net.k_dim},
                         {"v_dim", geometry.delta_net.v_dim}};
  }
  if (geometry.Uses(ChannelMixer::kMoe)) {
    json["moe"] = {{"experts", geometry.moe.experts},
                   {"top_k", geometry.moe.top_k},
                   {"width", geometry.moe.width},
                   {"shared_width", geometry.moe.shared_width}};
  }
  if (geometry.Uses(ChannelMixer::kMlp)) json["mlp_width"] = geometry.mlp_width;
  return json;
}

double RoundedFactor(double factor) { return std::round(factor * 1e4) / 1e4; }

Json PlanJson(const Geometry& geometry, const Layout& layout, const LayoutCost& cost) {
  return {{"geometry", GeometryJson(geometry)}, {"layout", LayoutJson(layout)}, {"cost", CostJson(cost)}};
}

}  // namespace trivet::plan
