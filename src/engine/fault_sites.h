// SPDX-License-Identifier: Apache-2.0
// Where planted mistakes (comm/fault.h) can be made.
#pragma once

#include "base/result.h"
#include "engine/engine.h"
#include "plan/geometry.h"
#include "plan/layout.h"

namespace trivet::engine {

/// Whether the ranks of a layout can make the planted mistake of the options: a rank that runs, at a site that it has,
/// where it has rows, heads, experts or channels that the mistake can change.
/// Errors:  kUsage with what there is; kUnsupported.
Status CheckFault(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options);

}  // namespace trivet::engine
