// SPDX-License-Identifier: Apache-2.0
#include "plan/memory_plan.h"

#include <gtest/gtest.h>

namespace trivet::plan {
namespace {

TEST(MemoryPlan, TotalsAndJson) {
  MemoryPlan memory;
  memory.available = 1000;
  memory.budget = 800;
  memory.kv_tokens = 128;
  memory.ranks = {{1, 2, 3, 4, 5}, {10, 20, 30, 40, 50}};
  EXPECT_EQ(memory.ranks[0].total(), 15);
  EXPECT_EQ(memory.total(), 165);
  const Json json = MemoryJson(memory);
  EXPECT_EQ(json["total"], 165);
  EXPECT_EQ(json["kv_tokens"], 128);
  EXPECT_EQ(json["ranks"][1], (Json{{"weights", 10}, {"kv", 20}, {"states", 30}, {"snapshots", 40}, {"scratch", 50}}));
}

}  // namespace
}  // namespace trivet::plan
