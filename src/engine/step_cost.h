// SPDX-License-Identifier: Apache-2.0
// What the scheduler is told about the work of steps: the model's arithmetic and bytes, and the kind of machine.
#pragma once

#include "base/backend.h"
#include "plan/cost.h"
#include "plan/geometry.h"
#include "sched/step_cost.h"

namespace trivet::engine {

/// The cost of steps of a model. That of the model as a whole: what ranks share out they share out alike, so that every
/// layout cuts the same requests into the same steps.
///   bytes  of the checkpoint's matrix elements, and of the cache's
sched::StepCost StepCostOf(const plan::Geometry& geometry, const plan::ElementBytes& bytes, Backend backend);

}  // namespace trivet::engine
