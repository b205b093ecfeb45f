// SPDX-License-Identifier: Apache-2.0
#include "engine/fault_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
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
    case FaultKind::kRankOrder:  // of rows that are dealt, a rank adds those that it keeps
      return held.keeps;
    case FaultKind::kHandBF16: {  // of those that its stage hands on, or its context group sees; else of dealt ones
      const bool last = layout.At(options.fault.rank).pp + 1 == static_cast<int64_t>(layout.stages.size());
      return last && layout.context.ranks == 1 ? held.keeps : held.computes;
    }
    default:
      return held.computes;
  }
}

// A branch of a layer.
struct Branch {
  int64_t layer = 0;
  bool channels = false;  // the second one, which mixes channels
};

// Where a mistake can be made: the number that `site` gives it, and the branch that it is made in.
struct Site {
  int64_t number = 0;
  Branch branch;
};

// What a rank computes of a branch, in units of the model: dummies change nothing, nor does what another rank adds.
struct Share {
  int64_t heads = 0;     // of queries, or of a delta net's values
  int64_t experts = 0;   // routed
  int64_t channels = 0;  // of the MLP, or of the shared expert
  int64_t all() const { return heads + experts + channels; }
};

// Experts of the model that lie in the slots of a rank.
int64_t HeldExperts(const plan::ExpertShard& shard) {
  if (shard.channels.width == 0) return 0;
  return std::count_if(shard.slots.begin(), shard.slots.end(), [](int64_t expert) { return expert >= 0; });
}

Share ShareAt(const plan::Geometry& geometry, const plan::Layout& layout, int64_t rank, const Branch& branch) {
  const plan::LayerGeometry& layer = geometry.layers[static_cast<size_t>(branch.layer)];
  const plan::RankShard& shard = layout.ShardOf(rank);
  if (!branch.channels) {
    return {layer.mixer == plan::Mixer::kDeltaNet ? shard.delta_net.v_real : shard.attention.q_real};
  }
  if (layer.channel_mixer == plan::ChannelMixer::kMlp) return {0, 0, shard.mlp.real};
  // The sum of both kinds is one: of a kind that is whole, where the other one is cut, the first rank adds all.
  const plan::Partials& partial = layout.partial;
  const bool first = layout.At(rank).tp == 0;
  Share share;
  if (shard.experts.channels.real > 0 && (partial.experts || !partial.shared || first)) {
    share.experts = HeldExperts(shard.experts);
  }
  if (geometry.moe.shared_width > 0 && (partial.shared || !partial.experts || first)) {
    share.channels = shard.shared.real;
  }
  return share;
}

std::vector<Branch> BranchesOf(const plan::Stage& stage) {
  std::vector<Branch> branches;
  for (int64_t at = stage.begin; at < stage.end; ++at) {
    branches.push_back({at, false});
    branches.push_back({at, true});
  }
  return branches;
}

const plan::Stage& StageOf(const plan::Layout& layout, int64_t rank) {
  return layout.stages[static_cast<size_t>(layout.At(rank).pp)];
}

// Whether the ranks that cut a layer add up what they have of a branch.
bool IsSummed(const plan::Geometry& geometry, const plan::Layout& layout, const Branch& branch) {
  const plan::LayerGeometry& layer = geometry.layers[static_cast<size_t>(branch.layer)];
  const plan::Partials& partial = layout.partial;
  if (!branch.channels) return layer.mixer == plan::Mixer::kDeltaNet ? partial.delta_net : partial.attention;
  return layer.channel_mixer == plan::ChannelMixer::kMoe ? partial.experts || partial.shared : partial.mlp;
}

// The sites of the faulty rank for mistakes of that kind; nothing for a kind that has no sites.
std::optional<std::vector<Site>> SitesOf(const plan::Geometry& geometry, const plan::Layout& layout,
                                         const comm::Fault& fault) {
  std::vector<Site> sums, attention, experts;  // by number in a step, by number in the stage, by layer
  const auto add = [](std::vector<Site>* sites, const Branch& branch, bool there) {
    if (there) sites->push_back({std::ssize(*sites), branch});
  };
  for (const Branch& branch : BranchesOf(StageOf(layout, fault.rank))) {
    const plan::LayerGeometry& layer = geometry.layers[static_cast<size_t>(branch.layer)];
    add(&sums, branch, IsSummed(geometry, layout, branch));
    if (!branch.channels) {
      add(&attention, branch, layer.mixer == plan::Mixer::kAttention);
    } else if (layer.channel_mixer == plan::ChannelMixer::kMoe) {
      experts.push_back({branch.layer, branch});
    }
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
      std::vector<Site> from;
      for (const Site& site : experts) {
        while (std::ssize(from) <= site.number) from.push_back({std::ssize(from), site.branch});
      }
      return from;
    }
    default:
      return std::nullopt;
  }
}

