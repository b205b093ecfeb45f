// SPDX-License-Identifier: Apache-2.0
// The axes of a model and the cuts that are legal on each: what a unit is, what a share of units means for a rank, and
// what it costs. docs/sharding.md says the same in words.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/cut_rule.h"
#include "plan/geometry.h"
#include "plan/layout.h"
#include "plan/leaf.h"

namespace trivet::plan {

/// Vocabulary rows of one unit.
inline constexpr int64_t kVocabTile = kRowTile;

/// Context whose keys and values the price of attention includes, tokens.
inline constexpr int64_t kReferenceContext = 1024;

/// Sets an axis' part of the shard of `rank`, which has `share` of it.
using FillShard = std::function<void(int64_t rank, const Share& share, RankShard* shard)>;

/// One legal way to cut an axis.
struct CutRule {
  std::string word;  // as in --cut
  Cut cut = Cut::kUneven;
  std::string unit;  // singular
  Units units;
  FillShard fill;
  std::vector<Share> dealt = {};  // by rank, of kGroups: the map deals them
};

/// One axis of one model. The functions refer to the geometry, which must outlive the rule.
struct AxisRule {
  std::string axis;
  bool Partials::*partial = nullptr;
  std::function<double(const RankShard&)> weight;              // bytes of a rank's share, one layer
  std::function<double(const std::vector<RankShard>&)> price;  // bytes a one-token step reads on the busiest rank
  std::vector<CutRule> cuts;                                   // legal here, in the order that breaks ties
};

/// The axes that `geometry` has, in table order.
///   pad_to     > 0: units are filled up to a multiple of it before any cut
///   placement  a map of the model's experts to at most `ranks` groups adds the cut "ep" of experts, which carries it
///   out
std::vector<AxisRule> AxisRules(const Geometry& geometry, int64_t ranks, int64_t pad_to,
                                const Placement* placement = nullptr);

/// Every axis any model has, in table order.
const std::vector<std::string>& AxisNames();

/// Every cut word of `axis` that a user may name, legal or not; empty for an unknown axis.
std::vector<std::string> CutWords(const std::string& axis);

/// Deals the rule's units to `ranks` ranks.
std::vector<Share> Deal(const AxisRule& axis, const CutRule& rule, int64_t ranks);

}  // namespace trivet::plan
