// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/list.h"
#include "base/str.h"
#include "plan/axis_rules.h"
#include "plan/cost.h"
#include "plan/placement_record.h"

namespace trivet::plan {
namespace {

// One cut of one axis, dealt and priced. `shards` have only this axis filled.
struct Candidate {
  const CutRule* rule = nullptr;
  std::vector<Share> shares;
  std::vector<RankShard> shards;
  double price = 0;
};

Candidate MakeCandidate(const AxisRule& axis, const CutRule& rule, int64_t ranks) {
  Candidate candidate;
  candidate.rule = &rule;
  candidate.shares = Deal(axis, rule, ranks);
  candidate.shards.resize(static_cast<size_t>(ranks));
  for (size_t r = 0; r < candidate.shards.size(); ++r) {
    rule.fill(static_cast<int64_t>(r), candidate.shares[r], &candidate.shards[r]);
  }
  candidate.price = axis.price(candidate.shards);
  return candidate;
}

// The first of the lowest prices. Prices within rounding of each other tie, so that the order of words decides.
size_t Cheapest(const std::vector<Candidate>& candidates) {
  constexpr double kTie = 1 - 1e-9;
  size_t best = 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    const Cut cut = candidates[i].rule->cut;
    const bool automatic = cut != Cut::kReplicate && cut != Cut::kGroups;
    if (automatic && candidates[i].price < candidates[best].price * kTie) best = i;
  }
  return best;
}

int64_t LargestCount(const std::vector<Share>& shares) {
  int64_t largest = 0;
  for (const Share& share : shares) largest = std::max(largest, share.count);
  return largest;
}

const Candidate* FindWord(const std::vector<Candidate>& candidates, const std::string& word) {
  for (const Candidate& candidate : candidates) {
    if (candidate.rule->word == word) return &candidate;
  }
  return nullptr;
}

std::string Plural(int64_t count, const std::string& unit) {
  const bool counts_itself = !unit.empty() && unit.front() >= '0' && unit.front() <= '9';
  if (counts_itself) return fmt::format("{} {} of {}", count, count == 1 ? "unit" : "units", unit);
  return fmt::format("{} {}{}", count, unit, count == 1 ? "" : "s");
}

// How the units of an even deal meet the rank count.
std::string EvenReason(const Candidate& chosen, int64_t ranks) {
  const int64_t units = chosen.rule->units.padded;
  const std::string amount = Plural(units, chosen.rule->unit);
  const bool one = units == 1;
  if (units % ranks == 0) return fmt::format("{} {} by {}", amount, one ? "divides" : "divide", ranks);
  if (units < ranks) {
    const int64_t idle = ranks - units;
    return fmt::format("{} for {} ranks: {} {} none", amount, ranks, idle, idle == 1 ? "rank holds" : "ranks hold");
  }
  return fmt::format("{} do not divide by {}: shares differ by one", amount, ranks);
}

// Padded axes can give a rank more than all of a token's experts.
const char* PaddingNote(const std::vector<Candidate>& candidates) {
  const auto is_padded = [](const Candidate& one) { return one.rule->units.padded > one.rule->units.stock; };
  return std::any_of(candidates.begin(), candidates.end(), is_padded) ? ", padding included" : "";
}

std::string ExpertReason(const Candidate& chosen, const std::vector<Candidate>& candidates) {
  const Candidate* whole = FindWord(candidates, "whole");
  const Candidate* width = FindWord(candidates, "width");
  const Candidate* all = FindWord(candidates, "replicate");
  const double token = all->price;  // what one rank would read for all of a token's experts
  const double whole_part = whole->price / token;
  const double width_part = width->price / token;
  if (chosen.rule->word == "width") {
    return fmt::format("the busiest rank reads {:.0f}% of a token's experts, with whole experts {:.0f}% on average{}",
                       100 * width_part, 100 * whole_part, PaddingNote(candidates));
  }
  return fmt::format("the busiest rank reads {:.0f}% of a token's experts on average, with cut channels {:.0f}%{}",
                     100 * whole_part, 100 * width_part, PaddingNote(candidates));
}

// Ranks of every group, and what the map costs beside the cuts that need none.
std::string GroupReason(const Placement& placement, const Candidate& chosen, const std::vector<Candidate>& candidates) {
  const auto ranks = static_cast<int64_t>(chosen.shards.size());
  const double token = FindWord(candidates, "replicate")->price;
  std::vector<int64_t> members(static_cast<size_t>(placement.ep_size()), 0);
  for (const int64_t group : FoldGroups(ranks, placement.ep_size())) ++members[static_cast<size_t>(group)];
  const bool one = members.size() == 1;
  return fmt::format(
      "asked for: {} of {} ranks {} {} experts; the busiest rank reads {:.0f}% of a token's experts on average, with "
      "whole experts {:.0f}%, with cut channels {:.0f}%{}",
      one ? "one group" : fmt::format("{} groups", members.size()), fmt::join(members, "/"), one ? "holds" : "hold",
      fmt::join(placement.Sizes(), "/"), 100 * chosen.price / token, 100 * FindWord(candidates, "whole")->price / token,
      100 * FindWord(candidates, "width")->price / token, PaddingNote(candidates));
}

std::string Reason(const AxisRule& axis, const Candidate& chosen, const std::vector<Candidate>& candidates,
                   int64_t ranks) {
  if (ranks == 1) return "one rank holds all";
  if (axis.axis == "experts") return ExpertReason(chosen, candidates);
  const Candidate* groups = FindWord(candidates, "uneven");
  const Candidate* overlap = FindWord(candidates, "overlap");
  if (overlap == nullptr || groups->rule->units.padded % ranks == 0) return EvenReason(chosen, ranks);
  const int64_t split = LargestCount(overlap->shares);
  const int64_t group = overlap->rule->units.padded / groups->rule->units.padded;
  const int64_t together = LargestCount(groups->shares) * group;
  if (chosen.rule->cut == Cut::kOverlap) {
    const std::string owner = axis.axis == "attn" ? "KV head" : "key head";
    return fmt::format(
        "{} {} not divide by {}; splitting groups between ranks that share a {} is cheapest ({} against {})",
        Plural(groups->rule->units.padded, groups->rule->unit), groups->rule->units.padded == 1 ? "does" : "do", ranks,
        owner, Plural(split, overlap->rule->unit), together);
  }
  return EvenReason(chosen, ranks) + "; splitting groups reads no less";
}

AxisPlan MakeRow(const AxisRule& axis, const Candidate& chosen, std::string reason) {
  const CutRule& rule = *chosen.rule;
  AxisPlan row;
  row.axis = axis.axis;
  row.unit = rule.unit;
  row.cut = rule.word;
  row.stock = rule.units.stock;
  row.reason = std::move(reason);
  for (const Share& share : chosen.shares) {
    row.per_rank.push_back(share.count);
    row.real.push_back(share.real);
    row.padded = rule.cut == Cut::kReplicate ? share.count : row.padded + share.count;
  }
  const auto all =
      std::find_if(axis.cuts.begin(), axis.cuts.end(), [](const CutRule& cut) { return cut.cut == Cut::kReplicate; });
  RankShard whole;
  all->fill(0, {0, all->units.stock, all->units.stock}, &whole);
  double largest = 0;
  for (const RankShard& shard : chosen.shards) largest = std::max(largest, axis.weight(shard));
  row.factor = largest * static_cast<double>(chosen.shards.size()) / axis.weight(whole);
  return row;
}

// Longest stretch of positions that are split together.
constexpr int64_t kMaxStretch = int64_t{1} << 20;

// As many stages as options ask for, in one way or the other.
int64_t StageCount(const LayoutOptions& options) {
  return options.stages == 1 && !options.stage_layers.empty() ? static_cast<int64_t>(options.stage_layers.size())
                                                              : options.stages;
}

Status CheckContext(const LayoutOptions& options) {
  if (options.context < 1 || options.context > kMaxRanks) {
    return MakeError(Code::kUsage, fmt::format("--cp: expected 1 to {} shares of every sequence, found {}; choose "
                                               "another",
                                               kMaxRanks, options.context));
  }
  if (options.context_stretch >= 0 && options.context_stretch <= kMaxStretch) return {};
  return MakeError(Code::kUsage, fmt::format("--cp-stretch: expected 1 to {} positions, or 0, found {}; choose another",
                                             kMaxStretch, options.context_stretch));
}

Status CheckWorld(const Geometry& geometry, const LayoutOptions& options) {
  const auto layers = static_cast<int64_t>(geometry.layers.size());
  const int64_t stages = StageCount(options);
  if (options.replicas < 1 || options.replicas > kMaxRanks) {
    return MakeError(Code::kUsage, fmt::format("--dp: expected 1 to {} replicas, found {}; choose another", kMaxRanks,
                                               options.replicas));
  }
  if (stages < 1)
    return MakeError(Code::kUsage, fmt::format("--pp: expected 1 stage or more, found {}; choose another", stages));
  if (stages > layers) {
    return MakeError(Code::kInfeasible, fmt::format("--pp: expected at most {} stages, one for each layer, found {}; "
                                                    "use fewer",
                                                    layers, stages));
  }
  TRY(CheckContext(options));
  if (options.ranks * options.context * stages * options.replicas > kMaxRanks) {
    return MakeError(
        Code::kUsage,
        fmt::format("--ranks: expected at most {}, found {} replicas of {} stages of {} shares of sequences "
                    "of {}; use fewer",
                    kMaxRanks, options.replicas, stages, options.context, options.ranks));
  }
  if (options.stage_layers.empty()) return {};
  int64_t sum = 0, least = 1;
  for (const int64_t count : options.stage_layers) {
    least = std::min(least, count);
    sum = count > layers ? layers + 1 : sum + count;
  }
  if (least == 1 && sum == layers && static_cast<int64_t>(options.stage_layers.size()) == stages) return {};
  return MakeError(Code::kUsage, fmt::format("--pp-layers: expected at least 1 layer for each of {} stages, {} in all, "
                                             "found {}; correct it",
                                             stages, layers, fmt::join(options.stage_layers, ",")));
}

Status CheckOptions(const Geometry& geometry, const LayoutOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    return MakeError(Code::kUsage, fmt::format("--ranks: expected 1 to {}, found {}; choose another rank count",
                                               kMaxRanks, options.ranks));
  }
  TRY(CheckWorld(geometry, options));
  if (options.pad_to < 0 || options.pad_to > kMaxRanks) {
    return MakeError(Code::kUsage, fmt::format("--pad-to: expected 0 (no padding) to {}, found {}; choose another",
                                               kMaxRanks, options.pad_to));
  }
  std::vector<std::string> present;
  for (const AxisRule& axis : AxisRules(geometry, options.ranks, options.pad_to)) present.push_back(axis.axis);
  for (const auto& [axis, word] : options.cuts) {
    if (std::find(present.begin(), present.end(), axis) == present.end()) {
      return MakeError(Code::kUsage, fmt::format("cut of axis \"{}\": this model has the axes {}; name one of those",
                                                 Quote(axis), fmt::join(present, ", ")));
    }
    const std::vector<std::string> words = CutWords(axis);
    if (std::find(words.begin(), words.end(), word) == words.end()) {
      return MakeError(Code::kUsage, fmt::format("cut of axis {}: expected one of {}, found \"{}\"; use one of those",
                                                 axis, fmt::join(words, ", "), Quote(word)));
    }
  }
  return Status();
}

