// SPDX-License-Identifier: Apache-2.0
// Layout: how one model is cut over ranks. Made once, before any weight byte is read; execution only obeys it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "plan/geometry.h"
#include "plan/placement.h"
#include "plan/sequence_split.h"
#include "plan/stages.h"

namespace trivet::plan {

inline constexpr int64_t kMaxRanks = 16;

/// How an axis is cut.
///   kUneven     whole units, shares differ by at most one; a rank may hold none
///   kPad        whole units, every rank holds as many as the largest share; dummies at the global end
///   kOverlap    units split between ranks: query heads (value heads) are dealt out singly, and the KV heads (key
///   heads)
///               that a share touches are held by every rank that touches them
///   kReplicate  every rank holds and computes the whole axis; its output needs no reduction
///   kGroups     experts by a map: ranks are dealt to its groups, members of a group cut the width of its experts
enum class Cut { kUneven, kPad, kOverlap, kReplicate, kGroups };
const char* CutName(Cut cut);

/// What a user may force, by axis name: attn, gdn, experts, shared, mlp, vocab. For experts also the granularity:
/// "whole" and "whole-pad" deal out whole experts, "width" and "width-pad" cut every expert's channels.
/// An axis not named is cut as priced cheapest.
struct LayoutOptions {
  int64_t ranks = 1;    // that cut every layer between them
  int64_t context = 1;  // of those, each with its share of every sequence's positions
  SequenceSplit context_split = SequenceSplit::kContiguous;  // how they share them out
  int64_t context_stretch = 0;             // positions that are split together; 0: whole pages for every rank
  bool sequence_parallel = false;          // those that cut a layer share out its rows between sums
  int64_t stages = 1;                      // of a pipeline, each on so many ranks
  std::vector<int64_t> stage_layers = {};  // layers of every stage; none: dealt by the weights that they have
  int64_t replicas = 1;                    // of all that, each with requests of its own
  int64_t pad_to = 0;  // > 0: pad every axis to the geometry it has at this many ranks (for proofs and `pad`)
  std::map<std::string, std::string> cuts;
  int64_t ep = 0;                           // > 0: experts in so many groups of ranks, consecutive ones in a group
  std::optional<Placement> placement = {};  // or in the groups of this map
};

/// Parses "attn=pad,experts=whole" into `options->cuts`.  Errors: kUsage names the axis or the word.
Status ParseCuts(const std::string& text, LayoutOptions* options);

/// One row of the layout table.
struct AxisPlan {
  std::string axis;               // attn, gdn, experts, shared, mlp, vocab
  std::string unit;               // what one unit is, such as "query head" or "32 channels"
  std::string cut;                // the word a user would give to --cut, or "ep"
  int64_t stock = 0;              // units in the model
  int64_t padded = 0;             // units held over all ranks, dummies included, duplicates not
  std::vector<int64_t> per_rank;  // units held by each rank, dummies included
  std::vector<int64_t> real;      // of those, units that exist in the model
  double factor = 1;              // weight bytes of the largest share over the ideal 1/N
  std::string reason;             // one clause: why this cut
};

/// Attention heads of one rank. Local query head i is logical head q_begin + i; heads at or beyond q_real are dummies.
struct AttentionShard {
  int64_t q_begin = 0, q_heads = 0, q_real = 0;
  int64_t kv_begin = 0, kv_heads = 0, kv_real = 0;
  std::vector<int32_t> q_to_kv;  // [q_heads] local KV head of each local query head
};

/// Delta-net heads of one rank, in the same form.
struct DeltaNetShard {
  int64_t v_begin = 0, v_heads = 0, v_real = 0;
  int64_t k_begin = 0, k_heads = 0, k_real = 0;
  std::vector<int32_t> v_to_k;  // [v_heads]
};

/// A range of channels of one rank; `width` counts pads, `real` does not. `width` is a multiple of the leaf.
struct WidthShard {
  int64_t begin = 0, width = 0, real = 0;
};

/// Experts of one rank: slots in local order, and the channels each slot holds.
struct ExpertShard {
  std::vector<int64_t> slots;  // logical expert of each local slot; -1 is a dummy that is never routed to
  WidthShard channels;
  int64_t group = 0;  // ranks of one group hold the same experts, and unless replicated each its own channels
};

/// Vocabulary rows of one rank: logical rows [begin, begin + real), then pads up to `rows`.
struct VocabShard {
  int64_t begin = 0, rows = 0, real = 0;
};

/// Everything that differs between ranks: the layers of the rank's stage, and its share of every axis in each of them.
struct RankShard {
  Stage stage;
  AttentionShard attention;
  DeltaNetShard delta_net;
  ExpertShard experts;
  WidthShard shared;
  WidthShard mlp;
  VocabShard vocab;
};

/// Whether a rank's output of an axis is a part of a sum (kUneven, kPad, kOverlap) or the whole of it (kReplicate).
struct Partials {
  bool attention = true, delta_net = true, experts = true, shared = true, mlp = true, vocab = true;
};

/// Where a rank stands: among those that cut a layer between them, among those that share out sequences, in which
/// stage, and in which replica.
struct RankPlace {
  int64_t tp = 0, cp = 0, pp = 0, dp = 0;
};

/// The layout of one model over replicas x stages x context x ranks ranks, of which those that cut a layer, then those
/// of a stage, and then those of a replica, are consecutive. Vectors over those that cut a layer have `ranks` entries,
/// also when ranks == 1.
struct Layout {
  int64_t ranks = 1;               // that cut every layer between them
  ContextSplit context;            // over groups of so many, which hold the same
  bool sequence_parallel = false;  // those that cut a layer share out its rows between sums
  std::vector<Stage> stages;       // at least one
  int64_t replicas = 1;            // that hold the same and compute requests of their own
  std::vector<AxisPlan> axes;      // the rows of the table, axes the model has
  std::vector<RankShard> shards;   // of the ranks of one replica, stage after stage
  Partials partial;
  std::optional<Placement> placement;  // the map that the shards carry out; none without experts or with replicas

  /// Ranks of all replicas.
  int64_t world() const { return replicas * static_cast<int64_t>(shards.size()); }
  /// Where `rank` of the world stands.
  RankPlace At(int64_t rank) const;
  /// Whose the rows of a step are.
  RowSplit Rows() const { return {context, ranks, sequence_parallel}; }
  /// Who stands there.
  int64_t RankAt(const RankPlace& place) const;
  /// What `rank` of the world holds.
  const RankShard& ShardOf(int64_t rank) const { return shards[static_cast<size_t>(rank) % shards.size()]; }
};

/// Cuts every axis of `geometry`: tries the legal cuts, prices them (docs/sharding.md), takes the cheapest or the one
/// that `options` names.
/// Errors:  kUsage (no ranks or more than 16, layers of stages that do not add up, unknown axis or cut word, experts
/// cut
///          in two ways at once), kInfeasible (a forced cut is not legal here: names the axis, its size, N and the
///          rule; more groups than ranks; more stages than layers), kInvalid (a placement of another number of
///          experts).
Result<Layout> MakeLayout(const Geometry& geometry, const LayoutOptions& options);

/// Every cut word that is legal for `axis` at `ranks` ranks, for tests and error messages.
std::vector<std::string> LegalCuts(const Geometry& geometry, const std::string& axis, int64_t ranks);

/// The layout as JSON: ranks, axes and per-rank shards. Stable key order.
Json LayoutJson(const Layout& layout);

}  // namespace trivet::plan
