// SPDX-License-Identifier: Apache-2.0
// Rules of the scheduler one by one. Whole runs with random traffic are in traffic_test.cc.
#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "tests/sched/driving.h"

namespace trivet::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const SchedulerLimits kWide = {.max_sequences = 4,
                               .max_step_tokens = 256,
                               .prefill_chunk = 100,
                               .prefill_budget = 256,
                               .max_logits_rows = 256,
                               .pages = 100,
                               .max_context = 4000};

std::vector<std::string> Step(Scheduler* scheduler) {
  const StepPlan plan = scheduler->Next();
  CommitOnes(scheduler, plan);
  return Text(plan);
}

TEST(Scheduler, InvalidLimitsAreABug) {
  SchedulerLimits limits = kWide;
  limits.pages = 0;
  EXPECT_DEATH(Scheduler{limits}, "pages");
}

TEST(Scheduler, SubmitRefusesWhatCanNeverRun) {
  SchedulerLimits limits = kWide;
  limits.pages = 3;
  limits.max_context = 200;
  Scheduler scheduler(limits);
  const auto code = [&](Request request) { return scheduler.Submit(std::move(request)).error().code; };
  EXPECT_EQ(code(MakeRequest(1, 0, 5)), Code::kInvalid);
  EXPECT_EQ(code(MakeRequest(1, 5, -1)), Code::kInvalid);
  EXPECT_EQ(code(MakeRequest(1, 5, 1, LogitsMode::kNone)), Code::kInvalid);
  const Status context = scheduler.Submit(MakeRequest(1, 101, 100));
  EXPECT_EQ(context.error().code, Code::kCapacity);
  EXPECT_THAT(context.error().message, HasSubstr("at most 200 tokens of context, found 101 prompt + 100 new = 201"));
  EXPECT_EQ(code(MakeRequest(1, 2, std::numeric_limits<int32_t>::max())), Code::kCapacity);
  const Status pages = scheduler.Submit(MakeRequest(1, 101, 92));
  EXPECT_EQ(pages.error().code, Code::kCapacity);
  EXPECT_THAT(pages.error().message, HasSubstr("at most 3 cache pages of 64 tokens, found 4"));
  MustSubmit(&scheduler, MakeRequest(1, 100, 92));
  EXPECT_EQ(code(MakeRequest(1, 5, 1)), Code::kInvalid);
  EXPECT_EQ(scheduler.counts().waiting, 1);
}

TEST(Scheduler, NothingToDoGivesAnEmptyPlan) {
  Scheduler scheduler(kWide);
  EXPECT_THAT(Step(&scheduler), IsEmpty());
  EXPECT_EQ(scheduler.counts().steps, 0);
}

TEST(Scheduler, DecodersComeFirstThenChunks) {
  Scheduler scheduler(kWide);
  MustSubmit(&scheduler, MakeRequest(1, 3, 4));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:0+3/1"));
  MustSubmit(&scheduler, MakeRequest(2, 250, 1));
  MustSubmit(&scheduler, MakeRequest(3, 120, 1));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:3+1/1", "2:0+100/0", "3:0+100/0"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:4+1/1", "2:100+100/0", "3:100+20/1"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:5+1/1", "2:200+50/1"));
  EXPECT_THAT(Step(&scheduler), IsEmpty());
  EXPECT_EQ(scheduler.Find(SeqId{1})->status, SequenceStatus::kDone);
  EXPECT_EQ(scheduler.Find(SeqId{1})->generated(), 4);
  EXPECT_EQ(scheduler.counts().done, 3);
  EXPECT_EQ(scheduler.counts().free_pages, kWide.pages);
  scheduler.Finish(SeqId{1});
  EXPECT_EQ(scheduler.Find(SeqId{1}), nullptr);
}

TEST(Scheduler, TokenBudgetIsSharedInOrder) {
  SchedulerLimits limits = kWide;
  limits.max_step_tokens = 120;
  Scheduler scheduler(limits);
  for (int64_t id = 1; id <= 3; ++id) MustSubmit(&scheduler, MakeRequest(id, 150, 1));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:0+100/0", "2:0+20/0"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:100+50/1", "2:20+70/0"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:90+60/1", "3:0+60/0"));
}

