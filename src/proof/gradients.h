// SPDX-License-Identifier: Apache-2.0
// Sums of gradients that a trainer made, in the trainer's own words: which gradients shared a bucket, in which order
// the buckets went, and how each was added. They decide the last bit of a router's weights, and with it whether two
// nearly tied experts change places a step later.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "proof/compare.h"
#include "proof/verdict.h"
#include "proof/verify.h"

namespace trivet::proof {

/// A trainer's file and its name in messages.
struct NamedJson {
  std::string name;
  Json json;
};

/// The fields of a bucket's record, those first that can move a bit (docs/proof.md).
std::vector<std::string> GradientFields();

/// Structure, then completeness, then fallbacks: kSchemaMismatch for another form, a parameter in two buckets or
/// buckets out of order; kMissingProvenance for a field or a source that is absent, and for `none` with more than one
/// rank; kSilentFallback.
Gate CheckGradients(const Json& file);

/// Everything in a file that can change the order or the rounding of additions: not how it was observed.
Digest GradientFingerprint(const Json& file);

/// One way in which two files add differently.
struct GradientDelta {
  int64_t bucket = 0;
  std::string field;  // "bucket" where only one file has it
  Json a, b;
};

/// How the sums of `b` differ from those of `a`. It describes; two numbers of ranks have to differ. Both must have
/// passed their gates.
std::vector<GradientDelta> DescribeGradients(const Json& a, const Json& b);

/// Judges files, and compares all with the first one: with options.same_reduction a difference is
/// kReductionOrderMismatch.
///   files  at least one
Report VerifyGradients(const std::vector<NamedJson>& files, const CompareOptions& options);

}  // namespace trivet::proof
