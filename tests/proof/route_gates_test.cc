// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "proof/gates.h"
#include "proof/synthetic.h"
#include "record/run_log.h"

namespace trivet::proof {
namespace {

Verdict Of(const Gate& gate) { return gate ? gate->verdict : Verdict::kPass; }

RecordedRun Groups() {
  SyntheticOptions options;
  options.sizes = {2, 1, 1, 1, 2};
  options.rank_order.push_back(Dimension::kEp);
  return MakeSynthetic(options);
}

// Misplaced before missing before duplicated, whatever rank has which.
TEST(CheckExecution, HasAnOrder) {
  RecordedRun run = Groups();
  EXPECT_EQ(Of(CheckExecution(run)), Verdict::kPass);
  std::vector<record::ExecuteRecord>& done = run.ranks[0].executions;
  done.insert(done.begin(), done[0]);
  EXPECT_EQ(Of(CheckExecution(run)), Verdict::kExecutionDuplicated);
  run.ranks[2].executions.pop_back();
  EXPECT_EQ(Of(CheckExecution(run)), Verdict::kExecutionMissing);
  run.ranks[3].executions.back().local_slot ^= 1;
  EXPECT_EQ(Of(CheckExecution(run)), Verdict::kExecutionMisplaced);
}

TEST(CheckExecution, OnAnotherRankIsMisplaced) {
  RecordedRun run = Groups();
  run.ranks[2].executions.push_back(run.ranks[0].executions.back());
  run.ranks[0].executions.pop_back();
  std::sort(run.ranks[2].executions.begin(), run.ranks[2].executions.end(), [](const auto& a, const auto& b) {
    return std::tie(a.layer, a.token, a.slot, a.step) < std::tie(b.layer, b.token, b.slot, b.step);
  });
  EXPECT_EQ(Of(CheckExecution(run)), Verdict::kExecutionMisplaced);
}

TEST(CheckExecution, WhatWasChosenWasDispatched) {
  RecordedRun run = Groups();
  run.ranks[1].dispatches.erase(run.ranks[1].dispatches.begin() + 3);
  EXPECT_EQ(Of(CheckExecution(run)), Verdict::kIncompleteArtifact);
}

TEST(CheckRouter, DigestsMarkNumbersThatAreNotFinite) {
  SyntheticOptions options;
  options.level = record::Level::kDigest;
  RecordedRun run = MakeSynthetic(options);
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kPass);
  run.ranks[0].decisions[4].finite = 0;
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kNonFinite);
}

TEST(CheckRouter, AnExpertThatDoesNotExistIsNoChoice) {
  RecordedRun run = MakeSynthetic({});
  const std::span<record::RouteSlot> slots = run.ranks[0].routes.Slots(3);
  slots[1].expert = kSyntheticExperts;
  run.ranks[0].decisions[3].digest = record::DecisionDigest(SyntheticDomain(), run.ranks[0].routes.heads[3], slots);
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kInvalidDiscretePlan);
}

TEST(CheckRouter, ForcedDecisionsNeedARunThatKnowsOfThem) {
  RecordedRun run = MakeSynthetic({});
  run.ranks[0].routes.heads[3].flags = record::kForced;
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kInvalidDiscretePlan);
  run.run["routes"] = {{"content", "0"}, {"forced", 1}, {"other", 0}};
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kPass);
}

TEST(CheckRouter, ARankWithoutDecisionsSaysNothingOfThem) {
  RecordedRun run = MakeSynthetic({});
  run.ranks[0].env.erase("chosen_among");
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kIncompleteArtifact);
  run.ranks[0].decisions.clear();
  run.ranks[0].routes = {};
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kPass);
}

// Padding stands between decisions and their digests and belongs to neither.
TEST(CheckRouter, PaddingIsNoDecision) {
  RecordedRun run = MakeSynthetic({});
  run.ranks[0].routes.heads[0].token = record::kPadding;
  run.ranks[0].decisions[0].token = record::kPadding;
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kPass);
}

TEST(CheckRouter, DecisionsAndDigestsAreTheSameSet) {
  RecordedRun run = MakeSynthetic({});
  run.ranks[0].decisions.pop_back();
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kIncompleteArtifact);
  run = MakeSynthetic({});
  run.ranks[0].routes.heads.pop_back();
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kIncompleteArtifact);
  run = MakeSynthetic({});
  run.run["router"]["gate"]["hidden"] = kSyntheticHidden / 2;
  EXPECT_EQ(Of(CheckRouter(run)), Verdict::kGateShardingMismatch);
}

}  // namespace
}  // namespace trivet::proof
