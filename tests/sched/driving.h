// SPDX-License-Identifier: Apache-2.0
// What tests do with a scheduler over and over.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sched/scheduler.h"

namespace trivet::sched {

/// A request with the prompt 0, 1, 2, ...
inline Request MakeRequest(int64_t id, int32_t prompt, int32_t max_new, LogitsMode logits = LogitsMode::kLast) {
  Request request;
  request.id = SeqId{id};
  request.prompt.resize(static_cast<size_t>(prompt));
  std::iota(request.prompt.begin(), request.prompt.end(), 0);
  request.max_new_tokens = max_new;
  request.logits = logits;
  return request;
}

/// "id:start+count/logits" for each span.
inline std::vector<std::string> Text(const StepPlan& plan) {
  std::vector<std::string> text;
  for (const Span& span : plan.spans) {
    text.push_back(std::to_string(static_cast<int64_t>(span.seq)) + ":" + std::to_string(span.start) + "+" +
                   std::to_string(span.count) + "/" + std::to_string(span.logits_count));
  }
  return text;
}

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
