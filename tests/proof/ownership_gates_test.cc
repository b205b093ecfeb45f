// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "proof/gates.h"
#include "proof/synthetic.h"

namespace trivet::proof {
namespace {

using testing::HasSubstr;

Attribution By(const TokenLayout& layout, const std::function<uint64_t(const Coordinates&)>& value) {
  std::vector<int64_t> ranks;
  std::vector<Digest> values;
  for (int64_t rank = 0; rank < layout.world; ++rank) {
    ranks.push_back(rank);
    values.push_back({value(layout.At(rank)), 0});
  }
  return Attribute(layout, ranks, values);
}

TEST(Attribute, NamesTheDimensionThatValuesFollow) {
  SyntheticOptions options;
  options.sizes = {2, 1, 2, 1, 2};
  options.dp_of = {0, 1};
  options.rank_order.push_back(Dimension::kEp);
  const TokenLayout layout = MakeSynthetic(options).tokens;
  EXPECT_EQ(By(layout, [](const Coordinates& at) { return at[0]; }).dimensions, (std::vector{Dimension::kTp}));
  EXPECT_EQ(By(layout, [](const Coordinates& at) { return at[4]; }).dimensions, (std::vector{Dimension::kEp}));
  const Attribution odd = By(layout, [](const Coordinates& at) { return at[0] * at[2] * at[4]; });
  EXPECT_TRUE(odd.dimensions.empty());
  EXPECT_EQ(odd.isolated, 7);
  EXPECT_THAT(odd.Text(), HasSubstr("rank 7 alone"));
  const Attribution mixed = By(layout, [](const Coordinates& at) { return at[0] ^ at[2]; });
  EXPECT_TRUE(mixed.dimensions.empty());
  EXPECT_EQ(mixed.isolated, -1);
}

// Where expert groups are ranks of tp, the two cannot be told apart, and the text says so.
TEST(Attribute, InseparableDimensionsAreAllNamed) {
  SyntheticOptions options;
  options.sizes = {2, 1, 1, 1, 2};
  options.expert_group_over = {Dimension::kTp};
  const Attribution both = By(MakeSynthetic(options).tokens, [](const Coordinates& at) { return at[0]; });
  EXPECT_EQ(both.dimensions, (std::vector{Dimension::kTp, Dimension::kEp}));
  EXPECT_THAT(both.Text(), HasSubstr("inseparable"));
}

TEST(Attribute, WhatNoDimensionExplainsIsSaidSo) {
  SyntheticOptions options;
  options.sizes = {2, 1, 2, 1, 1};
  options.dp_of = {0, 1};
  const Attribution two = By(MakeSynthetic(options).tokens, [](const Coordinates& at) { return at[0] + 2 * at[2]; });
  EXPECT_EQ(two.isolated, -1) << "four values of four ranks: nobody is alone";
  EXPECT_TRUE(two.dimensions.empty());
  EXPECT_EQ(two.Text(), "no one dimension");
  EXPECT_FALSE(two.ToJson().contains("isolated_rank"));
  const Attribution odd = By(MakeSynthetic(options).tokens, [](const Coordinates& at) { return at[0] * at[2]; });
  EXPECT_EQ(odd.ToJson()["isolated_rank"], 3);
}

TEST(PlaceName, ALayerIsNamedWhereThereIsOne) {
  const RecordedRun run = MakeSynthetic({});
  EXPECT_EQ(PlaceName(run, 2, record::Site::kMixer), "layer 2 resid1");
  EXPECT_EQ(PlaceName(run, -1, record::Site::kEmbed), "embed");
  EXPECT_EQ(PlaceName(run, run.tokens.layers(), record::Site::kLogits), "logits");
}

TEST(CheckRankSet, RanksThatAreNotOfTheRunAreStale) {
  SyntheticOptions options;
  options.sizes = {3, 1, 1, 1, 1};
  const auto of = [&](const std::function<void(RecordedRun*)>& edit) {
    RecordedRun run = MakeSynthetic(options);
    edit(&run);
    const Gate gate = CheckRankSet(run);
    return gate ? gate->verdict : Verdict::kPass;
  };
  EXPECT_EQ(of([](RecordedRun*) {}), Verdict::kPass);
  EXPECT_EQ(of([](RecordedRun* run) { run->ranks[1].env["ranks"] = 4; }), Verdict::kStaleRunMetadata);
  EXPECT_EQ(of([](RecordedRun* run) { run->ranks[2].rank = run->ranks[2].folder = 3; }), Verdict::kStaleRunMetadata);
  EXPECT_EQ(of([](RecordedRun* run) { run->ranks[2].rank = run->ranks[2].folder = -1; }), Verdict::kStaleRunMetadata);
  EXPECT_EQ(of([](RecordedRun* run) { std::swap(run->ranks[1].folder, run->ranks[2].folder); }),
            Verdict::kStaleRunMetadata);
  // ByRank leaves out what no rank of the run is.
  RecordedRun run = MakeSynthetic(options);
  run.ranks[2].rank = 7;
  EXPECT_EQ(ByRank(run)[2], nullptr);
  run.ranks[2].rank = -1;
  EXPECT_EQ(ByRank(run).size(), 3U);
}

TEST(CheckOwnership, SaysWhereAForeignDecisionBelongs) {
  SyntheticOptions options;
  options.sizes = {1, 2, 1, 1, 1};
  RecordedRun run = MakeSynthetic(options);
  run.ranks[1].decisions.insert(run.ranks[1].decisions.begin(), run.ranks[0].decisions[0]);
  const Gate gate = CheckOwnership(run);
  ASSERT_TRUE(gate);
  EXPECT_EQ(gate->where["rank"], 1);
  EXPECT_EQ(gate->where["carriers"], Json::array({0}));
  EXPECT_EQ(gate->where["dimensions"], Json::array({"cp"}));
}

TEST(CheckReplicas, TheEarliestDisagreementIsNamed) {
  SyntheticOptions options;
  options.sizes = {2, 1, 1, 1, 1};
  RecordedRun run = MakeSynthetic(options);
  run.ranks[1].decisions[7].digest.low ^= 1;
  for (record::BoundRecord& bound : run.ranks[1].bounds) {
    if (bound.layer == 2) bound.digest.low ^= 1;
  }
  Gate gate = CheckReplicas(run);
  ASSERT_TRUE(gate);
  EXPECT_EQ(gate->verdict, Verdict::kRouteSemanticFingerprintMismatch);
  for (record::BoundRecord& bound : run.ranks[0].bounds) {
    if (bound.layer == 0 && bound.site == record::Site::kMixer) bound.digest.low ^= 1;
  }
  gate = CheckReplicas(run);
  EXPECT_EQ(gate->verdict, Verdict::kBoundaryDigestMismatch);
  EXPECT_EQ(gate->where["layer"], 0);
}

}  // namespace
}  // namespace trivet::proof
