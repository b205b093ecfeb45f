// SPDX-License-Identifier: Apache-2.0
// Function calls that an answer is made of whether the model would have called or not.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "base/result.h"
#include "engine/constraints.h"
#include "engine/tool_calls.h"

namespace trivet::engine {

/// Calls that an answer is held to.
struct ForcedCalls {
  ToolStyle style = ToolStyle::kJson;
  Json tools;             // those that may be called
  bool parallel = false;  // up to kMaxForcedCalls; else one
};
inline constexpr int32_t kMaxForcedCalls = 8;

/// Holds an answer to calls and nothing else.
/// Errors:  kInvalid and kUnsupported name the tool and the keyword of its schema.
Result<ConstraintPtr> ForceCalls(const ForcedCalls& forced, Constraints* constraints);

}  // namespace trivet::engine
