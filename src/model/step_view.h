// SPDX-License-Identifier: Apache-2.0
// One step as the forward pass sees it: views into the step plan, plus what all layers share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/token_span.h"

namespace trivet::model {

/// T tokens of S sequences.
struct StepView {
  std::span<const TokenId> tokens;            // [T]
  std::span<const kernels::TokenSpan> spans;  // [S]
  std::span<const int32_t> logits_rows;       // [L] token rows whose logits are wanted, ascending
};

}  // namespace trivet::model