// The map that the options ask for, if they ask for one.
Result<std::optional<Placement>> AskedPlacement(const Geometry& geometry, const LayoutOptions& options) {
  const bool asked = options.ep != 0 || options.placement.has_value();
  if (!asked) return std::optional<Placement>();
  const std::string asker = options.placement ? "placement" : "--ep";
  if (!geometry.Uses(ChannelMixer::kMoe)) {
    return MakeError(Code::kUsage,
                     fmt::format("{}: expected a model with routed experts, found one without; leave it out", asker));
  }
  if (options.cuts.contains("experts")) {
    return MakeError(Code::kUsage, fmt::format("cut experts={}: expected one way to cut experts, found {} besides; "
                                               "leave one out",
                                               options.cuts.at("experts"), asker));
  }
  if (!options.placement) {
    TRY_ASSIGN(Placement block, Placement::FromEpConfig(geometry.moe.experts, options.ep, PlacementStrategy::kBlock));
    return std::optional<Placement>(std::move(block));
  }
  if (options.ep == 0 || options.ep == options.placement->ep_size()) return options.placement;
  return MakeError(Code::kUsage, fmt::format("--ep: expected as many groups as the placement, {}, found {}; leave one "
                                             "out",
                                             options.placement->ep_size(), options.ep));
}

