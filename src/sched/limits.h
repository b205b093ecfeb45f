// SPDX-License-Identifier: Apache-2.0
// The sizes a scheduler works within.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "sched/step_cost.h"

namespace trivet::sched {

/// The sizes a scheduler works within.
struct SchedulerLimits {
  int32_t max_sequences = 1;    // running at once: the number of state slots
  int32_t max_step_tokens = 1;  // tokens in one step, at least max_sequences
  int32_t prefill_chunk = 1;    // prompt tokens of one sequence in one step
  int32_t prefill_budget = 0;  // prompt tokens of all sequences in a step with decoders; 0: by their work, kMostStretch
  int32_t max_logits_rows = 1;  // rows of logits in one step, at least max_sequences
  int32_t pages = 1;            // KV pages
  int32_t max_context = 1;      // prompt and generated tokens of one sequence
  bool prefix_cache = false;    // pages of prefixes stay known while no one needs their place
  bool stateful = false;        // slots hold what a sequence needs besides pages, so a known prefix needs a snapshot
  int32_t snapshots = 0;        // state slots for snapshots, after those of the running sequences
  StepCost cost = {};           // of steps
};

/// Checks that every limit is at least 1 and that every running sequence can have a token and a row in each step.
/// Errors:  kInvalid, naming the limit.
Status Validate(const SchedulerLimits& limits);

}  // namespace trivet::sched
