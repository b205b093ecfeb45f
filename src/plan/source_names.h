// SPDX-License-Identifier: Apache-2.0
// How a checkpoint names and stores what a geometry needs. Read off the names of its tensors: one family may be stored
// in several ways.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/geometry.h"
#include "plan/step_part.h"

namespace trivet::plan {

/// The ways in which checkpoints differ.
struct SourceNames {
  std::string prefix;                           // of the text model: "model." or "model.language_model." or ...
  bool fused_experts = true;                    // all experts of a layer in one tensor, or stored one by one
  bool input_major_experts = false;             // fused experts are [E, in, out] instead of [E, out, in]
  bool alternating_experts = false;             // gate and up channels of fused experts alternate
  bool grouped_delta_net = false;               // projections of a key head's group stand together, gates b and a aside
  bool grouped_gates = false;                   // gates b and a of a key head's group stand together
  bool split_latent_up = false;                 // keys, transposed, and values of kv_b are tensors of their own
  std::string head = "lm_head.weight";          // when not tied
  std::string router = "gate";                  // under "mlp."
  std::string shared_expert = "shared_expert";  // under "mlp."
};

/// What a tensor is to those who rewrite checkpoints.
enum class TensorKind {
  kOther,    // embedding and head, norms, biases, convolutions, and small products that decide much: routers, gates
  kLinear,   // the weight [out, in] of a large product
  kExperts,  // a stack of such weights, one for each expert
};

/// A tensor the checkpoint must have, and its exact shape.
struct SourceTensor {
  std::string name;
  std::vector<int64_t> shape;
  TensorKind kind = TensorKind::kOther;
  StepPart part = StepPart::kEnds;  // of a step, to which it belongs
};

/// Finds out how a checkpoint stores `geometry`: `has(name)` tells whether a tensor exists.
/// Errors: kInvalid when the embedding is under no known prefix.
Result<SourceNames> DetectNames(const Geometry& geometry, const std::function<bool(const std::string&)>& has);

/// The tensors `geometry` needs from a checkpoint.
std::vector<SourceTensor> RequiredTensors(const Geometry& geometry, const SourceNames& names);

/// What SkippedReason says of tensors that belong to a part with a geometry of its own.
inline constexpr std::string_view kVisionTower = "vision tower";

/// Whether a tensor the geometry does not need is known and skipped with a notice (vision towers, MTP heads, rotary
/// buffers): the notice's text, or empty when the tensor is unexpected.
///   layers  of the geometry; a layer beyond them is an MTP head
std::string SkippedReason(std::string_view tensor_name, int64_t layers);

}  // namespace trivet::plan
