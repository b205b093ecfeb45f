// SPDX-License-Identifier: Apache-2.0
#include "proof/recorded_route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proof/synthetic.h"

namespace trivet::proof {
namespace {

TEST(RecordedRoute, IsFoundOnARankAndInARun) {
  SyntheticOptions options;
  options.sizes = {1, 1, 1, 2, 1};  // stages: a rank has some layers only
  const RecordedRun run = MakeSynthetic(options);
  const Decision last{kSyntheticLayers - 1, record::GlobalToken(1, 2)};
  std::vector<record::RouteSlot> slots;
  SyntheticRoute(last, &slots);
  const RecordedRoute found = FindRoute(run, last);
  ASSERT_NE(found.head, nullptr);
  EXPECT_EQ(found.slots[1].expert, slots[1].expert);
  EXPECT_EQ(FindRoute(run.ranks[0], last).head, nullptr);
  EXPECT_EQ(FindRoute(run, {0, record::GlobalToken(7, 0)}).head, nullptr);
}

TEST(RecordedRoute, TwoAreDescribedByTheirFirstDifferenceAndMargins) {
  const record::RouteHead head{0, 0, 0, 2, 1.0F, 0};
  const std::vector<record::RouteSlot> a = {{3, 0, 0.5F, 4, 4}, {1, 0, 0.5F, 2, 2}},
                                       b = {{3, 0, 0.5F, 4, 4}, {2, 0, 0.5F, 1.5F, 1.5F}};
  Json where = Json::object();
  std::string text;
  DescribeRoutes({&head, a}, {&head, b}, &where, &text);
  EXPECT_EQ(where["slot"], 1);
  EXPECT_EQ(where["experts"], Json::array({1, 2}));
  EXPECT_EQ(where["selections"], Json::array({Bits(2), Bits(1.5F)}));
  EXPECT_EQ(where["margins"], Json::array({1.0, 0.5}));
  EXPECT_EQ(where["near_tie"], true);
  EXPECT_THAT(text, testing::HasSubstr("slot 1: expert 1"));
  Json nothing = Json::object();
  DescribeRoutes({&head, a}, {}, &nothing, &text);
  EXPECT_TRUE(nothing.empty());
}

}  // namespace
}  // namespace trivet::proof
