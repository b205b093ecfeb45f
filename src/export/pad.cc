// SPDX-License-Identifier: Apache-2.0
#include "export/pad.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "export/padded_config.h"
#include "export/padded_tensor.h"
#include "plan/cut_rule.h"
#include "plan/families.h"
#include "plan/shard_map.h"

namespace trivet::exporter {
namespace {

using plan::Geometry;

constexpr int64_t kVocabUnit = 64;  // rows to which other engines fill up a vocabulary before they cut it

int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

// One rank that holds all, axes filled up to what `pad_to` ranks hold together. Experts are never added, since a router
// would have to know them: their width is filled up.
Result<plan::Layout> LayoutOf(const Geometry& geometry, int64_t pad_to) {
  plan::LayoutOptions options;
  options.pad_to = pad_to;
  if (geometry.Uses(plan::ChannelMixer::kMoe)) options.cuts["experts"] = "width";
  return plan::MakeLayout(geometry, options);
}

// The geometry whose axes have the extents of a padded shard. Vocabulary rows are counted in the tiles of other
// engines.
Geometry PaddedGeometry(const Geometry& stock, const plan::RankShard& shard, const PadOptions& options) {
  Geometry padded = stock;
  if (stock.UsesKv()) {
    padded.attention.q_heads = shard.attention.q_heads;
    padded.attention.kv_heads = shard.attention.kv_heads;
  }
  if (stock.Uses(plan::Mixer::kDeltaNet)) {
    padded.delta_net.k_heads = shard.delta_net.k_heads;
    padded.delta_net.v_heads = shard.delta_net.v_heads;
  }
  if (stock.Uses(plan::ChannelMixer::kMoe)) {
    padded.moe.width = shard.experts.channels.width;
    padded.moe.shared_width = shard.shared.width;
  }
  if (stock.Uses(plan::ChannelMixer::kMlp)) padded.mlp_width = shard.mlp.width;
  if (options.vocab) {
    padded.vocab = plan::PadUnits((stock.vocab + kVocabUnit - 1) / kVocabUnit, options.ranks).padded * kVocabUnit;
  }
  return padded;
}

std::vector<PaddedAxis> Axes(const Geometry& stock, const Geometry& padded) {
  std::vector<PaddedAxis> axes;
  if (stock.Uses(plan::Mixer::kAttention)) {
    axes.push_back({"attn", "KV heads", stock.attention.kv_heads, padded.attention.kv_heads});
  }
  if (stock.UsesKv()) axes.push_back({"attn", "query heads", stock.attention.q_heads, padded.attention.q_heads});
  if (stock.Uses(plan::Mixer::kDeltaNet)) {
    axes.push_back({"gdn", "key heads", stock.delta_net.k_heads, padded.delta_net.k_heads});
    axes.push_back({"gdn", "value heads", stock.delta_net.v_heads, padded.delta_net.v_heads});
  }
  if (stock.Uses(plan::ChannelMixer::kMoe)) {
    axes.push_back({"experts", "channels", stock.moe.width, padded.moe.width});
    if (stock.moe.shared_width > 0) {
      axes.push_back({"shared", "channels", stock.moe.shared_width, padded.moe.shared_width});
    }
  }
  if (stock.Uses(plan::ChannelMixer::kMlp)) {
    axes.push_back({"mlp", "channels", stock.mlp_width, padded.mlp_width});
  }
  axes.push_back({"vocab", "rows", stock.vocab, padded.vocab});
  return axes;
}

// What other engines ask of the padded geometry besides even shares.
Status CheckOtherEngines(const Geometry& padded, int64_t ranks) {
  const int64_t heads = padded.attention.q_heads;
  if (plan::FamilyOf(padded).heads_divide_hidden && padded.hidden % heads != 0) {
    return MakeError(
        Code::kInfeasible,
        fmt::format("attn at {} ranks: expected query heads that divide the hidden width {}, as transformers "
                    "asks of {} configs, found {} after padding; choose another number of ranks",
                    ranks, padded.hidden, padded.family, heads));
  }
  return {};
}

void AddVocabNotice(const Geometry& stock, const Geometry& padded, const PadOptions& options, PadPlan* plan) {
  if (padded.vocab != stock.vocab) {
    plan->notices.push_back(
        fmt::format("vocabulary rows {} to {} are zero: their logit is 0 and can win, so the engine must mask them",
                    stock.vocab, padded.vocab - 1));
  } else if ((stock.vocab + kVocabUnit - 1) / kVocabUnit % options.ranks != 0) {
    plan->notices.push_back(fmt::format(
        "the vocabulary of {} rows is left as it is: the engine must fill it up to a multiple of {} itself, "
        "and mask what it adds (--vocab pad writes the rows)",
        stock.vocab, kVocabUnit * options.ranks));
  }
}

// Tensors that the geometry does not need: a vision tower has a geometry of its own and stays; what would contradict
// the padded one, or is there twice, is left out.
Status AddOthers(const Source& source, const std::set<std::string>& known, PadPlan* plan) {
  std::map<std::string, std::pair<int, std::string>> dropped;  // reason -> count and first name
  for (const checkpoint::TensorInfo& info : source.checkpoint.tensors()) {
    if (known.contains(info.name)) continue;
    const std::string reason = plan::SkippedReason(info.name, static_cast<int64_t>(source.geometry.layers.size()));
    if (reason.empty()) {
      return MakeError(
          Code::kUnsupported,
          fmt::format("{}: expected a tensor whose axes are known, found one that is no part of {}; remove "
                      "it from the checkpoint",
                      info.name, source.geometry.family));
    }
    if (reason == plan::kVisionTower) {
      plan->model.tensors.push_back(CopyOf(source.checkpoint, info));
      continue;
    }
    auto& [count, first] = dropped[reason];
    if (count++ == 0) first = info.name;
  }
  for (const auto& [reason, found] : dropped) {
    plan->notices.push_back(fmt::format("{} tensors such as {} are left out: {}", found.first, found.second, reason));
  }
  return {};
}

}  // namespace

Result<PadPlan> PlanPad(const Source& source, const PadOptions& options) {
  if (options.ranks < 1 || options.ranks > plan::kMaxRanks) {
    return MakeError(Code::kUsage, fmt::format("--ranks: expected 1 to {}, found {}; choose another number",
                                               plan::kMaxRanks, options.ranks));
  }
  TRY(CheckRewritable(source));
  TRY_ASSIGN(const plan::Layout layout, LayoutOf(source.geometry, options.ranks));
  PadPlan plan;
  plan.geometry = PaddedGeometry(source.geometry, layout.shards[0], options);
  TRY(CheckOtherEngines(plan.geometry, options.ranks));
  TRY_ASSIGN(const plan::Layout padded_layout, LayoutOf(plan.geometry, 0));
  const auto rectangles = ComposeRectangles(plan::MakeShardMap(source.geometry, layout, 0, source.names),
                                            plan::MakeShardMap(plan.geometry, padded_layout, 0, source.names));
  std::set<std::string> known;
  for (const plan::SourceTensor& needed : plan::RequiredTensors(plan.geometry, source.names)) {
    const checkpoint::TensorInfo& info = *source.checkpoint.Find(needed.name);
    const std::vector<Rectangle>& parts = rectangles.at(needed.name);
    int64_t copied = 0;
    for (const Rectangle& part : parts) copied += part.rows * part.cols;
    CHECK_MSG(copied == Count(info.shape), info.name);  // once each, or a weight would be lost
    const int64_t pads = Count(needed.shape) - copied;
    plan.elements += copied;
    plan.pads += pads;
    plan.padded_tensors += pads > 0 ? 1 : 0;
    known.insert(needed.name);
    plan.model.tensors.push_back(PaddedTensor(source.checkpoint, info, needed.shape, parts));
  }
  AddVocabNotice(source.geometry, plan.geometry, options, &plan);
  TRY(AddOthers(source, known, &plan));
  plan.tensors = static_cast<int64_t>(plan.model.tensors.size());
  plan.axes = Axes(source.geometry, plan.geometry);
  TRY_ASSIGN(plan.model.config, PaddedConfig(source.files, source.geometry, plan.geometry));
  plan.model.source_dir = source.files.dir;
  return plan;
}

}  // namespace trivet::exporter
