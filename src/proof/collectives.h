// SPDX-License-Identifier: Apache-2.0
// Records of sums and gathers: what can move a bit, and how two runs differ in it.
#pragma once

#include <string>
#include <vector>

#include "base/hash.h"
#include "proof/run.h"

namespace trivet::proof {

/// Everything in a record that can change the order or the rounding of additions: not how it was observed, how often it
/// happened, nor what moved the bytes.
Digest ReductionFingerprint(const Json& record);

/// One way in which two runs add differently.
struct ReductionDelta {
  std::string site;
  int64_t layer = 0;
  std::string field;
  Json a, b;
};

/// How the sums of `b` differ from those of `a`, by site and layer: in what any rank recorded, as the array of values
/// where ranks differ; in whom sums are of, by the lowest rank that has the site. It describes; a difference between
/// two rank counts is no defect.
std::vector<ReductionDelta> DescribeReductions(const RecordedRun& a, const RecordedRun& b);

/// The record of the last sum at or before a place; null without one. That of rank 0, or of the first rank that added
/// or rounded otherwise than rank 0.
Json ReductionBefore(const RecordedRun& run, int64_t layer, record::Site site);

}  // namespace trivet::proof
