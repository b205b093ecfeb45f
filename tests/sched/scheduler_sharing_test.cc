// SPDX-License-Identifier: Apache-2.0
// Prompts with a common beginning that are there at the same time: one computes it, the others wait and go on behind
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>
#include <string>

#include "sched/scheduler.h"
#include "tests/sched/driving.h"

namespace trivet::sched {
namespace {

using ::testing::ElementsAre;

constexpr SchedulerLimits kWide = {.max_sequences = 8,
                                   .max_step_tokens = 256,
                                   .prefill_chunk = 100,
                                   .prefill_budget = 256,
                                   .max_logits_rows = 256,
                                   .pages = 200,
                                   .max_context = 4000,
                                   .prefix_cache = true};

SchedulerLimits Stateful(int32_t snapshots) {
  SchedulerLimits limits = kWide;
  limits.stateful = true;
  limits.snapshots = snapshots;
  return limits;
}

// A prompt of `length` tokens 0, 1, 2, ... with another token at `other`, where it parts from those without.
Request Prompt(int64_t id, int32_t length, int32_t other = -1) {
  Request request;
  request.id = SeqId{id};
  request.prompt.resize(static_cast<size_t>(length));
  std::iota(request.prompt.begin(), request.prompt.end(), 0);
  if (other >= 0) request.prompt[static_cast<size_t>(other)] = static_cast<TokenId>(5000 + id);
  request.max_new_tokens = 1;
  return request;
}

// One step: "id:start+count" for each span.
std::vector<std::string> Step(Scheduler* scheduler) {
  const StepPlan plan = scheduler->Next();
  CommitOnes(scheduler, plan);
  std::vector<std::string> text;
  for (const Span& span : plan.spans) {
    text.push_back(std::to_string(static_cast<int64_t>(span.seq)) + ":" + std::to_string(span.start) + "+" +
                   std::to_string(span.count));
  }
  return text;
}

TEST(SchedulerSharing, TheSecondOfTwoTakesWhatTheFirstComputes) {
  Scheduler scheduler(kWide);
  MustSubmit(&scheduler, Prompt(1, 250));
  MustSubmit(&scheduler, Prompt(2, 220));
  MustSubmit(&scheduler, Prompt(3, 60));  // shares no whole page
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:0+100", "3:0+60"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:100+100"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:200+50", "2:192+28"));
  EXPECT_EQ(scheduler.Find(SeqId{2})->cached_tokens, 192);
  EXPECT_EQ(scheduler.counts().prefix_hits, 1);
  EXPECT_EQ(scheduler.counts().prefix_hit_tokens, 192);
  EXPECT_EQ(scheduler.counts().free_pages, kWide.pages);
}

TEST(SchedulerSharing, AnotherComputesOnWhenTheFirstLeaves) {
  Scheduler scheduler(kWide);
  for (int64_t id = 1; id <= 3; ++id) MustSubmit(&scheduler, Prompt(id, 250));
  const StepPlan plan = scheduler.Next();
  scheduler.Cancel(SeqId{1});
  CommitOnes(&scheduler, plan);
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:0+100")) << "what was under way is lost";
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:100+100"));
  scheduler.Cancel(SeqId{2});
  EXPECT_THAT(Step(&scheduler), ElementsAre("3:192+58")) << "what was committed is known";
}

TEST(SchedulerSharing, WhoScoresNeitherWaitsNorLeads) {
  Scheduler scheduler(kWide);
  Request scored = Prompt(1, 90);
  scored.logits = LogitsMode::kAll;
  MustSubmit(&scheduler, scored);
  MustSubmit(&scheduler, Prompt(2, 90));
  scored.id = SeqId{3};
  MustSubmit(&scheduler, scored);
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:0+90", "2:0+90", "3:0+76"));
}

TEST(SchedulerSharing, AStateIsKeptWhereTwoPart) {
  SchedulerLimits limits = Stateful(8);
  limits.max_step_tokens = 100;  // the first prompt leaves no token to the others, who come in nevertheless
  Scheduler scheduler(limits);
  MustSubmit(&scheduler, Prompt(1, 250));
  MustSubmit(&scheduler, Prompt(2, 250, 80));
  MustSubmit(&scheduler, Prompt(3, 250, 160));
  const StepPlan first = scheduler.Next();
  ASSERT_EQ(first.spans.size(), 1U);
  EXPECT_EQ(first.spans[0].count, 64) << "where the second parts from it";
  EXPECT_EQ(first.saves.size(), 1U);
  CommitOnes(&scheduler, first);
  const StepPlan second = scheduler.Next();
  ASSERT_EQ(second.spans.size(), 2U);
  EXPECT_EQ(second.spans[0].count, 64) << "where the third parts from it";
  EXPECT_EQ(second.spans[1].start, 64);
  ASSERT_EQ(second.restores.size(), 2U) << "the third waits further on, where it would go on without the first";
  EXPECT_EQ(second.restores[0].from, first.saves[0].to);
  EXPECT_EQ(second.restores[0].to, second.spans[1].state_slot);
  CommitOnes(&scheduler, second);
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:128+64", "2:100+36"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("1:192+58", "2:136+42"));
  EXPECT_THAT(Step(&scheduler), ElementsAre("2:178+14", "3:128+64"));
}

TEST(SchedulerSharing, WithoutASlotForTheStateEachComputesItsOwn) {
  Scheduler scheduler(Stateful(1));
  MustSubmit(&scheduler, Prompt(1, 100));
  MustSubmit(&scheduler, Prompt(2, 100, 70));
  MustSubmit(&scheduler, Prompt(3, 300, 0));  // takes the only slot in the same step, or finds none
  MustSubmit(&scheduler, Prompt(4, 300, 80));
  int steps = 0;
  while (!Step(&scheduler).empty()) ASSERT_LT(++steps, 40);
  for (int64_t id = 1; id <= 4; ++id) EXPECT_EQ(scheduler.Find(SeqId{id})->status, SequenceStatus::kDone);
}

// Follows what is computed: every position of a whole page, the one with a prompt's last token left out, at most once
// for each beginning that the page ends.
class Once {
 public:
  void Add(const Scheduler& scheduler, const StepPlan& plan) {
    for (const Span& span : plan.spans) {
      const Sequence& sequence = *scheduler.Find(span.seq);
      const int32_t whole = (sequence.prompt_tokens - 1) / kPageTokens * kPageTokens;
      for (int32_t at = span.start; at < std::min(whole, span.start + span.count); ++at) {
        const int32_t page_end = (at / kPageTokens + 1) * kPageTokens;
        const std::vector<TokenId> beginning(sequence.tokens.begin(), sequence.tokens.begin() + page_end);
        EXPECT_TRUE(computed_.emplace(at, beginning).second)
            << "sequence " << static_cast<int64_t>(span.seq) << ", position " << at;
      }
    }
  }

