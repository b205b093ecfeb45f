// SPDX-License-Identifier: Apache-2.0
// One step as the forward pass sees it: views into the step plan, plus what all layers share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/token_span.h"

namespace trivet::model {

/// Cosines and sines of every token's rotation by one rope table: [T, half] each.
struct RopeAngles {
  int64_t half = 0;
  std::span<const float> cos, sin;
};

/// T tokens of S sequences.
struct StepView {
  std::span<const TokenId> tokens;            // [T]
  std::span<const kernels::TokenSpan> spans;  // [S]
  std::span<const int32_t> logits_rows;       // [L] token rows whose logits are wanted, ascending
  std::span<const RopeAngles> ropes = {};     // by rope table of the geometry; made by the forward pass
};

}  // namespace trivet::model
