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

/// The spans of a step with the pages of their slots' rings: position p is in page slot * pages + p / 64 % pages.
struct RingSpans {
  int64_t pages = 0;  // of a ring
  std::vector<int32_t> page_ids;
  std::vector<kernels::TokenSpan> spans;  // [S], into page_ids
};

/// T tokens of S sequences.
struct StepView {
  std::span<const TokenId> tokens;            // [T]
  std::span<const kernels::TokenSpan> spans;  // [S]
  std::span<const int32_t> logits_rows;       // [L] token rows whose logits are wanted, ascending
  std::span<const RopeAngles> ropes = {};     // by rope table of the geometry; made by the forward pass
  std::span<const RingSpans> rings = {};      // by size of rings, for layers with a sliding window; likewise
};

}  // namespace trivet::model
