// SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plan/shard_map.h"
#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

// Groups that hold so many experts, each of weight 1.
std::vector<ExpertGroup> Groups(const std::vector<int64_t>& held) {
  std::vector<ExpertGroup> groups;
  for (const int64_t count : held) groups.push_back({count, 1});
  return groups;
}

// Counts every set of `top_k` of the experts.
double BruteForce(const std::vector<ExpertGroup>& groups, int64_t top_k) {
  std::vector<size_t> group_of;
  for (size_t g = 0; g < groups.size(); ++g) group_of.insert(group_of.end(), static_cast<size_t>(groups[g].held), g);
  double total = 0;
  double sets = 0;
  for (uint32_t set = 0; set < (1u << group_of.size()); ++set) {
    if (__builtin_popcount(set) != top_k) continue;
    std::vector<int64_t> routed(groups.size(), 0);
    for (size_t e = 0; e < group_of.size(); ++e) routed[group_of[e]] += ((set >> e) & 1) * groups[group_of[e]].weight;
    total += static_cast<double>(*std::max_element(routed.begin(), routed.end()));
    sets += 1;
  }
  return total / sets;
}

Layout Make(const Geometry& geometry, const LayoutOptions& options) {
  Result<Layout> layout = MakeLayout(geometry, options);
  CHECK(layout.ok());
  return std::move(layout).value();
}

TEST(ExpectedMaxRouted, MatchesEnumeration) {
  const std::vector<std::vector<ExpertGroup>> cases = {
      Groups({4, 3, 3}),  Groups({2, 2, 2, 2, 2}),  Groups({10}),
      Groups({1, 9}),     Groups({0, 5, 5}),        Groups({3, 3, 3, 3}),
      {{5, 96}, {5, 64}}, {{4, 2}, {3, 3}, {3, 1}}, {{0, 7}, {9, 32}, {1, 64}}};
  for (const std::vector<ExpertGroup>& groups : cases) {
    for (int64_t top_k = 1; top_k <= 6; ++top_k) {
      const double expected = BruteForce(groups, top_k);
      EXPECT_NEAR(ExpectedMaxRouted(groups, top_k), expected, expected * 1e-12) << top_k;
    }
  }
}

TEST(ExpectedMaxRouted, EdgesAndLargeCounts) {
  EXPECT_EQ(ExpectedMaxRouted({}, 2), 0);
  EXPECT_EQ(ExpectedMaxRouted(Groups({4, 4}), 0), 0);
  EXPECT_DOUBLE_EQ(ExpectedMaxRouted(Groups({4, 3}), 7), 4);
  EXPECT_DOUBLE_EQ(ExpectedMaxRouted(Groups({4, 3}), 99), 4);
  EXPECT_DOUBLE_EQ(ExpectedMaxRouted(Groups({65536}), 128), 128);
  const double large = ExpectedMaxRouted(std::vector<ExpertGroup>(16, {4096, 1}), 128);
  EXPECT_GT(large, 8);
  EXPECT_LT(large, 24);
}

TEST(PriceLayout, WeightBytesAreTheShardMapsElements) {
  std::mt19937_64 random(5);
  const ElementBytes bytes;
  for (int round = 0; round < 40; ++round) {
    const Geometry geometry = RandomGeometry(&random);
    for (const int64_t ranks : {1, 2, 3, 5, 8, 16}) {
      const Layout layout = Make(geometry, RandomCuts(geometry, ranks, &random));
      const LayoutCost cost = PriceLayout(geometry, layout, bytes);
      for (int64_t rank = 0; rank < ranks; ++rank) {
        int64_t expected = 0;
        for (const LocalTensor& tensor : MakeShardMap(geometry, layout, rank, {"model.", true}).tensors) {
          expected += tensor.rows * tensor.cols * (tensor.role == Role::kVector ? 4 : 2);
        }
        EXPECT_EQ(cost.ranks[static_cast<size_t>(rank)].weight_bytes, expected) << "rank " << rank << " of " << ranks;
      }
    }
  }
}

