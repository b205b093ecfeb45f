// SPDX-License-Identifier: Apache-2.0
// What tests do with a scheduler over and over.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "sched/scheduler.h"

namespace trivet::sched {

/// Submits what is in order.
inline void MustSubmit(Scheduler* scheduler, Request request) {
  const Status status = scheduler->Submit(std::move(request));
  ASSERT_TRUE(status.ok()) << status.error().message;
}

/// Commits with token 1 wherever one is wanted.
inline void CommitOnes(Scheduler* scheduler, const StepPlan& plan) {
  std::vector<SampledToken> sampled;
  for (const Span& span : plan.spans) {
    if (scheduler->WantsToken(span)) sampled.push_back({span.seq, 1});
  }
  scheduler->Commit(plan, sampled);
}

}  // namespace trivet::sched
