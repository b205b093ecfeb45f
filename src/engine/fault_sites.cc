// SPDX-License-Identifier: Apache-2.0
#include "engine/fault_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace trivet::engine {
namespace {

using comm::FaultKind;

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
  const bool deals = layout.sequence_parallel && layout.ranks > 1;
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
  if (!sites || std::find(sites->begin(), sites->end(), fault.site) != sites->end()) return {};
  const std::string there = sites->empty() ? fmt::format("rank {} has none for this mistake", fault.rank)
                                           : fmt::format("rank {} has {}, from {} to {}", fault.rank, sites->size(),
                                                         sites->front(), sites->back());
  return MakeError(Code::kUsage, fmt::format("--fault: expected a site, of which {}, found {}; choose another site or "
                                             "rank",
                                             there, fault.site));
}

}  // namespace trivet::engine
