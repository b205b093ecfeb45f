// SPDX-License-Identifier: Apache-2.0
#include "model/forced_routes.h"

#include <gtest/gtest.h>

#include "record/records.h"

namespace trivet::model {
namespace {

// Request 3 has two tokens, layers 1 and 4, two experts each; layer 4 of its second token is free.
RouteTable Table() {
  RouteTable table;
  table.layers = {1, 4};
  table.top_k = 2;
  table.requests[3] = {{10, 11}, {0, 1, 2, 3, 4, 5, -1, -1}};
  return table;
}

TEST(ForcedRoutes, FollowTokensThroughAnySchedule) {
  const RouteTable table = Table();
  ForcedRoutes forced(&table);
  const int64_t second = record::GlobalToken(3, 1);
  forced.BeginStep({record::kPadding, second, record::GlobalToken(0, 1), record::GlobalToken(3, 0)});
  const std::span<const int32_t> of_1 = forced.Of(1);
  EXPECT_EQ(std::vector(of_1.begin(), of_1.end()), (std::vector<int32_t>{-1, -1, 4, 5, -1, -1, 0, 1}));
  const std::span<const int32_t> of_4 = forced.Of(4);
  EXPECT_EQ(std::vector(of_4.begin(), of_4.end()), (std::vector<int32_t>{-1, -1, -1, -1, -1, -1, 2, 3}));
}

TEST(ForcedRoutes, CountEveryDecisionOnce) {
  const RouteTable table = Table();
  ForcedRoutes forced(&table);
  const std::vector<int32_t> other = {1, 0};
  for (int i = 0; i < 2; ++i) {
    forced.BeginStep({record::GlobalToken(3, 0), record::GlobalToken(3, 1)});
    forced.Count(1, other);
    forced.Count(4, other);
  }
  EXPECT_EQ(forced.counts().decisions, 3);
  EXPECT_EQ(forced.counts().other, 2);
}

TEST(ForcedRoutes, KnowTheTokensTheyBelongTo) {
  const RouteTable table = Table();
  EXPECT_EQ(table.TokenAt(3, 1), 11);
  EXPECT_EQ(table.TokenAt(3, 2), std::nullopt);
  EXPECT_EQ(table.TokenAt(2, 0), std::nullopt);
}

}  // namespace
}  // namespace trivet::model
