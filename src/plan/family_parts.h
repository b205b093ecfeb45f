// SPDX-License-Identifier: Apache-2.0
// Parts of a config that families share: each reader takes the text config and fills its part of a Geometry.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "plan/families.h"
#include "plan/geometry.h"

namespace trivet::plan {

/// What every family states in the same words: widths, layers, norms, head. Layers are plain attention and MLP.
Result<Geometry> ReadCommon(const Json& text);

/// How a family decides the kind of a layer.
struct LayerRule {
  std::span<const std::string_view> words;        // of full_attention, sliding_attention, linear_attention: those known
  std::function<std::string_view(int64_t)> word;  // of layer i where layer_types is absent
  std::function<bool(int64_t)> sparse;            // whether layer i has experts; null: none has
};

/// Kinds and windows of all layers, from `layer_types` or the rule.
/// Errors:  kInvalid, kUnsupported for other words; a sliding layer needs a positive sliding_window.
Status ReadLayers(const Json& text, const LayerRule& rule, Geometry* geometry);

/// Heads, biases (`attention_bias`) and rotation of attention layers, when there are any. A flat rope object serves all
/// layers, a nested one has an object for every word of layer_types.
Status ReadAttention(const FamilyConfig& config, Geometry* geometry);

/// The rope tables of attention layers that rotate `rotary_dim` channels per head; 0 means head_dim times the rope's
/// partial_rotary_factor.
Status ReadRopes(const FamilyConfig& config, int64_t rotary_dim, Geometry* geometry);

/// Delta-net heads, when there are such layers.
Status ReadDeltaNet(const Json& text, Geometry* geometry);

/// Activation (key `act_key`), and the width and bias of dense MLPs when there are any.
Status ReadMlp(const Json& text, std::string_view act_key, Geometry* geometry);

/// Where the sizes of experts stand.
struct MoeKeys {
  std::string_view experts, experts_alias;
  std::string_view top_k, top_k_alias;
  std::string_view width;
};

/// Number, choice and width of routed experts, when any layer has them.
Status ReadExperts(const Json& text, const MoeKeys& keys, Geometry* geometry);

/// Refuses a head that a leaf cannot hold: odd, or wide and not halving evenly.
Status CheckHeadLeaf(std::string_view key, int64_t head_dim);

}  // namespace trivet::plan