TEST(Scheduler, AgeCounts) {
  SchedulerLimits limits = kWide;
  limits.max_sequences = 1;
  Scheduler scheduler(limits);
  const auto submit = [&](int64_t id, int32_t priority) {
    Request request = MakeRequest(id, 2, 1);
    request.priority = priority;
    MustSubmit(&scheduler, request);
  };
  submit(0, 1);
  // More urgent ones arrive faster than they are served, but not for ever before it.
  for (int64_t step = 0; step <= kStepsPerPriority; ++step) {
    submit(2 * step + 1, 0);
    submit(2 * step + 2, 0);
    ASSERT_EQ(Step(&scheduler).at(0).starts_with("0:"), false) << step;
  }
  int64_t waited = 0;
  for (int64_t id = 10000; !Step(&scheduler).at(0).starts_with("0:"); ++id, ++waited) submit(id, 0);
  EXPECT_LE(waited, kStepsPerPriority + 2) << "those that came in its time go first, later ones do not";
}

TEST(Scheduler, AdmissionFollowsPriorityThenArrival) {
  SchedulerLimits limits = kWide;
  limits.max_sequences = 1;
  Scheduler scheduler(limits);
  for (int64_t id = 1; id <= 4; ++id) {
    Request request = MakeRequest(id, 2, 1);
    request.priority = id <= 2 ? 0 : -1;
    MustSubmit(&scheduler, request);
  }
  std::vector<std::string> order;
  for (int i = 0; i < 4; ++i) order.push_back(Step(&scheduler).at(0));
  EXPECT_THAT(order, ElementsAre("3:0+2/1", "4:0+2/1", "1:0+2/1", "2:0+2/1"));
}

TEST(Scheduler, AFullHeadOfTheQueueIsNotOvertaken) {
  SchedulerLimits limits = kWide;
  limits.pages = 4;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 100, 3));
  MustSubmit(&scheduler, MakeRequest(2, 190, 1));
  MustSubmit(&scheduler, MakeRequest(3, 2, 1));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:0+100/1"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:100+1/1"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:101+1/1"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:0+100/0", "3:0+2/1"));
}

TEST(Scheduler, ScoringGivesEveryPromptRowOnceWithinTheRowLimit) {
  SchedulerLimits limits = kWide;
  limits.max_logits_rows = 40;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 3, 9));
  Step(&scheduler);
  MustSubmit(&scheduler, MakeRequest(2, 70, 2, LogitsMode::kAll));
  MustSubmit(&scheduler, MakeRequest(3, 50, 0));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:3+1/1", "2:0+39/39"));  // 3 waits: no row is left for it
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:4+1/1", "2:39+31/31", "3:0+50/1"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:5+1/1", "2:70+1/1"));
  EXPECT_EQ(scheduler.Find(SeqId{3})->status, SequenceStatus::kDone);
  EXPECT_EQ(scheduler.Find(SeqId{3})->generated(), 0);
}

// Rows that tokens are drawn from count as rows of logits do, and none of them is handed out.
TEST(Scheduler, DrawnRowsAreListedByTheirTokens) {
  SchedulerLimits limits = kWide;
  limits.max_logits_rows = 40;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 120, 9, LogitsMode::kDrawn));
  StepPlan plan = scheduler.Next();
  EXPECT_THAT(plan.drawn, IsEmpty()) << "the prompt goes on";
  CommitOnes(&scheduler, plan);
  MustSubmit(&scheduler, MakeRequest(2, 4, 9));
  MustSubmit(&scheduler, MakeRequest(3, 70, 2, LogitsMode::kAll));
  plan = scheduler.Next();
  EXPECT_THAT(Text(plan), ElementsAre("1:100+20/0", "2:0+4/1", "3:0+38/38"));
  EXPECT_THAT(plan.drawn, ElementsAre(19));
  EXPECT_THAT(plan.rules, ElementsAre(DrawRule{})) << "the engine sets them";
  EXPECT_EQ(plan.logits_rows, 39);
  EXPECT_EQ(plan.head_rows(), 40);
  CommitOnes(&scheduler, plan);
  plan = scheduler.Next();
  EXPECT_THAT(Text(plan), ElementsAre("1:120+1/0", "2:4+1/1", "3:38+32/32"));
  EXPECT_THAT(plan.drawn, ElementsAre(0));
  EXPECT_TRUE(scheduler.WantsToken(plan.spans[0]));
}

