// SPDX-License-Identifier: Apache-2.0
#include "engine/step_share.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace trivet::engine {
namespace {

// A prefill of positions 2 to 8 whose last three rows give logits, and a sequence that decodes position 5.
sched::StepPlan TwoSequences() {
  sched::StepPlan plan;
  plan.step = 9;
  plan.tokens = {12, 13, 14, 15, 16, 17, 18, 25};
  plan.pages = {4, 7};
  plan.logits_rows = 4;
  plan.spans = {{SeqId{1}, 3, 2, 7, 0, 0, 1, 0, 3}, {SeqId{2}, 0, 5, 1, 7, 1, 1, 3, 1}};
  return plan;
}

constexpr plan::ContextSplit kSplit{3, plan::SequenceSplit::kContiguous, 6};  // 0 0 1 1 2 2 and again
const Owner kByTwo = [](int64_t position) { return kSplit.OwnerOf(position); };
const Owner kEverybody = [](int64_t) { return comm::kEveryRank; };

std::vector<std::array<int64_t, 3>> Flat(const std::vector<comm::RowRun>& runs) {
  std::vector<std::array<int64_t, 3>> flat;
  for (const comm::RowRun& run : runs) flat.push_back({run.rank, run.begin, run.count});
  return flat;
}

TEST(StepShare, RunsCoverAllRows) {
  using List = std::vector<std::array<int64_t, 3>>;
  const StepShares shares = SharesOf(TwoSequences(), kByTwo);
  EXPECT_EQ(Flat(shares.tokens), (List{{1, 0, 2}, {2, 2, 2}, {0, 4, 2}, {1, 6, 1}, {2, 7, 1}}));
  EXPECT_EQ(Flat(shares.logits), (List{{0, 0, 2}, {1, 2, 1}, {2, 3, 1}}));
}

TEST(StepShare, ARanksShareIsAStep) {
  const sched::StepPlan share = ShareOf(TwoSequences(), kByTwo, 1);
  EXPECT_EQ(share.step, 9);
  EXPECT_EQ(share.tokens, (std::vector<TokenId>{12, 13, 18}));
  EXPECT_EQ(share.logits_rows, 1);
  ASSERT_EQ(share.spans.size(), 2U);
  EXPECT_EQ(share.spans[0].start, 2);
  EXPECT_EQ(share.spans[0].count, 2);
  EXPECT_EQ(share.spans[0].logits_count, 0);
  EXPECT_EQ(share.spans[1].start, 8);
  EXPECT_EQ(share.spans[1].count, 1);
  EXPECT_EQ(share.spans[1].token_begin, 2);
  EXPECT_EQ(share.spans[1].logits_count, 1);
  EXPECT_EQ(share.spans[1].state_slot, 3);
  const sched::StepPlan last = ShareOf(TwoSequences(), kByTwo, 2);
  EXPECT_EQ(last.tokens, (std::vector<TokenId>{14, 15, 25}));
  EXPECT_EQ(last.spans[1].seq, SeqId{2});
  EXPECT_EQ(last.spans[1].page_begin, 1);
}

TEST(StepShare, DrawnTokensBelongToWhoComputesThem) {
  sched::StepPlan plan = TwoSequences();
  for (sched::Span& span : plan.spans) span.logits_begin = span.logits_count = 0;
  plan.logits_rows = 0;
  plan.drawn = {6, 7};
  plan.rules.resize(2);
  plan.rules[0].uniform = 3;
  plan.rules[1].uniform = 4;
  using List = std::vector<std::array<int64_t, 3>>;
  EXPECT_EQ(Flat(SharesOf(plan, kByTwo).drawn), (List{{1, 0, 1}, {2, 1, 1}}));
  EXPECT_EQ(ShareOf(plan, kByTwo, 0).drawn, std::vector<int32_t>());
  EXPECT_EQ(ShareOf(plan, kByTwo, 1).drawn, std::vector<int32_t>{2});
  EXPECT_EQ(ShareOf(plan, kByTwo, 2).drawn, std::vector<int32_t>{2});
  EXPECT_EQ(ShareOf(plan, kEverybody, 0).drawn, plan.drawn);
  EXPECT_EQ(ShareOf(plan, kByTwo, 0).rules, std::vector<DrawRule>());
  EXPECT_EQ(ShareOf(plan, kByTwo, 1).rules, std::vector<DrawRule>{plan.rules[0]});
  EXPECT_EQ(ShareOf(plan, kByTwo, 2).rules, std::vector<DrawRule>{plan.rules[1]});
  EXPECT_EQ(ShareOf(plan, kEverybody, 0).rules, plan.rules);
}

TEST(StepShare, OfAllRanksIsTheStep) {
  const sched::StepPlan plan = TwoSequences(), share = ShareOf(plan, kEverybody, 2);
  EXPECT_EQ(share.tokens, plan.tokens);
  ASSERT_EQ(share.spans.size(), 2U);
  EXPECT_EQ(share.spans[0].count, 7);
  EXPECT_EQ(share.spans[0].logits_count, 3);
  EXPECT_EQ(share.spans[1].logits_begin, 3);
  EXPECT_EQ(Flat(SharesOf(plan, kEverybody).tokens), (std::vector<std::array<int64_t, 3>>{{comm::kEveryRank, 0, 8}}));
}

// Rows that a context group left to a rank are dealt to those that cut a layer with it.
TEST(StepShare, OfAShare) {
  using List = std::vector<std::array<int64_t, 3>>;
  const plan::RowSplit rows{kSplit, 2, true};
  const Owner keeper = [&](int64_t position) { return rows.OwnerOf(position).rank; };
  const sched::StepPlan share = ShareOf(TwoSequences(), kByTwo, 1);  // positions 2 and 3, and 8
  EXPECT_EQ(Flat(SharesOf(share, keeper).tokens), (List{{0, 0, 1}, {1, 1, 1}, {0, 2, 1}}));
  EXPECT_EQ(Flat(SharesOf(share, keeper).logits), (List{{0, 0, 1}}));
  EXPECT_EQ(ShareOf(share, keeper, 0).tokens, (std::vector<TokenId>{12, 18}));
  EXPECT_EQ(ShareOf(share, keeper, 1).tokens, (std::vector<TokenId>{13}));
}

}  // namespace
}  // namespace trivet::engine
