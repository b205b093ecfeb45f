// SPDX-License-Identifier: Apache-2.0
// The family table: the only place that knows model names. One row reads a config into a Geometry and says how the
// checkpoint names its tensors.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "plan/geometry.h"
#include "plan/shard_map.h"

namespace trivet::plan {

/// The text model's config (wrapper already resolved) and its rope parameters in the new form.
struct FamilyConfig {
  const Json& text;  // merged text_config
  const Json& rope;  // {rope_type, rope_theta, partial_rotary_factor, ...}
};

/// One row of the family table.
struct FamilyRow {
  std::string_view name;                          // "qwen3_5_moe"
  std::span<const std::string_view> model_types;  // config.json's model_type values that mean it
  Result<Geometry> (*read)(const FamilyConfig& config);
};

/// All supported families.
std::span<const FamilyRow> Families();

/// Reads a config.  Errors: kUnsupported names the model_type, rope type, activation or option that is not supported;
/// kInvalid names the key with a missing, ill-typed or contradictory value (heads not a multiple of KV heads,
/// layer_types of the wrong length, zero or negative or absurdly large extents, ...).
Result<Geometry> ReadGeometry(const FamilyConfig& config);

/// Finds prefix and expert storage from the checkpoint's names: `has(name)` tells whether a tensor exists.
/// Errors: kInvalid when the embedding is under no known prefix.
Result<SourceNames> DetectNames(const Geometry& geometry, const std::function<bool(const std::string&)>& has);

/// Whether a tensor the geometry does not need is known and skipped with a notice (vision towers, MTP heads, rotary
/// buffers): the notice's text, or empty when the tensor is unexpected.
std::string SkippedReason(std::string_view tensor_name);

}  // namespace trivet::plan