Status CheckPlacementOf(const Geometry& geometry, const LayoutOptions& options, const Placement& placement) {
  const Verdict verdict = CheckPlacementFits(placement, geometry.moe.experts, options.ranks);
  if (verdict.passed()) return {};
  if (!options.placement) {
    return MakeError(Code::kInfeasible, fmt::format("--ep: expected at most {}, found {} groups; use more ranks or "
                                                    "fewer groups",
                                                    Plural(options.ranks, "rank"), options.ep));
  }
  const bool other_model = placement.experts() != geometry.moe.experts;
  return MakeError(other_model ? Code::kInvalid : Code::kInfeasible, "placement: " + verdict.sentence);
}

// Gives every stage shards like those of the one that `layout` has, with its layers.
void AddStages(const Geometry& geometry, const LayoutOptions& options, Layout* layout) {
  const std::vector<RankShard> one = std::move(layout->shards);
  const auto weights = [&](const Stage& stage) {
    double sum = 0;
    for (RankShard shard : one) {
      shard.stage = stage;
      sum += ResidentBytes(geometry, shard, ElementBytes{});
    }
    return sum;
  };
  layout->stages = options.stage_layers.empty()
                       ? DealStages(static_cast<int64_t>(geometry.layers.size()), StageCount(options), weights)
                       : StagesOf(options.stage_layers);
  layout->shards.clear();
  for (const Stage& stage : layout->stages) {
    for (int64_t cp = 0; cp < layout->context.ranks; ++cp) {
      for (RankShard shard : one) {
        shard.stage = stage;
        layout->shards.push_back(std::move(shard));
      }
    }
  }
}