// What the faulty rank needs to make its mistake with, and how much of it there is where the mistake is made.
struct Need {
  int64_t needed = 0;
  int64_t held = 0;
  std::string what;
  std::string where;
};

// Of a mistake at one site.
Need NeedAt(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options,
            const Branch& branch) {
  const plan::LayerGeometry& layer = geometry.layers[static_cast<size_t>(branch.layer)];
  const Share share = ShareAt(geometry, layout, options.fault.rank, branch);
  const std::string where = fmt::format("layer {}", branch.layer);
  switch (options.fault.kind) {
    case FaultKind::kMovedMap:  // whose map is noted, whether or not the rank computes with it
      return {2, HeldExperts(layout.ShardOf(options.fault.rank).experts), "experts", where};
    case FaultKind::kWrongSlot:
      return {2, share.experts, "experts", where};
    case FaultKind::kWeightBit:
    case FaultKind::kCombineOrder:
      return {1, share.experts, "experts", where};
    case FaultKind::kLocalTopK:  // whoever has none chooses for its record
      return {options.proof.on() ? 0 : 1, share.experts, "experts", where};
    case FaultKind::kRouterUlp:  // or shows what it has of dealt rows
      return {options.proof.on() || Deals(layout) ? 0 : 1, share.experts, "experts", where};
    default:
      break;
  }
  if (!branch.channels) {
    const bool delta_net = layer.mixer == plan::Mixer::kDeltaNet;
    return {1, share.heads, delta_net ? "value heads" : "attention heads", where};
  }
  const bool moe = layer.channel_mixer == plan::ChannelMixer::kMoe;
  return {1, share.all(), moe ? "experts or shared channels" : "MLP channels", where};
}

// Of a mistake that is made in a whole stage.
Need NeedIn(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options,
            const HeldRows& rows) {
  const int64_t rank = options.fault.rank;
  const plan::Stage& stage = StageOf(layout, rank);
  Need need;
  need.where = fmt::format("layers {} to {}", stage.begin, stage.end - 1);
  int64_t heads = 0, all = 0;
  bool routers = false;
  for (const Branch& branch : BranchesOf(stage)) {
    const Share share = ShareAt(geometry, layout, rank, branch);
    heads += share.heads;
    all += share.all();
    const plan::LayerGeometry& layer = geometry.layers[static_cast<size_t>(branch.layer)];
    routers = routers || layer.channel_mixer == plan::ChannelMixer::kMoe;
  }
  if (options.fault.kind == FaultKind::kHandBF16) {  // the last stage shows what heads are made of, and dealt rows
    const bool shows = !stage.last || (Deals(layout) && rows.keeps);
    need.needed = shows ? 0 : 1;
    need.held = heads;
    need.what = "heads";
  } else if (options.fault.kind == FaultKind::kSplitK) {
    // A router is every rank's: what comes of it is seen where it is noted, or where its rows are dealt.
    const bool routes = routers && (options.proof.on() || (Deals(layout) && rows.keeps));
    const bool draws = stage.last && (layout.partial.vocab || layout.At(rank).tp == 0);
    need.needed = routes ? 0 : 1;
    need.held = all + (draws ? layout.ShardOf(rank).vocab.real : 0);
    need.what = stage.last ? "heads, experts, channels or vocabulary rows" : "heads, experts or channels";
  }
  return need;
}

// Whether the faulty rank has what its mistake is made in.
//   site  null for kinds that have none
Status CheckHoldings(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options,
                     const Site* site) {
  const int64_t rank = options.fault.rank;
  const HeldRows rows = RowsOf(geometry, layout, options);
  if (!HasRows(layout, options, rows)) {
    return MakeError(Code::kUsage, fmt::format("--fault: expected a rank that holds rows, found {}, to which this "
                                               "layout gives none; choose another rank",
                                               rank));
  }
  const Need need =
      site == nullptr ? NeedIn(geometry, layout, options, rows) : NeedAt(geometry, layout, options, site->branch);
  if (need.held >= need.needed) return {};
  const bool sums = options.fault.kind == FaultKind::kPartialBF16 || options.fault.kind == FaultKind::kLocalScale;
  return MakeError(Code::kUsage,
                   fmt::format("--fault: expected a rank that computes with {} of the {} at least, found "
                               "{}, which has {} in {}; choose another rank{}",
                               need.needed, need.what, rank, need.held, need.where, sums ? " or site" : ""));
}

