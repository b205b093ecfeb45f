// SPDX-License-Identifier: Apache-2.0
#include "engine/fault_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace trivet::engine {
namespace {

using comm::FaultKind;

bool Deals(const plan::Layout& layout) { return layout.sequence_parallel && layout.ranks > 1; }

// Which rows of a sequence the faulty rank has to do with.
struct HeldRows {
  bool computes = false;  // some
  bool keeps = false;     // some between sums
};

HeldRows RowsOf(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options) {
  const plan::RowSplit split = layout.Rows();
  const plan::RankPlace place = layout.At(options.fault.rank);
  const int64_t longest = options.max_context > 0 ? options.max_context : geometry.max_positions;
  HeldRows held;
  for (int64_t position = 0; position < std::min(split.context.stretch, longest); ++position) {
    const plan::RowOwner owner = split.OwnerOf(position);
    if (owner.context != place.cp) continue;
    held.computes = true;
    held.keeps = held.keeps || owner.rank == plan::kEveryRank || owner.rank == place.tp;
  }
  return held;
}

// Whether the faulty rank has rows to make its mistake in: uneven shares leave none to some.
bool HasRows(const plan::Layout& layout, const EngineOptions& options, const HeldRows& held) {
  switch (options.fault.kind) {
    case FaultKind::kWrongSlot:  // in memory
    case FaultKind::kWeightBit:
    case FaultKind::kFallback:  // of all ranks
    case FaultKind::kOtherSplit:
    case FaultKind::kSpFirst:
    case FaultKind::kOtherReplica:
    case FaultKind::kDie:
    case FaultKind::kHang:
      return true;
    case FaultKind::kRouterUlp:
      return held.keeps;
    case FaultKind::kHandBF16: {  // of those that its stage hands on, or its context group sees; else of dealt ones
      const bool last = layout.At(options.fault.rank).pp + 1 == static_cast<int64_t>(layout.stages.size());
      return last && layout.context.ranks == 1 ? held.keeps : held.computes;
    }
    default:
      return held.computes;
  }
}

// Experts that the faulty rank has to hold for its mistake.
int64_t ExpertsNeeded(const plan::Layout& layout, const EngineOptions& options) {
  switch (options.fault.kind) {
    case FaultKind::kWrongSlot:
    case FaultKind::kMovedMap:
      return 2;
    case FaultKind::kWeightBit:
    case FaultKind::kCombineOrder:
      return 1;
    case FaultKind::kRouterUlp:  // whoever has none chooses for its record, or shows what it has of dealt rows
      return options.proof.on() || Deals(layout) ? 0 : 1;
    default:
      return 0;
  }
}

// Whether the faulty rank has what its mistake is made in.
Status CheckHoldings(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options) {
  const int64_t rank = options.fault.rank;
  if (!HasRows(layout, options, RowsOf(geometry, layout, options))) {
    return MakeError(Code::kUsage, fmt::format("--fault: expected a rank that holds rows, found {}, to which this "
                                               "layout gives none; choose another rank",
                                               rank));
  }
  const plan::ExpertShard& shard = layout.ShardOf(rank).experts;
  const auto experts = shard.channels.width == 0 ? 0
                                                 : std::count_if(shard.slots.begin(), shard.slots.end(),
                                                                 [](int64_t expert) { return expert >= 0; });
  const int64_t needed = ExpertsNeeded(layout, options);
  if (experts >= needed) return {};
  return MakeError(Code::kUsage,
                   fmt::format("--fault: expected a rank that holds {} of the experts at least, found {}, "
                               "which holds {}; choose another rank",
                               needed, rank, experts));
}

// The sites of a rank of that stage for mistakes of that kind; nothing for a kind that has no sites.
std::optional<std::vector<int64_t>> SitesOf(const plan::Geometry& geometry, const plan::Layout& layout,
                                            const comm::Fault& fault) {
  const plan::Stage& stage = layout.stages[static_cast<size_t>(layout.At(fault.rank).pp)];
  std::vector<int64_t> sums, attention, experts;  // by number in a step, by number in the stage, by layer
  const auto add = [](std::vector<int64_t>* sites, bool there) {
    if (there) sites->push_back(std::ssize(*sites));
  };
  const plan::Partials& partial = layout.partial;
  for (int64_t at = stage.begin; at < stage.end; ++at) {
    const plan::LayerGeometry& layer = geometry.layers[static_cast<size_t>(at)];
    const bool moe = layer.channel_mixer == plan::ChannelMixer::kMoe;
    add(&sums, layer.mixer == plan::Mixer::kDeltaNet ? partial.delta_net : partial.attention);
    add(&sums, moe ? partial.experts || partial.shared : partial.mlp);
    add(&attention, layer.mixer == plan::Mixer::kAttention);
    if (moe) experts.push_back(at);
  }
  switch (fault.kind) {
    case FaultKind::kPartialBF16:
    case FaultKind::kLocalScale:
      return sums;
    case FaultKind::kSplitKV:
      return attention;
    case FaultKind::kWrongSlot:
    case FaultKind::kWeightBit:
    case FaultKind::kRouterUlp:
    case FaultKind::kLocalTopK:
    case FaultKind::kCombineOrder:
      return experts;
    case FaultKind::kMovedMap: {  // which begins at the first layer with experts that is not before the site
      std::vector<int64_t> from;
      for (int64_t at = 0; !experts.empty() && at <= experts.back(); ++at) from.push_back(at);
      return from;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

Status CheckFault(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options) {
  const comm::Fault& fault = options.fault;
  if (fault.kind == FaultKind::kNone) return {};
  if (fault.rank < 0 || fault.rank >= layout.world()) {
    return MakeError(Code::kUsage, fmt::format("--fault: expected a rank from 0 to {}, found {}; choose one that runs",
                                               layout.world() - 1, fault.rank));
  }
  const bool deals = Deals(layout);
  if (fault.kind == FaultKind::kHandBF16 && layout.context.ranks == 1 && !deals &&
      layout.At(fault.rank).pp + 1 == static_cast<int64_t>(layout.stages.size())) {
    return MakeError(
        Code::kUsage,
        fmt::format("--fault: expected a rank that hands rows on, found {}, which is one of the last stage; "
                    "choose one of another, or give --pp, --cp or --sp",
                    fault.rank));
  }
  if (fault.kind == FaultKind::kFallback && (layout.ranks == 1 || deals)) {
    return MakeError(Code::kUsage, fmt::format("--fault: expected sums that have two forms, found {}; give --ranks "
                                               "without --sp",
                                               deals ? "those of dealt rows, which have one" : "none, of one rank"));
  }
  if (fault.kind == FaultKind::kOtherSplit && layout.context.ranks == 1) {
    return MakeError(Code::kUsage,
                     "--fault: expected sequences that are split in another way, found whole ones; give --cp");
  }
  if (fault.kind == FaultKind::kSpFirst && (layout.context.ranks == 1 || !deals)) {
    return MakeError(
        Code::kUsage,
        "--fault: expected rows that are shared out twice, found once at most; give --ranks, --sp and --cp");
  }
  if (fault.kind == FaultKind::kOtherReplica && layout.replicas == 1) {
    return MakeError(Code::kUsage, "--fault: expected another replica to give requests to, found one; give --dp");
  }
  if (comm::OnProcessorAlone(fault.kind) && options.backend != Backend::kCpu) {
    return MakeError(
        Code::kUnsupported,
        "--fault: expected ranks on the processor for this mistake, found them on GPUs; use --backend cpu");
  }
  const std::optional<std::vector<int64_t>> sites = SitesOf(geometry, layout, fault);
  if (!sites || std::find(sites->begin(), sites->end(), fault.site) != sites->end()) {
    return CheckHoldings(geometry, layout, options);
  }
  const std::string there = sites->empty() ? fmt::format("rank {} has none for this mistake", fault.rank)
                                           : fmt::format("rank {} has {}, from {} to {}", fault.rank, sites->size(),
                                                         sites->front(), sites->back());
  return MakeError(Code::kUsage, fmt::format("--fault: expected a site, of which {}, found {}; choose another site or "
                                             "rank",
                                             there, fault.site));
}

}  // namespace trivet::engine
