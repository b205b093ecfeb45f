// SPDX-License-Identifier: Apache-2.0
// The plan of a model as tables for people. The JSON form is plan::PlanJson.
#pragma once

#include <string>

#include "plan/cost.h"
#include "plan/geometry.h"
#include "plan/layout.h"
#include "plan/memory_plan.h"

namespace trivet::cli {

/// The layout table: one line per axis, then what each rank holds, then what collectives move. Ends with a newline.
std::string RenderLayoutTable(const plan::Geometry& geometry, const plan::Layout& layout, const plan::LayoutCost& cost);

/// What the rank counts from 1 to plan::kMaxRanks other than `ranks` would cost with the cuts priced cheapest: one line
/// each.
std::string RenderOtherRanks(const plan::Geometry& geometry, const plan::ElementBytes& bytes, int64_t ranks);

/// What memory the ranks take, and how much context that gives.
std::string RenderMemoryTable(const plan::MemoryPlan& memory);

}  // namespace trivet::cli