TEST(Scheduler, NoneFillsTheCacheWithoutRows) {
  Scheduler scheduler(kWide);
  MustSubmit(&scheduler, MakeRequest(1, 130, 0, LogitsMode::kNone));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:0+100/0"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:100+30/0"));
  EXPECT_EQ(scheduler.counts().done, 1);
}

TEST(Scheduler, PreemptsTheLatestAndRecomputesItsTokens) {
  SchedulerLimits limits = kWide;
  limits.pages = 4;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 62, 190));
  MustSubmit(&scheduler, MakeRequest(2, 60, 100));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:0+62/1", "2:0+60/1"));
  // Both grow to two pages each; then sequence 1 wants a third one and takes it from sequence 2.
  while (scheduler.counts().preemptions == 0) {
    const StepPlan plan = scheduler.Next();
    ASSERT_FALSE(plan.spans.empty());
    if (scheduler.counts().preemptions > 0) {
      EXPECT_THAT(Text(plan), ElementsAre("1:128+1/1"));
    }
    CommitOnes(&scheduler, plan);
  }
  const Sequence& second = *scheduler.Find(SeqId{2});
  EXPECT_EQ(second.status, SequenceStatus::kWaiting);
  EXPECT_THAT(second.pages, IsEmpty());
  EXPECT_THAT(second.state_slots, IsEmpty());
  EXPECT_EQ(second.generated(), 67);
  while (second.status == SequenceStatus::kWaiting) {
    const StepPlan plan = scheduler.Next();
    if (second.status == SequenceStatus::kRunning) {
      EXPECT_THAT(Text(plan), ElementsAre("2:0+100/0"));
    }
    CommitOnes(&scheduler, plan);
  }
  EXPECT_EQ(scheduler.Find(SeqId{1})->status, SequenceStatus::kDone);
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:100+27/1"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:127+1/1"));
}

TEST(Scheduler, PreemptionSparesTheMoreUrgent) {
  SchedulerLimits limits = kWide;
  limits.pages = 4;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 62, 190));
  Request urgent = MakeRequest(2, 60, 190);
  urgent.priority = -5;
  MustSubmit(&scheduler, urgent);
  while (scheduler.counts().preemptions == 0) ASSERT_FALSE(Step(&scheduler).empty());
  EXPECT_EQ(scheduler.Find(SeqId{1})->status, SequenceStatus::kWaiting);
  EXPECT_EQ(scheduler.Find(SeqId{2})->status, SequenceStatus::kRunning);
}

TEST(Scheduler, AdmissionLeavesAPageForEachThatMayGrow) {
  SchedulerLimits limits = kWide;
  limits.pages = 3;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 60, 60));
  MustSubmit(&scheduler, MakeRequest(2, 60, 60));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:0+60/1"));
  scheduler.Cancel(SeqId{2});
  MustSubmit(&scheduler, MakeRequest(3, 60, 4));  // never needs a second page
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:60+1/1", "3:0+60/1"));
}

TEST(Scheduler, NothingIsAdmittedInAStepThatPreempted) {
  SchedulerLimits limits = kWide;
  limits.pages = 5;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 62, 190));
  MustSubmit(&scheduler, MakeRequest(2, 60, 100));
  do {
    ASSERT_EQ(Step(&scheduler).size(), 2u);
  } while (scheduler.Find(SeqId{2})->length() < 129);
  Request urgent = MakeRequest(3, 5, 1);
  urgent.priority = -1;
  MustSubmit(&scheduler, urgent);
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:130+1/1"));
  EXPECT_EQ(scheduler.counts().preemptions, 1);
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:131+1/1", "3:0+5/1"));
}

TEST(Scheduler, AKnownPrefixIsNotComputedAgain) {
  SchedulerLimits limits = kWide;
  limits.prefix_cache = true;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 150, 2));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:0+100/0"));
  MustSubmit(&scheduler, MakeRequest(2, 140, 1));  // one page is known so far
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:100+50/1"));
  EXPECT_EQ(scheduler.Find(SeqId{2})->cached_tokens, 64);
  MustSubmit(&scheduler, MakeRequest(3, 128, 1));  // its last token is computed in any case
  MustSubmit(&scheduler, MakeRequest(4, 129, 1));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:150+1/1", "2:128+12/1", "3:64+64/1", "4:128+1/1"));
  const SchedulerCounts counts = scheduler.counts();
  EXPECT_EQ(counts.prefix_hits, 3);
  EXPECT_EQ(counts.prefix_hit_tokens, 128 + 64 + 128);
  EXPECT_EQ(counts.cached_pages, 2);
  EXPECT_EQ(counts.free_pages, limits.pages);
}