 private:
  std::set<std::pair<int32_t, std::vector<TokenId>>> computed_;
};

TEST(SchedulerSharing, NoCommonPageIsComputedTwice) {
  for (uint32_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    std::mt19937 random(seed);
    const auto between = [&](int32_t low, int32_t high) {
      return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
    };
    SchedulerLimits limits = seed % 2 == 0 ? Stateful(32) : kWide;
    limits.prefill_chunk = between(1, 300);
    limits.max_step_tokens = between(8, 300);
    Scheduler scheduler(limits);
    // Every prompt begins as an earlier one does, for a page at least.
    std::vector<Request> requests = {Prompt(0, between(65, 600))};
    for (int64_t id = 1; id < 8; ++id) {
      Request request = requests[random() % requests.size()];
      request.id = SeqId{id};
      request.prompt.resize(static_cast<size_t>(between(64, static_cast<int32_t>(request.prompt.size()))));
      for (int32_t more = between(1, 200); more > 0; --more) {
        request.prompt.push_back(static_cast<TokenId>(1000 * id + more));
      }
      requests.push_back(std::move(request));
    }
    for (const Request& request : requests) MustSubmit(&scheduler, request);
    Once once;
    for (StepPlan plan = scheduler.Next(); !plan.spans.empty(); plan = scheduler.Next()) {
      once.Add(scheduler, plan);
      CommitOnes(&scheduler, plan);
    }
    EXPECT_EQ(scheduler.counts().done, 8);
    EXPECT_EQ(scheduler.counts().prefix_hits, 7);
    EXPECT_EQ(scheduler.counts().free_pages, limits.pages);
  }
}

}  // namespace
}  // namespace trivet::sched
