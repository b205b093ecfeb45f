// SPDX-License-Identifier: Apache-2.0
#include "plan/axis_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/part_cost.h"

namespace trivet::plan {
namespace {

// Heads of one kind (query, value) that each belong to a head of another (KV, key).
struct HeadAxis {
  int64_t heads = 0;
  int64_t owners = 0;
};

// Heads [begin, begin + count) and the owners they touch, on the padded axis.
struct HeadRange {
  int64_t begin = 0, count = 0, real = 0;
  int64_t owner_begin = 0, owner_count = 0, owner_real = 0;
  std::vector<int32_t> to_owner;
};

HeadRange MakeHeadRange(const HeadAxis& axis, int64_t begin, int64_t count) {
  const int64_t group = axis.heads / axis.owners;
  HeadRange range;
  range.begin = begin;
  range.count = count;
  range.real = std::clamp(axis.heads - begin, int64_t{0}, count);
  range.owner_begin = begin / group;
  range.owner_count = count == 0 ? 0 : (begin + count - 1) / group - range.owner_begin + 1;
  range.owner_real = std::clamp(axis.owners - range.owner_begin, int64_t{0}, range.owner_count);
  for (int64_t i = 0; i < count; ++i) {
    range.to_owner.push_back(static_cast<int32_t>((begin + i) / group - range.owner_begin));
  }
  return range;
}

void FillAttention(HeadRange range, RankShard* shard) {
  shard->attention = {range.begin,
                      range.count,
                      range.real,
                      range.owner_begin,
                      range.owner_count,
                      range.owner_real,
                      std::move(range.to_owner)};
}

void FillDeltaNet(HeadRange range, RankShard* shard) {
  shard->delta_net = {range.begin,
                      range.count,
                      range.real,
                      range.owner_begin,
                      range.owner_count,
                      range.owner_real,
                      std::move(range.to_owner)};
}

// The cuts of a head axis: whole groups, or single heads where groups may be split.
std::vector<CutRule> HeadCuts(const HeadAxis& axis, int64_t ranks, int64_t pad_to, const std::string& group_unit,
                              const std::string& head_unit, void (*fill)(HeadRange, RankShard*)) {
  const int64_t group = axis.heads / axis.owners;
  const Units groups = PadUnits(axis.owners, pad_to);
  const auto fill_groups = [=](int64_t, const Share& share, RankShard* shard) {
    fill(MakeHeadRange(axis, share.begin * group, share.count * group), shard);
  };
  const auto fill_heads = [=](int64_t, const Share& share, RankShard* shard) {
    fill(MakeHeadRange(axis, share.begin, share.count), shard);
  };
  std::vector<CutRule> cuts;
  cuts.push_back({"uneven", Cut::kUneven, group_unit, groups, fill_groups});
  if (group > 1 || ranks > axis.owners) {
    cuts.push_back({"overlap", Cut::kOverlap, head_unit, {axis.heads, groups.padded * group}, fill_heads});
  }
  cuts.push_back({"pad", Cut::kPad, group_unit, groups, fill_groups});
  cuts.push_back({"replicate", Cut::kReplicate, group_unit, groups, fill_groups});
  return cuts;
}

WidthShard MakeWidthShard(int64_t width, int64_t leaf, const Share& share) {
  const int64_t begin = share.begin * leaf;
  return {begin, share.count * leaf, std::clamp(width - begin, int64_t{0}, share.count * leaf)};
}

Units WidthUnits(int64_t width, int64_t leaf, int64_t pad_to) { return PadUnits((width + leaf - 1) / leaf, pad_to); }

// uneven, pad and replicate of an axis whose units are all alike.
std::vector<CutRule> PlainCuts(const std::string& unit, const Units& units, const FillShard& fill) {
  return {{"uneven", Cut::kUneven, unit, units, fill},
          {"pad", Cut::kPad, unit, units, fill},
          {"replicate", Cut::kReplicate, unit, units, fill}};
}

// A price that is the most loaded rank's.
std::function<double(const std::vector<RankShard>&)> Busiest(std::function<double(const RankShard&)> step) {
  return [step = std::move(step)](const std::vector<RankShard>& shards) {
    double busiest = 0;
    for (const RankShard& shard : shards) busiest = std::max(busiest, step(shard));
    return busiest;
  };
}

// Heads over one latent, which every rank that holds a head keeps.
std::vector<CutRule> LatentCuts(int64_t heads, int64_t pad_to) {
  return PlainCuts("head", PadUnits(heads, pad_to), [heads](int64_t, const Share& share, RankShard* shard) {
    const int64_t owner = share.count > 0 ? 1 : 0;
    shard->attention = {share.begin, share.count, std::clamp(heads - share.begin, int64_t{0}, share.count), 0,
                        owner,       owner,       std::vector<int32_t>(static_cast<size_t>(share.count), 0)};
  });
}

AxisRule AttentionAxis(const Geometry& geometry, int64_t ranks, int64_t pad_to) {
  const HeadAxis heads = {geometry.attention.q_heads, geometry.attention.kv_heads};
  AxisRule rule{"attn", &Partials::attention, {}, {}, {}};
  rule.cuts = geometry.Uses(Mixer::kLatentAttention)
                  ? LatentCuts(heads.heads, pad_to)
                  : HeadCuts(heads, ranks, pad_to, "KV group", "query head", FillAttention);
  rule.weight = [&geometry](const RankShard& shard) {
    return AttentionWeightBytes(geometry, shard.attention, ElementBytes{});
  };
  rule.price = Busiest([&geometry](const RankShard& shard) {
    const int64_t token = KvTokenBytes(geometry, shard.attention, ElementBytes{});
    return AttentionWeightBytes(geometry, shard.attention, ElementBytes{}) +
           static_cast<double>(token * kReferenceContext);
  });
  return rule;
}

AxisRule DeltaNetAxis(const Geometry& geometry, int64_t ranks, int64_t pad_to) {
  const HeadAxis heads = {geometry.delta_net.v_heads, geometry.delta_net.k_heads};
  AxisRule rule{"gdn", &Partials::delta_net, {}, {}, {}};
  rule.cuts = HeadCuts(heads, ranks, pad_to, "key-head group", "value head", FillDeltaNet);
  rule.weight = [&geometry](const RankShard& shard) {
    return DeltaNetWeightBytes(geometry, shard.delta_net, ElementBytes{});
  };
  rule.price = Busiest([&geometry](const RankShard& shard) {
    return DeltaNetWeightBytes(geometry, shard.delta_net, ElementBytes{}) +
           static_cast<double>(StateBytes(geometry, shard.delta_net));
  });
  return rule;
}

// Ranks are dealt to the map's groups, and the members of a group cut the channels of the group's experts. A share
// counts leaves of all these experts.
CutRule GroupCut(const Geometry& geometry, int64_t ranks, int64_t pad_to, const Placement& placement) {
  const int64_t width = geometry.moe.width, experts = geometry.moe.experts;
  const int64_t leaf = WidthLeaf(width, geometry.weight_block);
  const Units leaves = WidthUnits(width, leaf, pad_to);
  const std::vector<int64_t> groups = FoldGroups(ranks, placement.ep_size());
  CutRule rule{"ep",
               Cut::kGroups,
               fmt::format("{} channels of an expert", leaf),
               {experts * leaves.stock, experts * leaves.padded},
               {}};
  for (int64_t group = 0; group < placement.ep_size(); ++group) {
    const auto held = static_cast<int64_t>(placement.tables[static_cast<size_t>(group)].size());
    for (const Share& share : DealEven(leaves, std::count(groups.begin(), groups.end(), group))) {
      rule.dealt.push_back({share.begin * held, share.count * held, share.real * held});
    }
  }
  rule.fill = [=, tables = placement.tables](int64_t rank, const Share& share, RankShard* shard) {
    shard->experts.group = groups[static_cast<size_t>(rank)];
    const std::vector<int64_t>& table = tables[static_cast<size_t>(shard->experts.group)];
    const int64_t held = std::max<int64_t>(1, static_cast<int64_t>(table.size()));
    shard->experts.slots = share.count > 0 ? table : std::vector<int64_t>();
    shard->experts.channels = MakeWidthShard(width, leaf, {share.begin / held, share.count / held, share.real / held});
  };
  return rule;
}

// Experts are dealt whole, or every expert's channels are cut. A rank without channels has no slots, one without
// experts no channels.
AxisRule ExpertAxis(const Geometry& geometry, int64_t pad_to) {
  const int64_t experts = geometry.moe.experts;
  const int64_t width = geometry.moe.width;
  const int64_t leaf = WidthLeaf(width, geometry.weight_block);
  const Units channel_units = WidthUnits(width, leaf, pad_to);
  const auto fill_whole = [=](int64_t rank, const Share& share, RankShard* shard) {
    shard->experts.group = rank;
    shard->experts.slots.clear();
    for (int64_t e = share.begin; e < share.begin + share.count; ++e) {
      shard->experts.slots.push_back(e < experts ? e : -1);
    }
    const int64_t leaves = share.count > 0 ? (width + leaf - 1) / leaf : 0;
    shard->experts.channels = MakeWidthShard(width, leaf, {0, leaves, leaves});
  };
  const auto fill_all = [=](int64_t, const Share& share, RankShard* shard) { fill_whole(0, share, shard); };
  const auto fill_width = [=](int64_t, const Share& share, RankShard* shard) {
    shard->experts.group = 0;
    shard->experts.slots.clear();
    for (int64_t e = 0; share.count > 0 && e < experts; ++e) shard->experts.slots.push_back(e);
    shard->experts.channels = MakeWidthShard(width, leaf, share);
  };
  const std::string channels = fmt::format("{} channels", leaf);
  const Units whole = PadUnits(experts, pad_to);
  AxisRule rule{"experts", &Partials::experts, {}, {}, {}};
  rule.cuts = {{"whole", Cut::kUneven, "expert", whole, fill_whole},
               {"width", Cut::kUneven, channels, channel_units, fill_width},
               {"whole-pad", Cut::kPad, "expert", whole, fill_whole},
               {"width-pad", Cut::kPad, channels, channel_units, fill_width},
               {"replicate", Cut::kReplicate, "expert", whole, fill_all}};
  rule.weight = [&geometry](const RankShard& shard) {
    return ExpertWeightBytes(geometry, shard.experts, ElementBytes{});
  };
  rule.price = [&geometry](const std::vector<RankShard>& shards) {
    return BusiestExpertBytes(geometry, shards, ElementBytes{});
  };
  return rule;
}

AxisRule WidthAxis(const Geometry& geometry, const std::string& axis, int64_t width, int64_t pad_to) {
  const bool shared = axis == "shared";
  WidthShard RankShard::*part = shared ? &RankShard::shared : &RankShard::mlp;
  const int64_t leaf = WidthLeaf(width, geometry.weight_block);
  AxisRule rule{axis, shared ? &Partials::shared : &Partials::mlp, {}, {}, {}};
  rule.cuts = PlainCuts(
      fmt::format("{} channels", leaf), WidthUnits(width, leaf, pad_to),
      [=](int64_t, const Share& share, RankShard* shard) { shard->*part = MakeWidthShard(width, leaf, share); });
  rule.weight = [&geometry, part](const RankShard& shard) { return GatedMlpBytes(geometry, (shard.*part).width, 2); };
  rule.price = Busiest(rule.weight);
  return rule;
}

AxisRule VocabAxis(const Geometry& geometry, int64_t pad_to) {
  const int64_t vocab = geometry.vocab;
  AxisRule rule{"vocab", &Partials::vocab, {}, {}, {}};
  rule.cuts = PlainCuts(fmt::format("{} rows", kVocabTile), PadUnits((vocab + kVocabTile - 1) / kVocabTile, pad_to),
                        [=](int64_t, const Share& share, RankShard* shard) {
                          const WidthShard rows = MakeWidthShard(vocab, kVocabTile, share);
                          shard->vocab = {rows.begin, rows.width, rows.real};
                        });
  rule.weight = [&geometry](const RankShard& shard) { return VocabBytes(geometry, shard.vocab.rows, 2); };
  rule.price = Busiest(rule.weight);
  return rule;
}

}  // namespace

std::vector<AxisRule> AxisRules(const Geometry& geometry, int64_t ranks, int64_t pad_to, const Placement* placement) {
  std::vector<AxisRule> rules;
  if (geometry.UsesKv()) rules.push_back(AttentionAxis(geometry, ranks, pad_to));
  if (geometry.Uses(Mixer::kDeltaNet)) rules.push_back(DeltaNetAxis(geometry, ranks, pad_to));
  if (geometry.Uses(ChannelMixer::kMoe)) {
    rules.push_back(ExpertAxis(geometry, pad_to));
    if (placement != nullptr) rules.back().cuts.push_back(GroupCut(geometry, ranks, pad_to, *placement));
    if (geometry.moe.shared_width > 0) {
      rules.push_back(WidthAxis(geometry, "shared", geometry.moe.shared_width, pad_to));
    }
  }
  if (geometry.Uses(ChannelMixer::kMlp)) rules.push_back(WidthAxis(geometry, "mlp", geometry.mlp_width, pad_to));
  rules.push_back(VocabAxis(geometry, pad_to));
  return rules;
}

const std::vector<std::string>& AxisNames() {
  static const std::vector<std::string> names = {"attn", "gdn", "experts", "shared", "mlp", "vocab"};
  return names;
}

std::vector<std::string> CutWords(const std::string& axis) {
  if (axis == "attn" || axis == "gdn") return {"uneven", "overlap", "pad", "replicate"};
  if (axis == "experts") return {"whole", "width", "whole-pad", "width-pad", "replicate"};
  if (axis == "shared" || axis == "mlp" || axis == "vocab") return {"uneven", "pad", "replicate"};
  return {};
}

std::vector<Share> Deal(const AxisRule& axis, const CutRule& rule, int64_t ranks) {
  switch (rule.cut) {
    case Cut::kUneven:
      return DealEven(rule.units, ranks);
    case Cut::kPad:
      return DealPadded(rule.units, ranks);
    case Cut::kReplicate:
      return DealAll(rule.units, ranks);
    case Cut::kGroups:
      return rule.dealt;
    case Cut::kOverlap:
      break;
  }
  return DealCheapest(rule.units, ranks, [&](const Share& share) {
    std::vector<RankShard> one(1);
    rule.fill(0, share, &one[0]);
    return axis.price(one);
  });
}

}  // namespace trivet::plan
