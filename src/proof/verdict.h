// SPDX-License-Identifier: Apache-2.0
// Verdicts: what a check of recorded runs can say. The numbers are the exit statuses of `trivet verify`; the table is
// only ever appended to.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace trivet::proof {

/// One verdict. The first sixty are those that contracts of this kind have in common, whether or not Trivet gives them.
enum class Verdict : int {
  kPass = 0,
  kNonFinite = 1,
  kHashTableIndexOutOfRange = 2,
  kIdentityDrift = 10,
  kSchemaMismatch = 11,
  kCorruptArtifact = 12,
  kIncompleteArtifact = 13,
  kLogitRoundPointMismatch = 14,
  kHashTableMismatch = 15,
  kUnsupportedCapability = 16,
  kZeroActiveTokens = 17,
  kUpstreamNonFinite = 18,
  kGateShardingMismatch = 19,
  kMissingRank = 20,
  kPreUpdateWeightDrift = 21,
  kStaleRunMetadata = 22,
  kCasePass = 50,
  kRouteWeightBytesMismatch = 51,
  kScoreBytesMismatch = 52,
  kGradientBytesMismatch = 53,
  kByteMismatch = 54,
  kTopkOrderMismatch = 55,
  kTieBreakPolicyMismatch = 56,
  kInvalidDiscretePlan = 57,
  kInvalidProfile = 58,
  kRouteSemanticFingerprintMismatch = 59,
  kRouteArtifactFingerprintMismatch = 60,
  kSelectionGradientPresent = 61,
  kForbiddenLocalShardTopk = 62,
  kAmbiguousGlobalTokenMapping = 63,
  kInvalidPlacementMap = 64,
  kPlacementMapVersionMismatch = 65,
  kSilentFallback = 66,
  kMissingProvenance = 67,
  kMissingBoundaryTrace = 68,
  kUpstreamContractMismatch = 69,
  kUpstreamVerdictMissing = 70,
  kUpstreamEvidenceMissing = 71,
  kNaturalRouteMismatch = 72,
  kSlotWeightDigestMismatch = 73,
  kExecutionMisplaced = 74,
  kExecutionMissing = 75,
  kExecutionDuplicated = 76,
  kBoundaryDigestMismatch = 77,
  kLogitsBytesMismatch = 78,
  kReductionOrderMismatch = 79,
  kLayoutUndeclared = 80,
  kSampledTokenDiverged = 81,
  kKnobNotApplied = 82,
};

/// "ROUTE_SEMANTIC_FINGERPRINT_MISMATCH" and the like.
const char* VerdictName(Verdict verdict);

/// Every verdict in the order of its number, with its name.
std::vector<std::pair<Verdict, std::string>> Verdicts();

/// What a gate found: its verdict, one sentence, and the same for machines.
struct Finding {
  Verdict verdict = Verdict::kPass;
  std::string message;
  Json where = Json::object();
};

/// What a gate says: nothing when all is well.
using Gate = std::optional<Finding>;

/// A finding.
inline Finding Found(Verdict verdict, std::string message, Json where = Json::object()) {
  return {verdict, std::move(message), std::move(where)};
}

}  // namespace trivet::proof
