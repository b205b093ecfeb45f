// SPDX-License-Identifier: Apache-2.0
// The gates that a single run must pass, in the order in which they are asked. Each stops at its first finding.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "proof/run.h"

namespace trivet::proof {

/// Where a difference is, in the order of the dataflow.
using Place = std::tuple<int64_t, int, int64_t>;  // layer, site, token

/// "layer 3 resid1", or "embed".
std::string PlaceName(const RecordedRun& run, int64_t layer, record::Site site);
/// "request 0, position 17".
std::string TokenName(int64_t token);
/// {"layer", "site", "request", "position"}.
Json PlaceJson(int64_t layer, record::Site site, int64_t token);

/// The ranks that the run has, each once, by number. Null where one is missing.
std::vector<const RankRun*> ByRank(const RecordedRun& run);

/// Which dimensions a disagreement of ranks follows.
struct Attribution {
  std::vector<Dimension> dimensions;
  int64_t isolated = -1;  // the one rank that differs, when no dimension explains it
  /// "dimension tp", "dimensions tp and ep, inseparable here", or "rank 2 alone".
  std::string Text() const;
  Json ToJson() const;
};
/// A dimension is implicated when values are equal for ranks of one coordinate and not for all coordinates.
///   values[i] is that of ranks[i]
Attribution Attribute(const TokenLayout& layout, const std::vector<int64_t>& ranks, const std::vector<Digest>& values);

/// kKnobNotApplied for a setting that did not apply, or that no run of this version has.
Gate CheckKnobs(const RecordedRun& run);
/// kPlacementMapVersionMismatch, then kInvalidPlacementMap: versions, then maps, then the rows that were dispatched.
Gate CheckPlacements(const RecordedRun& run);
/// kSlotWeightDigestMismatch where a slot does not hold the expert that the map says; kIncompleteArtifact where nobody
/// says what it holds, unless a rank is missing altogether.
Gate CheckSlots(const RecordedRun& run);
/// kStaleRunMetadata for a rank that is there twice or is none of the run's, then kMissingRank.
Gate CheckRankSet(const RecordedRun& run);
/// kAmbiguousGlobalTokenMapping for a decision that a rank does not carry, then kIncompleteArtifact for one it lacks.
Gate CheckOwnership(const RecordedRun& run);
/// kRouteSemanticFingerprintMismatch or kBoundaryDigestMismatch where ranks that hold the same disagree: the earliest.
Gate CheckReplicas(const RecordedRun& run);
/// kAmbiguousGlobalTokenMapping or kMissingBoundaryTrace: every rank has every site of every token it holds.
Gate CheckBounds(const RecordedRun& run);
/// kForbiddenLocalShardTopk, kTopkOrderMismatch, kTieBreakPolicyMismatch, kInvalidDiscretePlan, kNonFinite, and
/// kRouteSemanticFingerprintMismatch for a decision that is not what its digest says.
Gate CheckRouter(const RecordedRun& run);
/// kExecutionMisplaced, kExecutionMissing, kExecutionDuplicated, in this order.
Gate CheckExecution(const RecordedRun& run);
/// kMissingProvenance, then kSilentFallback.
Gate CheckCollectives(const RecordedRun& run);

/// What a run was found to hold.
struct Counts {
  int64_t ranks = 0, decisions = 0, decision_copies = 0, bounds = 0, logits_rows = 0, logits_bytes = 0;
  int64_t slots = 0, dispatches = 0, executions = 0, collectives = 0;
};
/// Counts it.
Counts CountsOf(const RecordedRun& run);

/// All gates of a run, seal and form included.
///   run  what was read of it, as far as that went
Gate CheckRun(const Files& files, RecordedRun* run);

}  // namespace trivet::proof
