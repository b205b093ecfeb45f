// SPDX-License-Identifier: Apache-2.0
// The plan of a model as JSON: what `trivet plan --json` prints and what the golden test compares.
#pragma once

#include "base/json.h"
#include "plan/cost.h"
#include "plan/geometry.h"
#include "plan/layout.h"

namespace trivet::plan {

/// A factor as JSON shows it: four decimals, so that the text does not depend on a machine's last bits.
double RoundedFactor(double factor);

/// The logical facts of a model.
Json GeometryJson(const Geometry& geometry);

/// Geometry, layout and cost of one plan. Stable key order; bytes are integers, factors have four decimals.
Json PlanJson(const Geometry& geometry, const Layout& layout, const LayoutCost& cost);

}  // namespace trivet::plan
