// SPDX-License-Identifier: Apache-2.0
#include "sched/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BlockPool, GivesLowestFirstAndLastFreedNext) {
  BlockPool pool(5);
  std::vector<int32_t> a, b;
  ASSERT_TRUE(pool.Allocate(2, &a));
  ASSERT_TRUE(pool.Allocate(2, &b));
  EXPECT_THAT(a, ElementsAre(0, 1));
  EXPECT_THAT(b, ElementsAre(2, 3));
  pool.Free(&a);
  EXPECT_THAT(a, IsEmpty());
  EXPECT_EQ(pool.free(), 3);
  ASSERT_TRUE(pool.Allocate(3, &a));
  EXPECT_THAT(a, ElementsAre(0, 1, 4));
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(pool.size(), 5);
}

TEST(BlockPool, AllOrNothing) {
  BlockPool pool(3);
  std::vector<int32_t> ids = {};
  EXPECT_FALSE(pool.Allocate(4, &ids));
  EXPECT_THAT(ids, IsEmpty());
  EXPECT_EQ(pool.free(), 3);
  EXPECT_TRUE(pool.Allocate(0, &ids));
  EXPECT_TRUE(pool.Allocate(3, &ids));
  EXPECT_FALSE(pool.Allocate(1, &ids));
  EXPECT_EQ(ids.size(), 3u);
}

TEST(BlockPoolDeath, FreeingWhatIsNotInUseAborts) {
  BlockPool pool(3);
  std::vector<int32_t> ids;
  ASSERT_TRUE(pool.Allocate(1, &ids));
  std::vector<int32_t> twice = {0, 0}, foreign = {3}, unused = {2};
  EXPECT_DEATH(pool.Free(&twice), "id 0 is not in use");
  EXPECT_DEATH(pool.Free(&foreign), "id 3 is not in use");
  EXPECT_DEATH(pool.Free(&unused), "id 2 is not in use");
}

}  // namespace
}  // namespace trivet::sched
