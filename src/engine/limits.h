// SPDX-License-Identifier: Apache-2.0
// The sizes an engine runs with, from options, model and memory.
#pragma once

#include "base/result.h"
#include "engine/engine.h"
#include "plan/cost.h"
#include "plan/geometry.h"
#include "plan/layout.h"
#include "plan/memory_plan.h"
#include "sched/scheduler.h"

namespace trivet::engine {

/// What the scheduler works within, and what memory that takes.
struct EngineSizes {
  sched::SchedulerLimits limits;
  plan::MemoryPlan memory;
};

/// Sizes everything within `options.memory_fraction` of the available memory: weights, states and scratch first, then
/// snapshots, then KV pages for every sequence's context, as far as they go. What an option pins is never made smaller.
///   cost       of the layout
///   available  memory of the machine that all ranks share.  Units: bytes
/// Errors:  kUsage names the option whose value is out of range; kCapacity gives the numbers when something that has to
///          fit, or is pinned, does not.
Result<EngineSizes> MakeSizes(const plan::Geometry& geometry, const plan::Layout& layout, const plan::LayoutCost& cost,
                              const EngineOptions& options, int64_t available);

/// Whether ranks of the layout run on `backend`.  Errors: kUnsupported for stages and replicas on GPUs.
Status CheckBackend(const plan::Layout& layout, Backend backend);

/// Threads of one rank.
int ThreadsPerRank(const EngineOptions& options, int64_t ranks);

}  // namespace trivet::engine
