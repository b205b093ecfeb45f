// SPDX-License-Identifier: Apache-2.0
// What prompts may take of a step with decoders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sched/scheduler.h"
#include "tests/sched/driving.h"

namespace trivet::sched {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Step(Scheduler* scheduler) {
  const StepPlan plan = scheduler->Next();
  CommitOnes(scheduler, plan);
  return Text(plan);
}

SchedulerLimits Priced(StepCost cost) {
  SchedulerLimits limits = {.max_sequences = 4,
                            .max_step_tokens = 256,
                            .prefill_chunk = 100,
                            .max_logits_rows = 256,
                            .pages = 100,
                            .max_context = 4000};
  limits.cost = std::move(cost);
  return limits;
}

TEST(SchedulerBudget, PromptsTakeWhatAStepsWorkLeavesThem) {
  // A decoder's step reads as long as 20 tokens take; twice that are 40 tokens.
  Scheduler scheduler(Priced({.token_work = 1, .weight_bytes = 20, .attention = {}, .work_per_byte = 1}));
  MustSubmit(&scheduler, MakeRequest(1, 3, 3));
  Step(&scheduler);
  MustSubmit(&scheduler, MakeRequest(2, 20, 1));
  MustSubmit(&scheduler, MakeRequest(3, 200, 1));
  MustSubmit(&scheduler, MakeRequest(4, 200, 1));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:3+1/1", "2:0+20/1", "3:0+19/0"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:4+1/1", "3:19+39/0"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("3:58+100/0", "4:0+100/0")) << "no one decodes";
}

TEST(SchedulerBudget, LaterTokensOfAPromptAreFewerAStep) {
  // Two decoders at about 8 take some 16 + 16; a prompt's token as many as the keys that it sees, and 8.
  const StepCost cost{.token_work = 8, .attention = {{0, 1, 0}}};
  Scheduler scheduler(Priced(cost));
  for (int64_t id = 1; id <= 2; ++id) MustSubmit(&scheduler, MakeRequest(id, 8, 400));
  Step(&scheduler);
  MustSubmit(&scheduler, MakeRequest(3, 120, 1));
  std::vector<int32_t> counts;
  while (scheduler.Find(SeqId{3})->status != SequenceStatus::kDone) {
    const StepPlan plan = scheduler.Next();
    ASSERT_EQ(plan.spans.size(), 3U);
    counts.push_back(plan.spans[2].count);
    StepWork work(&cost);
    for (const Span& span : plan.spans) work = work.With({span.start, span.count, span.logits_count});
    const double alone = StepWork(&cost).With({plan.spans[0].start, 1, 1}).With({plan.spans[1].start, 1, 1}).total();
    EXPECT_LE(work.total(), kMostStretch * alone);
    EXPECT_TRUE(plan.spans[2].logits_count > 0 ||
                work.With({plan.spans[2].start + plan.spans[2].count, 1, 0}).total() > kMostStretch * alone)
        << "one more had room";
    CommitOnes(&scheduler, plan);
  }
  EXPECT_EQ(counts.front(), 3);
  EXPECT_LT(*std::min_element(counts.begin(), counts.end()), 3);
}

// The first prompt gets a token however much that is beside a decoder, and no other one does.
TEST(SchedulerBudget, APromptAdvancesWhateverItsTokensAre) {
  const StepCost cost{.token_work = 1, .attention = {{0, 100, 0}}};
  Scheduler scheduler(Priced(cost));
  MustSubmit(&scheduler, MakeRequest(1, 250, 1));
  Step(&scheduler);
  MustSubmit(&scheduler, MakeRequest(2, 1, 400));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:100+100/0", "2:0+1/1"));
  MustSubmit(&scheduler, MakeRequest(3, 20, 1));
  for (int32_t i = 0; i < 10; ++i) {
    const std::string decoder = "2:" + std::to_string(1 + i) + "+1/1", prompt = "1:" + std::to_string(200 + i) + "+1/0";
    EXPECT_THAT(Step(&scheduler), ElementsAre(decoder, prompt));
  }
}

}  // namespace
}  // namespace trivet::sched
