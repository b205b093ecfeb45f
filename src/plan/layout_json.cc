// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.h"
#include "plan/plan_json.h"

namespace trivet::plan {
namespace {

Json WidthJson(const WidthShard& shard) {
  return {{"begin", shard.begin}, {"width", shard.width}, {"real", shard.real}};
}

Json AttentionJson(const AttentionShard& shard) {
  return {{"q_begin", shard.q_begin},   {"q_heads", shard.q_heads},   {"q_real", shard.q_real},
          {"kv_begin", shard.kv_begin}, {"kv_heads", shard.kv_heads}, {"kv_real", shard.kv_real},
          {"q_to_kv", shard.q_to_kv}};
}

Json DeltaNetJson(const DeltaNetShard& shard) {
  return {{"v_begin", shard.v_begin}, {"v_heads", shard.v_heads}, {"v_real", shard.v_real}, {"k_begin", shard.k_begin},
          {"k_heads", shard.k_heads}, {"k_real", shard.k_real},   {"v_to_k", shard.v_to_k}};
}

Json VocabJson(const VocabShard& shard) { return {{"begin", shard.begin}, {"rows", shard.rows}, {"real", shard.real}}; }

// Whether the table has a row for the axis.
bool Has(const Layout& layout, const char* axis) {
  for (const AxisPlan& row : layout.axes) {
    if (row.axis == axis) return true;
  }
  return false;
}

Json ShardJson(const Layout& layout, const RankShard& shard) {
  Json json = {{"layers", {shard.stage.begin, shard.stage.end}}};
  if (Has(layout, "attn")) json["attn"] = AttentionJson(shard.attention);
  if (Has(layout, "gdn")) json["gdn"] = DeltaNetJson(shard.delta_net);
  if (Has(layout, "experts")) {
    json["experts"] = {{"group", shard.experts.group},
                       {"slots", shard.experts.slots},
                       {"channels", WidthJson(shard.experts.channels)}};
  }
  if (Has(layout, "shared")) json["shared"] = WidthJson(shard.shared);
  if (Has(layout, "mlp")) json["mlp"] = WidthJson(shard.mlp);
  json["vocab"] = VocabJson(shard.vocab);
  return json;
}

}  // namespace

Json LayoutJson(const Layout& layout) {
  Json json = {{"ranks", layout.ranks},
               {"context",
                {{"ranks", layout.context.ranks},
                 {"split", SequenceSplitName(layout.context.split)},
                 {"stretch", layout.context.stretch}}},
               {"sequence_parallel", layout.sequence_parallel},
               {"axes", Json::array()},
               {"shards", Json::array()},
               {"stages", Json::array()},
               {"replicas", layout.replicas}};
  for (const Stage& stage : layout.stages) json["stages"].push_back(Json::array({stage.begin, stage.end}));
  for (const AxisPlan& row : layout.axes) {
    json["axes"].push_back({{"axis", row.axis},
                            {"unit", row.unit},
                            {"cut", row.cut},
                            {"stock", row.stock},
                            {"padded", row.padded},
                            {"per_rank", row.per_rank},
                            {"real", row.real},
                            {"factor", RoundedFactor(row.factor)},
                            {"reason", row.reason}});
  }
  if (layout.placement) json["placement"] = layout.placement->PlanFragment();
  for (const RankShard& shard : layout.shards) json["shards"].push_back(ShardJson(layout, shard));
  return json;
}

}  // namespace trivet::plan
