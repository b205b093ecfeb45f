// SPDX-License-Identifier: Apache-2.0
#include "proof/synthetic.h"

#include <gtest/gtest.h>

namespace trivet::proof {
namespace {

TEST(Synthetic, DecisionsAreOrderedAndDistinct) {
  for (int64_t token = 0; token < 50; ++token) {
    std::vector<record::RouteSlot> slots;
    const record::RouteHead head = SyntheticRoute({1, token}, &slots);
    ASSERT_EQ(slots.size(), static_cast<size_t>(kSyntheticTopK));
    EXPECT_NE(slots[0].expert, slots[1].expert);
    EXPECT_LT(slots[1].expert, kSyntheticExperts);
    EXPECT_GT(slots[0].selection, slots[1].selection);
    EXPECT_GT(slots[1].selection, head.next);
  }
}

TEST(Synthetic, EveryDispatchIsExecutedOnceForEachReplica) {
  SyntheticOptions options;
  options.sizes = {2, 1, 1, 1, 2};
  options.rank_order.push_back(Dimension::kEp);
  const RecordedRun run = MakeSynthetic(options);
  size_t executed = 0;
  for (const RankRun& rank : run.ranks) executed += rank.executions.size();
  // 12 tokens, 4 layers, 2 slots; on both ranks of tp.
  EXPECT_EQ(executed, 12U * 4 * 2 * 2);
}

}  // namespace
}  // namespace trivet::proof
