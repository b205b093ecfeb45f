// SPDX-License-Identifier: Apache-2.0
#include "plan/axis_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "plan/leaf.h"
#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

using ::testing::ElementsAre;

const AxisRule& FindAxis(const std::vector<AxisRule>& axes, const std::string& name) {
  for (const AxisRule& axis : axes) {
    if (axis.axis == name) return axis;
  }
  CHECK_MSG(false, name);
  return axes.front();
}

std::vector<std::string> Words(const AxisRule& axis) {
  std::vector<std::string> words;
  for (const CutRule& rule : axis.cuts) words.push_back(rule.word);
  return words;
}

double Price(const AxisRule& axis, const CutRule& rule, const std::vector<Share>& shares) {
  std::vector<RankShard> shards(shares.size());
  for (size_t r = 0; r < shares.size(); ++r) rule.fill(static_cast<int64_t>(r), shares[r], &shards[r]);
  return axis.price(shards);
}

// Every way to cut the units from `begin` on among the ranks not yet in `shares`; keeps the lowest price.
void Exhaust(const AxisRule& axis, const CutRule& rule, size_t ranks, std::vector<Share>* shares, double* best) {
  const int64_t begin = shares->empty() ? 0 : shares->back().begin + shares->back().count;
  const int64_t left = rule.units.padded - begin;
  if (shares->size() + 1 == ranks) {
    shares->push_back({begin, left, left});
    *best = std::min(*best, Price(axis, rule, *shares));
    shares->pop_back();
    return;
  }
  for (int64_t count = 0; count <= left; ++count) {
    shares->push_back({begin, count, count});
    Exhaust(axis, rule, ranks, shares, best);
    shares->pop_back();
  }
}

TEST(AxisRules, DemoAxesAndUnits) {
  const Geometry demo = DemoGeometry();
  const std::vector<AxisRule> axes = AxisRules(demo, 3, 0);
  ASSERT_EQ(axes.size(), 5u);
  EXPECT_THAT(Words(FindAxis(axes, "attn")), ElementsAre("uneven", "overlap", "pad", "replicate"));
  EXPECT_THAT(Words(FindAxis(axes, "experts")), ElementsAre("whole", "width", "whole-pad", "width-pad", "replicate"));
  EXPECT_THAT(Words(FindAxis(axes, "vocab")), ElementsAre("uneven", "pad", "replicate"));
  EXPECT_EQ(FindAxis(axes, "attn").cuts[0].units.stock, 2);
  EXPECT_EQ(FindAxis(axes, "attn").cuts[1].units.stock, 8);
  EXPECT_EQ(FindAxis(axes, "gdn").cuts[0].units.stock, 4);
  EXPECT_EQ(FindAxis(axes, "experts").cuts[1].units.stock, 3);
  EXPECT_EQ(FindAxis(axes, "shared").cuts[0].units.stock, 5);
  EXPECT_EQ(FindAxis(axes, "vocab").cuts[0].units.stock, 128);
}

TEST(AxisRules, OverlapNeedsGroupsToSplitOrSpareRanks) {
  Geometry geometry = DemoGeometry();
  geometry.attention.kv_heads = 8;
  EXPECT_THAT(Words(FindAxis(AxisRules(geometry, 8, 0), "attn")), ElementsAre("uneven", "pad", "replicate"));
  EXPECT_THAT(Words(FindAxis(AxisRules(geometry, 9, 0), "attn")), ElementsAre("uneven", "overlap", "pad", "replicate"));
}

TEST(AxisRules, WordsOfEveryAxisAreLegalSomewhere) {
  const Geometry demo = DemoGeometry();
  for (const AxisRule& axis : AxisRules(demo, 3, 0)) EXPECT_EQ(Words(axis), CutWords(axis.axis)) << axis.axis;
  for (const std::string& axis : AxisNames()) EXPECT_FALSE(CutWords(axis).empty()) << axis;
  EXPECT_TRUE(CutWords("layers").empty());
}

TEST(AxisRules, OverlapMapsHeadsToTheOwnersTheyTouch) {
  const Geometry demo = DemoGeometry();
  const std::vector<AxisRule> axes = AxisRules(demo, 3, 0);
  RankShard shard;
  FindAxis(axes, "attn").cuts[1].fill(0, {3, 3, 3}, &shard);
  EXPECT_EQ(shard.attention.q_begin, 3);
  EXPECT_EQ(shard.attention.kv_begin, 0);
  EXPECT_EQ(shard.attention.kv_heads, 2);
  EXPECT_THAT(shard.attention.q_to_kv, ElementsAre(0, 1, 1));
}

TEST(AxisRules, DummyHeadsUseTheirOwnDummyOwner) {
  const Geometry demo = DemoGeometry();
  const std::vector<AxisRule> axes = AxisRules(demo, 3, 0);
  const AxisRule& gdn = FindAxis(axes, "gdn");
  std::vector<RankShard> shards(3);
  const std::vector<Share> shares = Deal(gdn, gdn.cuts[2], 3);
  for (size_t r = 0; r < 3; ++r) gdn.cuts[2].fill(static_cast<int64_t>(r), shares[r], &shards[r]);
  EXPECT_EQ(shards[2].delta_net.v_heads, 4);
  EXPECT_EQ(shards[2].delta_net.v_real, 0);
  EXPECT_EQ(shards[2].delta_net.k_real, 0);
  EXPECT_THAT(shards[2].delta_net.v_to_k, ElementsAre(0, 0, 1, 1));
}

TEST(AxisRules, RanksWithoutChannelsHaveNoSlots) {
  const Geometry demo = DemoGeometry();
  const std::vector<AxisRule> axes = AxisRules(demo, 5, 0);
  RankShard shard;
  FindAxis(axes, "experts").cuts[1].fill(0, {3, 0, 0}, &shard);
  EXPECT_TRUE(shard.experts.slots.empty());
  EXPECT_EQ(shard.experts.channels.width, 0);
}

TEST(AxisRules, WidthsAreWholeLeavesAndRealStopsAtTheEnd) {
  Geometry geometry = DemoGeometry();
  geometry.moe.shared_width = 100;  // seven leaves of 16, the last one ragged
  const std::vector<AxisRule> axes = AxisRules(geometry, 2, 0);
  RankShard shard;
  FindAxis(axes, "shared").cuts[0].fill(0, {4, 3, 3}, &shard);
  EXPECT_EQ(shard.shared.begin, 64);
  EXPECT_EQ(shard.shared.width, 48);
  EXPECT_EQ(shard.shared.real, 36);
}

TEST(AxisRules, NoContiguousDealOfAnAxisIsCheaper) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 12; ++round) {
    Geometry geometry = RandomGeometry(&random);
    geometry.vocab = 1 + geometry.vocab % 200;
    for (int64_t ranks = 1; ranks <= 4; ++ranks) {
      for (const AxisRule& axis : AxisRules(geometry, ranks, 0)) {
        for (const CutRule& rule : axis.cuts) {
          if (rule.cut != Cut::kUneven && rule.cut != Cut::kOverlap) continue;
          double best = std::numeric_limits<double>::infinity();
          std::vector<Share> shares;
          Exhaust(axis, rule, static_cast<size_t>(ranks), &shares, &best);
          EXPECT_LE(Price(axis, rule, Deal(axis, rule, ranks)), best * (1 + 1e-9))
              << axis.axis << "=" << rule.word << " on " << ranks;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trivet::plan
