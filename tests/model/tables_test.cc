// SPDX-License-Identifier: Apache-2.0
#include "model/tables.h"

#include <gtest/gtest.h>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

TEST(Tables, SayWhatTheShardSays) {
  const plan::Geometry geometry = SmallGeometry();
  const plan::Layout layout = MakeLayout(geometry, 3, "experts", "whole");
  std::vector<int64_t> holders(static_cast<size_t>(geometry.moe.experts));
  for (const plan::RankShard& shard : layout.shards) {
    const Result<Tables> tables = Tables::Make(device::Device(), geometry, shard, {});
    ASSERT_TRUE(tables.ok());
    for (size_t i = 0; i < shard.attention.q_to_kv.size(); ++i) {
      EXPECT_EQ(tables->q_to_kv[i], shard.attention.q_to_kv[i]);
    }
    for (size_t i = 0; i < shard.delta_net.v_to_k.size(); ++i) EXPECT_EQ(tables->v_to_k[i], shard.delta_net.v_to_k[i]);
    for (size_t expert = 0; expert < holders.size(); ++expert) {
      const int32_t slot = tables->slot_of[expert];
      if (slot < 0) continue;
      ++holders[expert];
      EXPECT_EQ(shard.experts.slots[static_cast<size_t>(slot)], static_cast<int64_t>(expert));
    }
    EXPECT_EQ(*tables->one, 1.0F);
    EXPECT_EQ(tables->flags->load(), 0U);
  }
  EXPECT_EQ(holders, std::vector<int64_t>(holders.size(), 1)) << "every expert is on one rank";
}

}  // namespace
}  // namespace trivet::model