TEST(Scheduler, AScoredPromptIsComputedWhole) {
  SchedulerLimits limits = kWide;
  limits.prefix_cache = true;
  Scheduler scheduler(limits);
  for (int64_t id = 1; id <= 2; ++id) {
    MustSubmit(&scheduler, MakeRequest(id, 90, 1, LogitsMode::kAll));
    EXPECT_THAT(Step(&scheduler), ElementsAre(std::to_string(id) + ":0+90/90"));
  }
  MustSubmit(&scheduler, MakeRequest(3, 90, 1));
  EXPECT_THAT(Step(&scheduler), ElementsAre("3:64+26/1"));
}

TEST(Scheduler, StatesAreKeptAtThePromptsLastBorderAndWherePrefixesPart) {
  SchedulerLimits limits = kWide;
  limits.prefix_cache = limits.stateful = true;
  limits.snapshots = 4;
  limits.prefill_chunk = 256;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 200, 1));
  StepPlan plan = scheduler.Next();
  EXPECT_THAT(Text(plan), ElementsAre("1:0+192/0"));
  ASSERT_EQ(plan.saves.size(), 1U);
  EXPECT_EQ(plan.saves[0].from, plan.spans[0].state_slot);
  EXPECT_EQ(plan.saves[0].to, limits.max_sequences);
  CommitOnes(&scheduler, plan);
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:192+8/1"));
  Request parts = MakeRequest(2, 200, 1);
  parts.prompt[100] = 7;
  MustSubmit(&scheduler, parts);  // one page is known, and no state at its end
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:0+64/0"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:64+128/0"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:192+8/1"));
  parts.id = SeqId{3};
  parts.prompt[100] = 8;
  MustSubmit(&scheduler, parts);
  plan = scheduler.Next();
  EXPECT_THAT(Text(plan), ElementsAre("3:64+128/0"));
  ASSERT_EQ(plan.restores.size(), 1U);
  EXPECT_EQ(plan.restores[0].from, limits.max_sequences + 1);
  EXPECT_EQ(plan.restores[0].to, plan.spans[0].state_slot);
  CommitOnes(&scheduler, plan);
  EXPECT_EQ(scheduler.counts().snapshots, 4);
}

TEST(Scheduler, OfAnAnswerTheLastStateIsKept) {
  SchedulerLimits limits = kWide;
  limits.prefix_cache = limits.stateful = true;
  limits.snapshots = 8;
  limits.prefill_chunk = 256;
  Scheduler scheduler(limits);
  // One whose last step ends at a border, and one that goes on after it.
  for (const int32_t generated : {65, 165}) {
    const int64_t id = generated;
    const int64_t before = scheduler.counts().snapshots;
    Request request = MakeRequest(id, 128, generated);
    request.prompt[0] = generated;
    MustSubmit(&scheduler, request);
    while (scheduler.counts().done == 0) ASSERT_FALSE(Step(&scheduler).empty());
    EXPECT_EQ(scheduler.counts().snapshots, before + 2) << "of the prompt and of the answer";
    request.prompt = scheduler.Find(SeqId{id})->tokens;
    request.prompt.resize(request.prompt.size() + 3, 9);
    request.id = SeqId{id + 1};
    scheduler.Finish(SeqId{id});
    MustSubmit(&scheduler, request);
    const StepPlan plan = scheduler.Next();
    EXPECT_EQ(plan.spans[0].start, (128 + generated - 1) / kPageTokens * kPageTokens);
    EXPECT_EQ(plan.restores.size(), 1U);
    CommitOnes(&scheduler, plan);
    scheduler.Finish(SeqId{id + 1});
  }
}

