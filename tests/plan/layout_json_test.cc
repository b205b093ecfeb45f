// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/layout.h"
#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

TEST(LayoutJson, HoldsEveryRowAndEveryRank) {
  LayoutOptions options;
  options.ranks = 3;
  const Result<Layout> layout = MakeLayout(DemoGeometry(), options);
  ASSERT_TRUE(layout.ok());
  const Json json = LayoutJson(*layout);
  EXPECT_EQ(json["ranks"], 3);
  ASSERT_EQ(json["axes"].size(), 5u);
  EXPECT_EQ(json["axes"][1]["axis"], "gdn");
  EXPECT_EQ(json["axes"][1]["cut"], "overlap");
  EXPECT_EQ(json["axes"][1]["per_rank"], Json({3, 3, 2}));
  ASSERT_EQ(json["shards"].size(), 3u);
  EXPECT_EQ(json["shards"][1]["gdn"]["v_to_k"], Json({0, 1, 1}));
  EXPECT_EQ(json["shards"][2]["experts"]["channels"]["begin"], 64);
  EXPECT_EQ(json["shards"][2]["vocab"]["real"], 42 * 32);
  EXPECT_FALSE(json["shards"][0].contains("mlp"));
  EXPECT_EQ(json["placement"]["tables"], Json::array({{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}));  // one group of all ranks
}

TEST(LayoutJson, NamesGroupsAndTheirMap) {
  LayoutOptions options;
  options.ranks = 3;
  options.placement = Placement::FromEpConfig(10, 2, PlacementStrategy::kInterleave).value();
  const Json json = LayoutJson(MakeLayout(DemoGeometry(), options).value());
  EXPECT_EQ(json["axes"][2]["cut"], "ep");
  EXPECT_EQ(json["placement"], options.placement->PlanFragment());
  EXPECT_EQ(json["shards"][1]["experts"]["group"], 0);
  EXPECT_EQ(json["shards"][2]["experts"]["group"], 1);
  EXPECT_EQ(json["shards"][2]["experts"]["slots"], Json({1, 3, 5, 7, 9}));
}

TEST(LayoutJson, KeyOrderIsStable) {
  const Result<Layout> layout = MakeLayout(DemoGeometry(), {});
  ASSERT_TRUE(layout.ok());
  EXPECT_THAT(
      DumpJson(LayoutJson(*layout)),
      ::testing::StartsWith(
          R"({"ranks":1,"context":{"ranks":1,"split":"contiguous","stretch":64},"sequence_parallel":false,"axes":[{)"
          R"("axis":"attn","unit":)"));
}

}  // namespace
}  // namespace trivet::plan
