// SPDX-License-Identifier: Apache-2.0
// Placement: where the routed experts of a model live. Pure data, made before a weight byte is read; docs/placement.md
// says the same in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace trivet::plan {

/// Most experts, and most expert groups, of a map.
inline constexpr int64_t kMostExperts = 65536;

/// The form of a map in JSON, and what its digests begin with.
inline constexpr const char* kPlacementSchema = "placement.v1";

/// What a physical id of a map is. Both name the same slots; a map declares which one its file holds.
enum class PlacementSemantics {
  kGlobal,     // the place in the concatenation of all tables, rank after rank: 0..E-1, each once
  kRankLocal,  // the slot within its expert group's table: 0..n-1, again for each group
};

/// The rule that a map follows.
enum class PlacementStrategy { kIdentity, kBlock, kInterleave, kIrregular };

/// The names in files and flags: "global" and "rank_local"; "identity", "block", "interleave" and "irregular".
const char* SemanticsName(PlacementSemantics semantics);
const char* StrategyName(PlacementStrategy strategy);
/// Errors: kUsage lists the names.
Result<PlacementSemantics> ParseSemantics(std::string_view name);
Result<PlacementStrategy> ParseStrategy(std::string_view name);

/// Where an expert is computed: the expert group, and the slot within its table. Neither is told without the other.
struct ExpertAddress {
  int64_t ep_rank = -1, local_slot = -1;
  bool operator==(const ExpertAddress&) const = default;
};

/// What a map says of itself besides its tables.
struct PlacementLabel {
  std::string
      version;  // the name by which runs refer to the map; empty: such as "block.ep3.1f0c22ab", after what it is
  PlacementSemantics semantics = PlacementSemantics::kGlobal;
};

/// A map of logical experts to slots: every expert 0..E-1 is in exactly one slot. The logical id is the only identity
/// of an expert; the address is (ep_rank, local_slot); flat ids are derived from the tables, which may differ in length
/// and be empty.
struct Placement {
  std::string version;
  PlacementSemantics semantics = PlacementSemantics::kGlobal;
  PlacementStrategy strategy = PlacementStrategy::kIdentity;
  std::string origin;                        // the way it was made, such as "pairs"
  std::vector<std::vector<int64_t>> tables;  // [ep_rank][local_slot] -> logical expert

  /// Expert e in slot e of one group.
  static Result<Placement> Identity(int64_t experts, const PlacementLabel& label = {});

  /// A flat list: expert e has the global id list[e]. Table r has `sizes`[r] slots; one table of all without `sizes`.
  /// Errors:  kInvalid when the list is no permutation, or the sizes do not add up to its length.
  static Result<Placement> FromLogicalToPhysical(const std::vector<int64_t>& list, std::vector<int64_t> sizes = {},
                                                 const PlacementLabel& label = {});

  /// Any map: addresses[e] is expert e's.
  ///   ep_size  groups, of which some may have no expert; 0: one more than the highest ep_rank
  /// Errors:  kInvalid names the first two experts in one slot, or the first hole of a table.
  static Result<Placement> FromPairs(const std::vector<ExpertAddress>& addresses, int64_t ep_size = 0,
                                     const PlacementLabel& label = {});

  /// By rule. Sizes differ by at most one, the lower groups have one more; a group may have none.
  ///   kBlock       consecutive experts: group 0 has experts 0, 1, ...
  ///   kInterleave  expert e is in group e mod ep_size, slot e div ep_size
  /// Errors:  kUsage for other strategies and counts out of range.
  static Result<Placement> FromEpConfig(int64_t experts, int64_t ep_size, PlacementStrategy strategy,
                                        const PlacementLabel& label = {});

  /// What PlanFragment wrote, or an older fragment that has only the first two of its keys.
  ///   what     the fragment's name for messages
  /// Errors:  kInvalid, kUnsupported (an unknown schema, replicas).
  static Result<Placement> FromPlanFragment(const Json& fragment, std::string_view what);

  /// Fills every group with experts at random, as many as it happens to get; the same for the same seed everywhere.
  /// Errors:  kUsage for counts out of range.
  static Result<Placement> Random(int64_t experts, int64_t ep_size, uint64_t seed, const PlacementLabel& label = {});

  int64_t experts() const;
  int64_t ep_size() const { return static_cast<int64_t>(tables.size()); }
  /// Slots of every table.
  std::vector<int64_t> Sizes() const;
  /// By logical expert.
  std::vector<ExpertAddress> Addresses() const;
  /// By logical expert, the global id: slots of the tables before its own, and its slot. The same for both semantics.
  std::vector<int64_t> LogicalToPhysical() const;
  /// By logical expert, in the declared semantics.
  std::vector<int64_t> PhysicalIds() const;

  /// "xxh3:" and 16 digits over schema, semantics, E, ep_size, table sizes and tables: equal for equal maps, however
  /// they were made.
  std::string ContentDigest() const;
  /// The same over the content digest, version, strategy and origin: equal for a repeat of the same run.
  std::string ProvenanceDigest() const;

  /// The map as JSON. The first two keys are those of older fragments and keep their meaning: "version", and
  /// "logical_to_physical", which is the global list in either semantics. A file of a map holds the same.
  Json PlanFragment() const;
};

/// The group of each of `ranks` ranks when they are dealt to `ep_size` groups: consecutive ranks, sizes differ by at
/// most one, the lower groups have one more.  Ranks: 1 <= ep_size <= ranks.
std::vector<int64_t> FoldGroups(int64_t ranks, int64_t ep_size);

/// Reads a file that holds a fragment.  Errors: kNotFound, kIo, and those of Placement::FromPlanFragment.
Result<Placement> ReadPlacement(const std::string& path);

}  // namespace trivet::plan