// Whether the shares of the experts that a choice is made among are several. Where groups of experts are eligible,
// shares are not those groups, and the choice is another anyway.
Status CheckChoice(const plan::Geometry& geometry, const plan::Layout& layout, const comm::Fault& fault) {
  const plan::MoeGeometry& moe = geometry.moe;
  if (fault.kind != FaultKind::kLocalTopK || moe.router.groups_kept < moe.router.groups) return {};
  if (layout.ranks > 1) return {};
  return MakeError(Code::kUsage, fmt::format("--fault: expected {} experts that two ranks or more share out to choose "
                                             "among, found one rank that has all; give --ranks",
                                             moe.experts));
}

// Whether a sum of the faulty rank's stage is another when it begins at that rank: what stands in front of it comes
// last, so there is something on both sides, and two parts have one order.
bool HasOrders(const plan::Geometry& geometry, const plan::Layout& layout, int64_t rank) {
  const plan::RankPlace place = layout.At(rank);
  const std::vector<Branch> branches = BranchesOf(StageOf(layout, rank));
  return std::any_of(branches.begin(), branches.end(), [&](const Branch& branch) {
    int64_t before = 0, behind = 0;
    for (int64_t tp = 0; tp < layout.ranks; ++tp) {
      const bool some = ShareAt(geometry, layout, layout.RankAt({tp, place.cp, place.pp, place.dp}), branch).all() > 0;
      (tp < place.tp ? before : behind) += some ? 1 : 0;
    }
    return IsSummed(geometry, layout, branch) && before > 0 && behind > 0 && before + behind > 2;
  });
}

// Whether ranks add anything in a step.
bool HasSums(const plan::Geometry& geometry, const plan::Layout& layout) {
  if (layout.ranks == 1) return false;
  const std::vector<Branch> branches = BranchesOf({0, static_cast<int64_t>(geometry.layers.size()), true});
  return layout.partial.vocab || std::any_of(branches.begin(), branches.end(),
                                             [&](const Branch& branch) { return IsSummed(geometry, layout, branch); });
}

// Whether the sums that the ranks of a layer add are such as the mistake touches.
Status CheckSums(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options) {
  const comm::Fault& fault = options.fault;
  const bool order = fault.kind == FaultKind::kRankOrder;
  if (order && !HasOrders(geometry, layout, fault.rank)) {
    return MakeError(Code::kUsage,
                     fmt::format("--fault: expected a rank that has ranks with parts of a sum in front of it, of three "
                                 "or more such ranks, found rank {}, whose order gives the same sums; choose another "
                                 "rank, --cut or --ranks",
                                 fault.rank));
  }
  if (fault.kind == FaultKind::kCombineOrder && options.numerics == kernels::Numerics::kFast &&
      geometry.moe.top_k < 3) {
    return MakeError(Code::kUsage,
                     fmt::format("--fault: expected three experts of a token or exact sums, found {} and --numerics "
                                 "fast, whose order gives the same sum; use --numerics exact",
                                 geometry.moe.top_k));
  }
  const bool parts = order || fault.kind == FaultKind::kPartialBF16 || fault.kind == FaultKind::kLocalScale;
  if (!parts || !options.compress_sums || layout.ranks == 1) return {};
  return MakeError(Code::kUsage,
                   "--fault: expected parts of sums that ranks add as they are, found --compress-sums, with which they "
                   "travel and are added in 6 bits; leave one of the two out");
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
  TRY(CheckSums(geometry, layout, options));
  if (fault.kind == FaultKind::kFallback && (deals || !HasSums(geometry, layout))) {
    return MakeError(Code::kUsage,
                     fmt::format("--fault: expected sums that have two forms, found {}; give --ranks and cuts that "
                                 "need sums, without --sp",
                                 deals ? "those of dealt rows, which have one" : "none"));
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
  const std::optional<std::vector<Site>> sites = SitesOf(geometry, layout, fault);
  if (!sites) return CheckHoldings(geometry, layout, options, nullptr);
  const auto site =
      std::find_if(sites->begin(), sites->end(), [&](const Site& one) { return one.number == fault.site; });
  if (site != sites->end()) {
    TRY(CheckHoldings(geometry, layout, options, &*site));
    return CheckChoice(geometry, layout, fault);
  }
  const std::string there = sites->empty() ? fmt::format("rank {} has none for this mistake", fault.rank)
                                           : fmt::format("rank {} has {}, from {} to {}", fault.rank, sites->size(),
                                                         sites->front().number, sites->back().number);
  return MakeError(Code::kUsage, fmt::format("--fault: expected a site, of which {}, found {}; choose another site or "
                                             "rank",
                                             there, fault.site));
}

}  // namespace trivet::engine
