// SPDX-License-Identifier: Apache-2.0
// Two runs of the same work under different layouts: are they the same bits, and if not, where did they part?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proof/run.h"

namespace trivet::proof {

/// What a comparison claims besides equal results.
struct CompareOptions {
  bool same_reduction = false;  // that both sides add in the same order
};

/// What came of a comparison.
struct Comparison {
  Gate gate;
  int64_t decisions = 0, bounds = 0, logits_rows = 0, logits_bytes = 0;  // compared
  std::vector<std::string> dimensions;                                   // along which the layouts differ
  int64_t reductions = 0;                                                // fields in which their sums differ
};

/// Compares `b` with `a`. Both must have passed their own gates.
/// Verdicts, in order: kIdentityDrift; kReductionOrderMismatch when asked for; kIncompleteArtifact for what `b` lacks,
/// kAmbiguousGlobalTokenMapping for what only it has; of kRouteSemanticFingerprintMismatch, kBoundaryDigestMismatch and
/// kLogitsBytesMismatch the one that is earliest in the dataflow; kSampledTokenDiverged.
Comparison Compare(const RecordedRun& a, const RecordedRun& b, const CompareOptions& options);

/// How much two runs have in common in their decisions, best first: "bits", "ids and order", "ids", "different";
/// nothing where the decisions themselves are not recorded.
std::string Grade(const RecordedRun& a, const RecordedRun& b);

}  // namespace trivet::proof
