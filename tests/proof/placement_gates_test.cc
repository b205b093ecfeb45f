// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "proof/gates.h"
#include "proof/synthetic.h"

namespace trivet::proof {
namespace {

Verdict Of(const Gate& gate) { return gate ? gate->verdict : Verdict::kPass; }

// Ranks that cut the width of their experts: digests of parts add up to the checkpoint's.
RecordedRun CutWidth() {
  SyntheticOptions options;
  options.sizes = {2, 1, 1, 1, 1};
  RecordedRun run = MakeSynthetic(options);
  Json& channels = run.layout["experts"]["channels"];
  channels = Json::array({Json::array({0, 10}), Json::array({10, kSyntheticHidden})});
  for (Json& entry : run.ranks[1].weights["experts"]) {
    const Digest part = Hash128(DumpJson(entry));
    entry["digest"] = Hex(part);
  }
  for (size_t i = 0; i < run.ranks[0].weights["experts"].size(); ++i) {
    Json& first = run.ranks[0].weights["experts"][i];
    const Digest whole = *ParseDigest(first["digest"].get<std::string>());
    const Digest part = *ParseDigest(run.ranks[1].weights["experts"][i]["digest"].get<std::string>());
    // whole - part modulo 2^128
    const uint64_t low = whole.low - part.low;
    first["digest"] = Hex({low, whole.high - part.high - (whole.low < part.low ? 1 : 0)});
  }
  return run;
}

TEST(CheckSlots, PartsOfAnExpertAddUp) {
  RecordedRun run = CutWidth();
  EXPECT_EQ(Of(CheckSlots(run)), Verdict::kPass);
  run.layout["experts"]["channels"][1][1] = kSyntheticHidden - 1;
  EXPECT_EQ(Of(CheckSlots(run)), Verdict::kIncompleteArtifact);
  run = CutWidth();
  run.ranks[1].weights["experts"][3]["digest"] = Hex({1, 2});
  const Gate gate = CheckSlots(run);
  ASSERT_EQ(Of(gate), Verdict::kSlotWeightDigestMismatch);
  EXPECT_EQ(gate->where["expert"], 3);
  EXPECT_EQ(gate->where["ranks"], "0, 1");
}

TEST(CheckSlots, AMissingRankIsAnotherGatesFinding) {
  RecordedRun run = CutWidth();
  run.ranks.pop_back();
  EXPECT_EQ(Of(CheckSlots(run)), Verdict::kPass);
}

TEST(CheckKnobs, WithoutAnyNothingApplied) {
  RecordedRun run = MakeSynthetic({});
  run.run["knobs"] = Json::array();
  EXPECT_EQ(Of(CheckKnobs(run)), Verdict::kKnobNotApplied);
  run.run.erase("knobs");
  EXPECT_EQ(Of(CheckKnobs(run)), Verdict::kKnobNotApplied);
}

TEST(CheckPlacements, AMapOfAnotherModel) {
  RecordedRun run = MakeSynthetic({});
  run.run["router"]["experts"] = kSyntheticExperts + 1;
  EXPECT_EQ(Of(CheckPlacements(run)), Verdict::kInvalidPlacementMap);
  run = MakeSynthetic({});
  run.placements.clear();
  run.ranks[0].dispatches.clear();
  EXPECT_EQ(Of(CheckPlacements(run)), Verdict::kInvalidPlacementMap);
}

// The map of a step is one for all ranks.
TEST(CheckPlacements, OneStepHasOneMap) {
  SyntheticOptions options;
  options.sizes = {2, 1, 1, 1, 1};
  RecordedRun run = MakeSynthetic(options);
  run.placements.push_back(run.placements[0]);
  run.run["placement"].push_back(run.run["placement"][0]);
  for (RankRun& rank : run.ranks) {
    for (record::DispatchRecord& row : rank.dispatches) row.version = row.step > 0 ? 1 : 0;
  }
  EXPECT_EQ(Of(CheckPlacements(run)), Verdict::kPass) << "a new map from the second step on";
  for (record::DispatchRecord& row : run.ranks[1].dispatches) row.version = 0;
  EXPECT_EQ(Of(CheckPlacements(run)), Verdict::kPlacementMapVersionMismatch);
}

}  // namespace
}  // namespace trivet::proof