// The map that the shards carry out: real experts in the order of their slots.
std::optional<Placement> CarriedOut(const Geometry& geometry, const Layout& layout) {
  if (!geometry.Uses(ChannelMixer::kMoe) || !layout.partial.experts) return {};
  std::vector<ExpertAddress> addresses(static_cast<size_t>(geometry.moe.experts));
  int64_t groups = 0;
  for (const RankShard& shard : layout.shards) {
    groups = std::max(groups, shard.experts.group + 1);
    for (size_t s = 0; s < shard.experts.slots.size(); ++s) {
      const int64_t expert = shard.experts.slots[s];
      if (expert >= 0) addresses[static_cast<size_t>(expert)] = {shard.experts.group, static_cast<int64_t>(s)};
    }
  }
  Placement placement = Placement::FromPairs(addresses, groups).value();
  Placement block = Placement::FromEpConfig(geometry.moe.experts, groups, PlacementStrategy::kBlock).value();
  return block.tables == placement.tables ? block : placement;
}

Error NotLegal(const AxisRule& axis, const std::string& word, int64_t ranks) {
  std::vector<std::string> legal;
  for (const CutRule& rule : axis.cuts) legal.push_back(rule.word);
  const CutRule& groups = axis.cuts.front();
  return MakeError(
      Code::kInfeasible,
      fmt::format("cut {}={} at {} ranks: expected groups of several heads to split or more ranks than "
                  "groups, found {} of one head each; use one of {}",
                  axis.axis, word, ranks, Plural(groups.units.stock, groups.unit), fmt::join(legal, ", ")));
}

}  // namespace

const char* CutName(Cut cut) {
  switch (cut) {
    case Cut::kUneven:
      return "uneven";
    case Cut::kPad:
      return "pad";
    case Cut::kOverlap:
      return "overlap";
    case Cut::kReplicate:
      return "replicate";
    case Cut::kGroups:
      return "ep";
  }
  return "unknown";
}

RankPlace Layout::At(int64_t rank) const {
  const auto depth = static_cast<int64_t>(stages.size());
  const int64_t group = rank / ranks, stage = group / context.ranks;
  return {rank % ranks, group % context.ranks, stage % depth, stage / depth};
}

