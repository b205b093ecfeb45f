// SPDX-License-Identifier: Apache-2.0
#include "engine/evidence.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/str.h"
#include "engine/expert_digests.h"

namespace trivet::engine {
namespace {

const char* RouterKindName(plan::RouterKind kind) {
  switch (kind) {
    case plan::RouterKind::kSoftmaxChosen:
      return "softmax of the chosen";
    case plan::RouterKind::kSoftmaxAll:
      return "softmax of all";
    case plan::RouterKind::kSigmoid:
      break;
  }
  return "sigmoid";
}

// [begin, end) of every rank of a stage; all stages are cut alike.
template <class Range>
Json Ranges(const plan::Layout& layout, const char* unit, const Range& range) {
  Json ranges = Json::array();
  for (int64_t rank = 0; rank < layout.ranks; ++rank) {
    const auto [begin, end] = range(layout.ShardOf(rank));
    ranges.push_back(Json::array({begin, end}));
  }
  return Json{{"unit", unit}, {"ranges", ranges}};
}

std::pair<int64_t, int64_t> RangeOf(const plan::WidthShard& width) { return {width.begin, width.begin + width.real}; }

}  // namespace

std::string ContractId(kernels::Numerics numerics, Backend backend, const kernels::Kernels& kernels, int64_t level,
                       cache::KvDtype kv_dtype) {
  const bool matrix = kernels.gemm->contract == kernels::Contract::kMatrix ||
                      kernels.expert_gemm->contract == kernels::Contract::kMatrix;
  const bool grid = kernels::WithinRank(numerics, backend) == kernels::Numerics::kExact;
  return fmt::format("trivet.{}.v1{}/leaf256-head-width128/{}/kv64{}/gdn-recurrent/f32-mx22",
                     numerics == kernels::Numerics::kExact ? "exact" : "fast", grid ? "/g30" : "",
                     matrix ? fmt::format("mma16x3-sm{}", level) : "chain",
                     kv_dtype == cache::KvDtype::kE4M3 ? "-e4m3" : "");
}

ExpertGroups GroupsOf(const plan::Geometry& geometry, const plan::Layout& layout) {
  ExpertGroups groups;
  groups.ep_rank.resize(static_cast<size_t>(layout.world()), -1);
  if (geometry.moe.experts == 0) return groups;
  groups.placement = layout.placement ? *layout.placement : plan::Placement::Identity(geometry.moe.experts).value();
  for (int64_t rank = 0; rank < layout.world(); ++rank) {
    const plan::ExpertShard& shard = layout.ShardOf(rank).experts;
    // Experts that all ranks of a stage hold come from its first alone where the shared expert is a part of the sum.
    const bool computes = layout.partial.experts || !layout.partial.shared || layout.At(rank).tp == 0;
    // Dummy channels are multiplied as well.
    if (computes && shard.channels.width > 0 && !shard.slots.empty())
      groups.ep_rank[static_cast<size_t>(rank)] = shard.group;
  }
  return groups;
}

record::LogOptions LogOptionsOf(const plan::Geometry& geometry, const plan::Layout& layout, const ProofOptions& options,
                                const std::string& contract) {
  record::LogOptions log;
  log.level = options.level;
  log.domain = Hash128(contract);
  log.top_k = geometry.moe.top_k;
  for (const plan::ExpertAddress& address : GroupsOf(geometry, layout).placement.Addresses()) {
    log.addresses.push_back({static_cast<uint16_t>(address.ep_rank), static_cast<uint16_t>(address.local_slot)});
  }
  return log;
}

Json RecordedLayout(const plan::Geometry& geometry, const plan::Layout& layout, const std::string& group,
                    const std::vector<RecordedRequest>& requests) {
  const ExpertGroups groups = GroupsOf(geometry, layout);
  Json channels = Json::array(), stages = Json::array(), replicas = Json::array();
  for (int64_t rank = 0; rank < layout.world(); ++rank) {
    const auto [begin, end] = RangeOf(layout.ShardOf(rank).experts.channels);
    channels.push_back(Json::array({begin, end}));
  }
  for (size_t pp = 0; pp < layout.stages.size(); ++pp) {
    const plan::Stage& stage = layout.stages[pp];
    stages.push_back({{"pp", pp}, {"layers", Json::array({Json::array({stage.begin, stage.end})})}});
  }
  for (const RecordedRequest& request : requests) replicas.push_back(request.replica);
  return {{"schema", "trivet.layout.v1"},
          {"group", group},
          {"world", layout.world()},
          {"rank_order", Json::array({"tp", "cp", "pp", "dp"})},
          {"sizes",
           {{"tp", layout.ranks},
            {"cp", layout.context.ranks},
            {"dp", layout.replicas},
            {"pp", layout.stages.size()},
            {"ep", std::max<int64_t>(1, groups.placement.ep_size())}}},
          {"sp", layout.sequence_parallel},
          {"cp_layout", plan::SequenceSplitName(layout.context.split)},
          {"cp_stretch", layout.context.stretch},
          {"split_order", Json::array({"cp", "sp"})},
          {"expert_group_over", Json::array({"tp"})},
          {"stages", stages},
          {"dp_assignment", {{"mode", "recorded"}, {"requests", replicas}}},
          {"experts", {{"width", geometry.moe.width}, {"ep_rank", groups.ep_rank}, {"channels", channels}}},
          {"plan", plan::LayoutJson(layout)}};
}

Json OwnersOf(const plan::Geometry& geometry, const plan::Layout& layout, record::Site site, int64_t layer) {
  using plan::RankShard;
  if (site == record::Site::kEmbed || site == record::Site::kLogits) {
    return Ranges(layout, "vocabulary row", [](const RankShard& shard) {
      return std::pair(shard.vocab.begin, shard.vocab.begin + shard.vocab.real);
    });
  }
  if (site != record::Site::kMixer && site != record::Site::kChannels) return {{"unit", "row"}, {"by", "position"}};
  const plan::LayerGeometry& kind = geometry.layers[static_cast<size_t>(layer)];
  if (site == record::Site::kMixer && kind.mixer == plan::Mixer::kDeltaNet) {
    return Ranges(layout, "value head", [](const RankShard& shard) {
      return std::pair(shard.delta_net.v_begin, shard.delta_net.v_begin + shard.delta_net.v_real);
    });
  }
  if (site == record::Site::kMixer) {
    return Ranges(layout, "query head", [](const RankShard& shard) {
      return std::pair(shard.attention.q_begin, shard.attention.q_begin + shard.attention.q_real);
    });
  }
  if (kind.channel_mixer == plan::ChannelMixer::kMlp) {
    return Ranges(layout, "channel", [](const RankShard& shard) { return RangeOf(shard.mlp); });
  }
  return {{"experts", Ranges(layout, "channel of held experts",
                             [](const RankShard& shard) { return RangeOf(shard.experts.channels); })},
          {"placement", GroupsOf(geometry, layout).placement.version},
          {"shared", Ranges(layout, "channel", [](const RankShard& shard) { return RangeOf(shard.shared); })}};
}

std::string ConfigDigest(const OpenedModel& model) { return Hex(Hash128(DumpJson(model.files.text_config))); }

Result<Json> IdentityJson(const OpenedModel& model, const std::string& contract, ThreadPool* pool) {
  TRY_ASSIGN(const Digest checkpoint, CheckpointDigest(model.checkpoint, pool));
  // A GGUF file has its tokenizer in it.
  const Result<std::string> tokenizer = ReadTextFile(model.files.dir + "/tokenizer.json", int64_t{1} << 30);
  return Json{{"family", model.geometry.family},
              {"checkpoint", Hex(checkpoint)},
              {"config", ConfigDigest(model)},
              {"tokenizer", tokenizer.ok() ? Hex(Hash128(*tokenizer)) : "none"},
              {"contract", contract}};
}

Json RouterJson(const plan::Geometry& geometry) {
  Json layers = Json::array();
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    if (geometry.layers[i].channel_mixer == plan::ChannelMixer::kMoe) layers.push_back(i);
  }
  if (layers.empty()) return {{"layers", layers}};
  const plan::RouterGeometry& router = geometry.moe.router;
  return {{"layers", layers},
          {"experts", geometry.moe.experts},
          {"top_k", geometry.moe.top_k},
          {"mode", RouterKindName(router.kind)},
          {"groups", router.groups},
          {"groups_kept", router.groups_kept},
          {"tie_break", "lower expert"},
          {"gate", {{"sharded", false}, {"hidden", geometry.hidden}, {"experts", geometry.moe.experts}}}};
}

Json DeltaNetJson(const plan::Geometry& geometry) {
  Json layers = Json::array();
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    if (geometry.layers[i].mixer == plan::Mixer::kDeltaNet) layers.push_back(i);
  }
  return {{"layers", layers}};
}

Json RequestsJson(const std::vector<RecordedRequest>& requests) {
  Json list = Json::array();
  for (const RecordedRequest& request : requests) {
    list.push_back({{"request", static_cast<int64_t>(request.id)},
                    {"prompt", request.prompt},
                    {"sampled", request.sampled},
                    {"computed", request.computed},
                    {"logits_from", request.logits_from}});
  }
  return list;
}

}  // namespace trivet::engine
