// SPDX-License-Identifier: Apache-2.0
#include "plan/part_cost.h"

#include <gtest/gtest.h>

#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

TEST(PartCost, DemoPartsByHand) {
  const Geometry demo = DemoGeometry();
  AttentionShard heads;
  heads.q_heads = 3;
  heads.kv_heads = 2;
  // Query and gate 2 x 3, output 3, keys and values 2 x 2 heads of 64 x 256, two bytes each.
  EXPECT_EQ(AttentionWeightBytes(demo, heads, {}), (6 + 3 + 4) * 64 * 256 * 2);
  EXPECT_EQ(KvTokenBytes(demo, heads, {}), 2 * 2 * 64 * 4);
  DeltaNetShard net;
  net.v_heads = 2;
  net.k_heads = 1;
  const int64_t rows = 2 * 64 + 2 * 2 * 64 + 2 * 2;
  const int64_t vectors = (2 * 64 + 2 * 64) * 4 + 2 * 2;
  EXPECT_EQ(DeltaNetWeightBytes(demo, net, {}), (rows + 128) * 256 * 2 + vectors * 4);
  EXPECT_EQ(StateBytes(demo, net), (2 * 64 * 64 + 3 * (2 * 64 + 2 * 64)) * 4);
  EXPECT_EQ(GatedMlpBytes(demo, 32, 2), 3 * 32 * 256 * 2);
  EXPECT_EQ(GatedMlpBytes(demo, 32, 0.5), 3 * 32 * 256 / 2);
  EXPECT_EQ(VocabBytes(demo, 32, 2), 32 * 256 * 2);
  // Every part has elements of its own size.
  ElementBytes sizes;
  sizes.matrix = {1, 3, 5, 7, 11, 13, 17};
  EXPECT_EQ(AttentionWeightBytes(demo, heads, sizes), (6 + 3 + 4) * 64 * 256 * 3);
  EXPECT_EQ(DeltaNetWeightBytes(demo, net, sizes), (rows + 128) * 256 * 5 + vectors * 4);
  ExpertShard experts;
  experts.slots = {8};
  experts.channels = {0, 96, 96};
  EXPECT_EQ(ExpertWeightBytes(demo, experts, sizes), 3 * 96 * 256 * 11);
}

TEST(PartCost, DummySlotsHoldNothing) {
  const Geometry demo = DemoGeometry();
  ExpertShard shard;
  shard.slots = {8, 9, -1, -1};
  shard.channels = {0, 96, 96};
  EXPECT_EQ(HeldExperts(shard), 2);
  EXPECT_EQ(ExpertWeightBytes(demo, shard, {}), 2 * GatedMlpBytes(demo, 96, 2));
  EXPECT_DOUBLE_EQ(ExpertStepBytes(demo, shard, {}), 2 * GatedMlpBytes(demo, 96, 2) * 2 / 10);
}

TEST(PartCost, BusiestRankOfWholeExpertsIsTheExpectedLargest) {
  const Geometry demo = DemoGeometry();
  std::vector<RankShard> shards(2);
  shards[0].experts = {{0, 1, 2, 3, 4}, {0, 96, 96}};
  shards[1].experts = {{5, 6, 7, 8, 9}, {0, 96, 96}, 1};
  // Two of ten: both on one rank in 20 of 45 draws.
  EXPECT_NEAR(BusiestExpertBytes(demo, shards, {}), (1 + 20.0 / 45) * GatedMlpBytes(demo, 96, 2), 1e-6);
}

// Two groups of 5 experts, one of them on two ranks: of two drawn experts, both are on the single rank in 10 of 45
// draws, one in 25, none in 10, and then the wider of the two ranks reads both.
TEST(PartCost, BusiestRankOfGroupsIsTheWidestOfTheGroupWithTheMost) {
  const Geometry demo = DemoGeometry();
  std::vector<RankShard> shards(3);
  shards[0].experts = {{0, 1, 2, 3, 4}, {0, 64, 64}, 0};
  shards[1].experts = {{0, 1, 2, 3, 4}, {64, 32, 32}, 0};
  shards[2].experts = {{5, 6, 7, 8, 9}, {0, 96, 96}, 1};
  const double channels = (10 * 192 + 25 * 96 + 10 * 128) / 45.0;
  EXPECT_NEAR(BusiestExpertBytes(demo, shards, {}), channels * GatedMlpBytes(demo, 1, 2), 1e-6);
}

TEST(PartCost, BusiestRankOfCutChannelsIsTheWidest) {
  const Geometry demo = DemoGeometry();
  std::vector<RankShard> shards(2);
  shards[0].experts = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 64, 64}};
  shards[1].experts = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {64, 32, 32}};
  EXPECT_NEAR(BusiestExpertBytes(demo, shards, {}), 2 * GatedMlpBytes(demo, 64, 2), 1e-6);
}

}  // namespace
}  // namespace trivet::plan
