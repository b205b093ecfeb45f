// SPDX-License-Identifier: Apache-2.0
// Rope tables from a config's rope parameters: every scaling rule comes down to a frequency per channel pair and one
// factor on cosine and sine.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "base/result.h"
#include "plan/geometry.h"

namespace trivet::plan {

/// What a rope table depends on besides its own parameters.
struct RopeContext {
  int64_t rotary_dim = 0;     // even
  int64_t max_positions = 0;  // max_position_embeddings
};

/// A table and the positions it is good for.
struct RopeRule {
  RopeTable table;
  int64_t max_positions = 0;  // at most those of the context
};

/// Frequencies of `rope` = {rope_type, rope_theta, ...}: types default, linear, llama3, yarn, dynamic and longrope.
/// dynamic grows its base beyond max_position_embeddings only, which is where contexts end; longrope is served up to
/// original_max_position_embeddings, where its short factors hold.
/// Errors:  kUnsupported names another rope type; kInvalid names the key that is missing or out of range.
Result<RopeRule> MakeRopeTable(const Json& rope, const RopeContext& context);

}  // namespace trivet::plan