TEST(PriceLayout, OneRankIsTheReference) {
  const Geometry demo = DemoGeometry();
  const LayoutCost cost = PriceLayout(demo, Make(demo, {}), {});
  ASSERT_EQ(cost.ranks.size(), 1u);
  EXPECT_DOUBLE_EQ(cost.weight_factor, 1);
  EXPECT_DOUBLE_EQ(cost.step_factor, 1);
  EXPECT_DOUBLE_EQ(cost.kv_factor, 1);
  EXPECT_EQ(cost.critical_bytes, cost.ranks[0].step_bytes);
  const auto& parts = cost.ranks[0].part_bytes;
  EXPECT_NEAR(std::accumulate(parts.begin(), parts.end(), 0.0), static_cast<double>(cost.ranks[0].step_bytes), 1);
  EXPECT_EQ(parts[static_cast<size_t>(StepPart::kHead)], 4096 * 256 * 2);
  EXPECT_EQ(parts[static_cast<size_t>(StepPart::kMlp)], 0);
  EXPECT_TRUE(cost.collectives.empty());
  // The step leaves out 8 of 10 experts in each of 8 layers; the tied embedding is also the head and is read.
  EXPECT_EQ(cost.ranks[0].weight_bytes - cost.ranks[0].step_bytes, int64_t{8} * 8 * 3 * 96 * 256 * 2);
  EXPECT_EQ(cost.ranks[0].kv_token_bytes, 2 * 2 * 2 * 64 * 4);
  EXPECT_EQ(cost.ranks[0].state_bytes, 6 * (8 * 64 * 64 + 3 * 1024) * 4);
}

TEST(PriceLayout, UntiedEmbeddingIsResidentAndNotRead) {
  Geometry demo = DemoGeometry();
  const LayoutCost tied = PriceLayout(demo, Make(demo, {}), {});
  demo.tied_head = false;
  const LayoutCost untied = PriceLayout(demo, Make(demo, {}), {});
  EXPECT_EQ(untied.ranks[0].weight_bytes - tied.ranks[0].weight_bytes, 4096 * 256 * 2);
  EXPECT_EQ(untied.ranks[0].step_bytes, tied.ranks[0].step_bytes);
}

TEST(PriceLayout, CriticalPathIsNoShorterThanAnyRank) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 30; ++round) {
    const Geometry geometry = RandomGeometry(&random);
    for (const int64_t ranks : {2, 3, 7, 16}) {
      const LayoutCost cost = PriceLayout(geometry, Make(geometry, RandomCuts(geometry, ranks, &random)), {});
      for (const RankCost& rank : cost.ranks) EXPECT_LE(rank.step_bytes, cost.critical_bytes + 1);
      EXPECT_GE(cost.step_factor, 1 - 1e-9);
    }
  }
}

TEST(PriceLayout, GroupsCostWhatTheCutsAtBothEndsCost) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 20; ++round) {
    const Geometry geometry = RandomGeometry(&random);
    for (const int64_t ranks : {1, 2, 3, 5, 8}) {
      for (const auto& [ep, word] : {std::pair(ranks, "whole"), std::pair(int64_t{1}, "width")}) {
        LayoutOptions groups, cut;
        groups.ranks = cut.ranks = ranks;
        groups.ep = ep;
        cut.cuts["experts"] = word;
        const LayoutCost a = PriceLayout(geometry, Make(geometry, groups), {});
        const LayoutCost b = PriceLayout(geometry, Make(geometry, cut), {});
        EXPECT_EQ(a.critical_bytes, b.critical_bytes) << word << " on " << ranks;
        for (size_t r = 0; r < a.ranks.size(); ++r) {
          EXPECT_EQ(a.ranks[r].weight_bytes, b.ranks[r].weight_bytes);
          EXPECT_EQ(a.ranks[r].step_bytes, b.ranks[r].step_bytes);
        }
      }
    }
  }
}

