// SPDX-License-Identifier: Apache-2.0
#include "proof/verdict.h"

#include "base/check.h"

namespace trivet::proof {
namespace {

struct VerdictRow {
  Verdict verdict;
  const char* name;
};
constexpr VerdictRow kVerdicts[] = {
    {Verdict::kPass, "PASS"},
    {Verdict::kNonFinite, "NON_FINITE"},
    {Verdict::kHashTableIndexOutOfRange, "HASH_TABLE_INDEX_OUT_OF_RANGE"},
    {Verdict::kIdentityDrift, "IDENTITY_DRIFT"},
    {Verdict::kSchemaMismatch, "SCHEMA_MISMATCH"},
    {Verdict::kCorruptArtifact, "CORRUPT_ARTIFACT"},
    {Verdict::kIncompleteArtifact, "INCOMPLETE_ARTIFACT"},
    {Verdict::kLogitRoundPointMismatch, "LOGIT_ROUND_POINT_MISMATCH"},
    {Verdict::kHashTableMismatch, "HASH_TABLE_MISMATCH"},
    {Verdict::kUnsupportedCapability, "UNSUPPORTED_CAPABILITY"},
    {Verdict::kZeroActiveTokens, "ZERO_ACTIVE_TOKENS"},
    {Verdict::kUpstreamNonFinite, "UPSTREAM_NON_FINITE"},
    {Verdict::kGateShardingMismatch, "GATE_SHARDING_MISMATCH"},
    {Verdict::kMissingRank, "MISSING_RANK"},
    {Verdict::kPreUpdateWeightDrift, "PRE_UPDATE_WEIGHT_DRIFT"},
    {Verdict::kStaleRunMetadata, "STALE_RUN_METADATA"},
    {Verdict::kCasePass, "CASE_PASS"},
    {Verdict::kRouteWeightBytesMismatch, "ROUTE_WEIGHT_BYTES_MISMATCH"},
    {Verdict::kScoreBytesMismatch, "SCORE_BYTES_MISMATCH"},
    {Verdict::kGradientBytesMismatch, "GRADIENT_BYTES_MISMATCH"},
    {Verdict::kByteMismatch, "BYTE_MISMATCH"},
    {Verdict::kTopkOrderMismatch, "TOPK_ORDER_MISMATCH"},
    {Verdict::kTieBreakPolicyMismatch, "TIE_BREAK_POLICY_MISMATCH"},
    {Verdict::kInvalidDiscretePlan, "INVALID_DISCRETE_PLAN"},
    {Verdict::kInvalidProfile, "INVALID_PROFILE"},
    {Verdict::kRouteSemanticFingerprintMismatch, "ROUTE_SEMANTIC_FINGERPRINT_MISMATCH"},
    {Verdict::kRouteArtifactFingerprintMismatch, "ROUTE_ARTIFACT_FINGERPRINT_MISMATCH"},
    {Verdict::kSelectionGradientPresent, "SELECTION_GRADIENT_PRESENT"},
    {Verdict::kForbiddenLocalShardTopk, "FORBIDDEN_LOCAL_SHARD_TOPK"},
    {Verdict::kAmbiguousGlobalTokenMapping, "AMBIGUOUS_GLOBAL_TOKEN_MAPPING"},
    {Verdict::kInvalidPlacementMap, "INVALID_PLACEMENT_MAP"},
    {Verdict::kPlacementMapVersionMismatch, "PLACEMENT_MAP_VERSION_MISMATCH"},
    {Verdict::kSilentFallback, "SILENT_FALLBACK"},
    {Verdict::kMissingProvenance, "MISSING_PROVENANCE"},
    {Verdict::kMissingBoundaryTrace, "MISSING_BOUNDARY_TRACE"},
    {Verdict::kUpstreamContractMismatch, "UPSTREAM_CONTRACT_MISMATCH"},
    {Verdict::kUpstreamVerdictMissing, "UPSTREAM_VERDICT_MISSING"},
    {Verdict::kUpstreamEvidenceMissing, "UPSTREAM_EVIDENCE_MISSING"},
    {Verdict::kNaturalRouteMismatch, "NATURAL_ROUTE_MISMATCH"},
    {Verdict::kSlotWeightDigestMismatch, "SLOT_WEIGHT_DIGEST_MISMATCH"},
    {Verdict::kExecutionMisplaced, "EXECUTION_MISPLACED"},
    {Verdict::kExecutionMissing, "EXECUTION_MISSING"},
    {Verdict::kExecutionDuplicated, "EXECUTION_DUPLICATED"},
    {Verdict::kBoundaryDigestMismatch, "BOUNDARY_DIGEST_MISMATCH"},
    {Verdict::kLogitsBytesMismatch, "LOGITS_BYTES_MISMATCH"},
    {Verdict::kReductionOrderMismatch, "REDUCTION_ORDER_MISMATCH"},
    {Verdict::kLayoutUndeclared, "LAYOUT_UNDECLARED"},
    {Verdict::kSampledTokenDiverged, "SAMPLED_TOKEN_DIVERGED"},
    {Verdict::kKnobNotApplied, "KNOB_NOT_APPLIED"},
};

}  // namespace

const char* VerdictName(Verdict verdict) {
  for (const VerdictRow& row : kVerdicts) {
    if (row.verdict == verdict) return row.name;
  }
  CHECK(false);
  return "";
}

std::vector<std::pair<Verdict, std::string>> Verdicts() {
  std::vector<std::pair<Verdict, std::string>> all;
  for (const VerdictRow& row : kVerdicts) all.emplace_back(row.verdict, row.name);
  return all;
}

}  // namespace trivet::proof