int64_t Layout::RankAt(const RankPlace& place) const {
  const int64_t stage = place.pp + static_cast<int64_t>(stages.size()) * place.dp;
  return place.tp + ranks * (place.cp + context.ranks * stage);
}

Status ParseCuts(const std::string& text, LayoutOptions* options) {
  if (text.empty()) return {};
  TRY_ASSIGN(const std::vector<std::string> pieces, ParseList(text, "--cut"));
  for (const std::string& piece : pieces) {
    const size_t equals = piece.find('=');
    if (equals == std::string::npos) {
      return MakeError(
          Code::kUsage,
          fmt::format("--cut: expected pieces such as attn=pad, found \"{}\"; write axis=cut", Quote(piece)));
    }
    const std::string axis = piece.substr(0, equals);
    const std::string word = piece.substr(equals + 1);
    const std::vector<std::string> words = CutWords(axis);
    if (words.empty()) {
      return MakeError(Code::kUsage, fmt::format("--cut: expected an axis of {}, found \"{}\"; name one of those",
                                                 fmt::join(AxisNames(), ", "), Quote(axis)));
    }
    if (std::find(words.begin(), words.end(), word) == words.end()) {
      return MakeError(Code::kUsage, fmt::format("--cut: expected for {} one of {}, found \"{}\"; use one of those",
                                                 axis, fmt::join(words, ", "), Quote(word)));
    }
    if (!options->cuts.emplace(axis, word).second) {
      return MakeError(Code::kUsage, fmt::format("--cut: expected each axis once, found {} twice; keep one", axis));
    }
  }
  return Status();
}

std::vector<std::string> LegalCuts(const Geometry& geometry, const std::string& axis, int64_t ranks) {
  std::vector<std::string> words;
  for (const AxisRule& rule : AxisRules(geometry, ranks, 0)) {
    if (rule.axis != axis) continue;
    for (const CutRule& cut : rule.cuts) words.push_back(cut.word);
  }
  return words;
}

Result<Layout> MakeLayout(const Geometry& geometry, const LayoutOptions& options) {
  TRY(CheckOptions(geometry, options));
  TRY_ASSIGN(const std::optional<Placement> asked, AskedPlacement(geometry, options));
  if (asked) TRY(CheckPlacementOf(geometry, options, *asked));
  Layout layout;
  layout.ranks = options.ranks;
  layout.context = {
      options.context, options.context_split,
      options.context_stretch > 0 ? options.context_stretch : DefaultStretch(options.context_split, options.context)};
  layout.sequence_parallel = options.sequence_parallel;
  layout.replicas = options.replicas;
  layout.shards.resize(static_cast<size_t>(options.ranks));
  for (const AxisRule& axis : AxisRules(geometry, options.ranks, options.pad_to, asked ? &*asked : nullptr)) {
    std::vector<Candidate> candidates;
    for (const CutRule& rule : axis.cuts) candidates.push_back(MakeCandidate(axis, rule, options.ranks));
    const Candidate* chosen = &candidates[Cheapest(candidates)];
    std::string reason = Reason(axis, *chosen, candidates, options.ranks);
    if (const auto forced = options.cuts.find(axis.axis); forced != options.cuts.end()) {
      chosen = FindWord(candidates, forced->second);
      if (chosen == nullptr) return NotLegal(axis, forced->second, options.ranks);
      reason = "asked for";
    }
    if (const Candidate* groups = FindWord(candidates, "ep"); groups != nullptr) {
      chosen = groups;
      reason = GroupReason(*asked, *chosen, candidates);
    }
    for (size_t r = 0; r < layout.shards.size(); ++r) {
      chosen->rule->fill(static_cast<int64_t>(r), chosen->shares[r], &layout.shards[r]);
    }
    layout.partial.*axis.partial = chosen->rule->cut != Cut::kReplicate;
    layout.axes.push_back(MakeRow(axis, *chosen, std::move(reason)));
  }
  layout.placement = asked ? asked : CarriedOut(geometry, layout);
  AddStages(geometry, options, &layout);
  return layout;
}

}  // namespace trivet::plan
