// SPDX-License-Identifier: Apache-2.0
// The parts of a step by which its bytes and its time are told.
#pragma once

#include <cstddef>

namespace trivet::plan {

/// Parts of a step; kEnds are the ends of residual branches: norms, sums over ranks, and rows that come together.
enum class StepPart { kEmbed, kAttention, kDeltaNet, kMlp, kExperts, kEnds, kHead };
inline constexpr size_t kStepParts = 7;
inline constexpr const char* kStepPartNames[kStepParts] = {"embedding", "attention", "delta net", "mlp",
                                                           "experts",   "ends",      "head"};

}  // namespace trivet::plan