TEST(Scheduler, AnswersUnderWayTakeHalfOfTheSlots) {
  SchedulerLimits limits = kWide;
  limits.prefix_cache = limits.stateful = true;
  limits.snapshots = 3;
  Scheduler scheduler(limits);
  for (int64_t id = 1; id <= 2; ++id) {
    Request request = MakeRequest(id, 60, 200);
    request.prompt[0] = static_cast<TokenId>(100 + id);
    MustSubmit(&scheduler, request);
  }
  while (scheduler.Find(SeqId{1})->length() < 150) ASSERT_EQ(Step(&scheduler).size(), 2U);
  EXPECT_NE(scheduler.Find(SeqId{1})->decoded, nullptr);
  EXPECT_EQ(scheduler.Find(SeqId{2})->decoded, nullptr);
  scheduler.Finish(SeqId{1});
  while (scheduler.Find(SeqId{2})->length() < 194) ASSERT_EQ(Step(&scheduler).size(), 1U);
  EXPECT_EQ(scheduler.Find(SeqId{2})->decoded->depth, 3) << "from the next border on";
}

TEST(Scheduler, ARecurrentModelWithoutSnapshotsComputesAll) {
  SchedulerLimits limits = kWide;
  limits.prefix_cache = limits.stateful = true;
  Scheduler scheduler(limits);
  for (int64_t id = 1; id <= 2; ++id) {
    MustSubmit(&scheduler, MakeRequest(id, 100, 1));
    EXPECT_THAT(Step(&scheduler), ElementsAre(std::to_string(id) + ":0+100/1"));
  }
}

TEST(Scheduler, KnownPagesGiveWayToSequences) {
  SchedulerLimits limits = kWide;
  limits.prefix_cache = true;
  limits.pages = 4;
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, MakeRequest(1, 100, 1));
  Step(&scheduler);
  Request other = MakeRequest(2, 250, 1);
  other.prompt[0] = 9;
  MustSubmit(&scheduler, other);
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:0+100/0"));
  EXPECT_EQ(scheduler.counts().prefix_evictions, 1);
}

TEST(Scheduler, ASequenceCancelledUnderWayLeavesNoSnapshotBehind) {
  SchedulerLimits limits = kWide;
  limits.prefix_cache = limits.stateful = true;
  limits.snapshots = 1;
  Scheduler scheduler(limits);
  for (int64_t id = 1; id <= 2; ++id) {
    MustSubmit(&scheduler, MakeRequest(id, 80, 1));
    const StepPlan plan = scheduler.Next();
    EXPECT_THAT(Text(plan), ElementsAre(std::to_string(id) + ":0+64/0"));
    EXPECT_EQ(plan.saves.size(), 1U);
    scheduler.Cancel(SeqId{id});
    scheduler.Commit(plan, {});
    EXPECT_EQ(scheduler.counts().snapshots, 0);
    EXPECT_EQ(scheduler.counts().free_pages, limits.pages);
  }
}

TEST(Scheduler, CancelWhileAStepIsUnderWay) {
  Scheduler scheduler(kWide);
  MustSubmit(&scheduler, MakeRequest(1, 3, 4));
  MustSubmit(&scheduler, MakeRequest(2, 3, 4));
  const StepPlan plan = scheduler.Next();
  scheduler.Cancel(SeqId{1});
  scheduler.Cancel(SeqId{77});
  EXPECT_FALSE(scheduler.WantsToken(plan.spans[0]));
  scheduler.Commit(plan, std::vector<SampledToken>{{SeqId{1}, 5}, {SeqId{2}, 6}});
  EXPECT_EQ(scheduler.Find(SeqId{2})->tokens.back(), 6);
  EXPECT_EQ(scheduler.counts().running, 1);
  EXPECT_EQ(scheduler.counts().free_pages, kWide.pages - 1);
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:3+1/1"));
}

TEST(SchedulerDeath, MisuseAborts) {
  Scheduler scheduler(kWide);
  MustSubmit(&scheduler, MakeRequest(1, 3, 4));
  EXPECT_DEATH(scheduler.Finish(SeqId{9}), "sequence 9 is unknown");
  const StepPlan plan = scheduler.Next();
  EXPECT_DEATH(scheduler.Next(), "step 0 was not committed");
  EXPECT_DEATH(scheduler.Commit(plan, {}), "token given: false");
  EXPECT_DEATH(scheduler.Commit(plan, std::vector<SampledToken>{{SeqId{1}, 5}, {SeqId{1}, 5}}), "belong to no span");
  CommitOnes(&scheduler, plan);
  EXPECT_DEATH(CommitOnes(&scheduler, plan), "step 0 of 1");
}

}  // namespace
}  // namespace trivet::sched
