// SPDX-License-Identifier: Apache-2.0
// The family table: the only place that knows model names. One row reads a config into a Geometry.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "plan/geometry.h"

namespace trivet::plan {

/// The text model's config (wrapper already resolved) and its rope parameters in the new form.
struct FamilyConfig {
  const Json& text;  // merged text_config
  const Json& rope;  // {rope_type, rope_theta, partial_rotary_factor, ...}, or one such object per word of layer_types
};

/// One row of the family table.
struct FamilyRow {
  std::string_view name;                          // "qwen3_5_moe"
  std::span<const std::string_view> model_types;  // config.json's model_type values that mean it
  const char* defaults;                           // JSON: values of keys that a config may leave out
  Result<Geometry> (*read)(const FamilyConfig& config);
  // transformers refuses configs of the family whose hidden width is no multiple of the query heads.
  bool heads_divide_hidden = false;
};

/// All supported families.
std::span<const FamilyRow> Families();

/// The row that a geometry was read by.
const FamilyRow& FamilyOf(const Geometry& geometry);

/// Reads a config.  Errors: kUnsupported names the model_type, rope type, activation or option that is not supported;
/// kInvalid names the key with a missing, ill-typed or contradictory value (heads not a multiple of KV heads,
/// layer_types of the wrong length, zero or negative or absurdly large extents, ...).
Result<Geometry> ReadGeometry(const FamilyConfig& config);

}  // namespace trivet::plan