TEST(PriceLayout, CollectivesFollowThePartialAxes) {
  const Geometry demo = DemoGeometry();
  LayoutOptions options;
  options.ranks = 3;
  const LayoutCost cost = PriceLayout(demo, Make(demo, options), {});
  ASSERT_EQ(cost.collectives.size(), 5u);
  EXPECT_EQ(cost.collectives[0].site, "embed");
  EXPECT_EQ(cost.collectives[1].site, "attn");
  EXPECT_EQ(cost.collectives[1].count, 2);
  EXPECT_EQ(cost.collectives[1].bytes_exact, 256 * 8);
  EXPECT_EQ(cost.collectives[2].count, 6);
  EXPECT_EQ(cost.collectives[3].site, "moe");
  EXPECT_EQ(cost.collectives[3].bytes_fast, 256 * 4);
  EXPECT_EQ(cost.collectives[4].site, "logits");
  EXPECT_EQ(cost.collectives[4].elements, 4096);
  options.cuts = {{"experts", "replicate"}, {"shared", "uneven"}, {"vocab", "replicate"}, {"attn", "replicate"}};
  const LayoutCost fewer = PriceLayout(demo, Make(demo, options), {});
  ASSERT_EQ(fewer.collectives.size(), 2u);
  EXPECT_EQ(fewer.collectives[0].site, "gdn");
  EXPECT_EQ(fewer.collectives[1].site, "moe");  // the shared expert's part still needs its sum
}

// Rows that are dealt come together before every mixer, channel mixer and the head, and as logits of routers.
TEST(PriceLayout, DealtRowsComeTogetherAgain) {
  const Geometry demo = DemoGeometry();
  LayoutOptions options;
  options.sequence_parallel = true;
  EXPECT_TRUE(PriceLayout(demo, Make(demo, options), {}).collectives.empty()) << "one rank has all rows";
  options.ranks = 3;
  const LayoutCost cost = PriceLayout(demo, Make(demo, options), {});
  ASSERT_EQ(cost.collectives.size(), 7U);
  EXPECT_EQ(cost.collectives[5].site, "norms");
  EXPECT_EQ(cost.collectives[5].count, 2 * 8 + 1);
  EXPECT_EQ(cost.collectives[5].elements, 256);
  EXPECT_EQ(cost.collectives[6].site, "routers");
  EXPECT_EQ(cost.collectives[6].count, 8);
  EXPECT_EQ(cost.collectives[6].elements, 10 + 1) << "and the gate of the shared expert";
}

// A token passes through all stages, so the critical path stays as long, and what ranks hold adds up.
TEST(PriceLayout, StagesShareOutWeightsAndCaches) {
  const Geometry demo = DemoGeometry();
  LayoutOptions options;
  options.ranks = 3;
  const LayoutCost one = PriceLayout(demo, MakeLayout(demo, options).value(), {});
  options.stages = 2;
  const LayoutCost two = PriceLayout(demo, MakeLayout(demo, options).value(), {});
  ASSERT_EQ(two.ranks.size(), 6U);
  EXPECT_NEAR(static_cast<double>(two.critical_bytes), static_cast<double>(one.critical_bytes), 1);
  EXPECT_NEAR(two.step_factor, 2 * one.step_factor, 1e-3);
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(two.ranks[r].kv_token_bytes + two.ranks[r + 3].kv_token_bytes, one.ranks[r].kv_token_bytes);
    EXPECT_EQ(two.ranks[r].state_bytes + two.ranks[r + 3].state_bytes, one.ranks[r].state_bytes);
    const int64_t again = demo.tied_head ? 1 : 0;  // the embedding as a head
    EXPECT_EQ(two.ranks[r].weight_bytes + two.ranks[r + 3].weight_bytes > one.ranks[r].weight_bytes + 2, again == 1);
  }
  EXPECT_EQ(two.collectives.back().site, "sampler");
  EXPECT_EQ(two.collectives[two.collectives.size() - 2].count, 1) << "one border";
}

}  // namespace
}  // namespace trivet::plan
