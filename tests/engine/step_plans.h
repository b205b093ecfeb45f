// SPDX-License-Identifier: Apache-2.0
// Plans of steps, for tests of what carries them and of what runs them.
#pragma once

#include "sched/scheduler.h"

namespace trivet::engine {

/// The first three tokens of one sequence, in page 0, with the logits of the last.
inline sched::StepPlan ThreeTokens() {
  sched::StepPlan plan;
  plan.tokens = {5, 6, 7};
  sched::Span span;
  span.count = 3;
  span.page_count = 1;
  span.logits_count = 1;
  plan.spans = {span};
  plan.pages = {0};
  plan.logits_rows = 1;
  return plan;
}

}  // namespace trivet::engine
