// SPDX-License-Identifier: Apache-2.0
// The sizes an engine runs with, from options, model and machine.
#pragma once

#include "base/result.h"
#include "engine/engine.h"
#include "plan/geometry.h"
#include "plan/layout.h"
#include "sched/scheduler.h"

namespace trivet::engine {

/// The scheduler's limits.
/// Errors:  kUsage names the option whose value is out of range; kCapacity when one sequence of the longest context
///          does not fit the cache.
Result<sched::SchedulerLimits> MakeLimits(const plan::Geometry& geometry, const plan::Layout& layout,
                                          const EngineOptions& options);

/// Threads of one rank.
int ThreadsPerRank(const EngineOptions& options, int64_t ranks);

}  // namespace trivet::engine
