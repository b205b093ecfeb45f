// SPDX-License-Identifier: Apache-2.0
#include "plan/leaf.h"

#include <gtest/gtest.h>

namespace trivet::plan {
namespace {

TEST(Leaf, WidthTakesTheLargestPowerOfTwoThatDivides) {
  EXPECT_EQ(WidthLeaf(17408), 128);
  EXPECT_EQ(WidthLeaf(512), 128);
  EXPECT_EQ(WidthLeaf(2880), 64);
  EXPECT_EQ(WidthLeaf(96), 32);
  EXPECT_EQ(WidthLeaf(160), 32);
  EXPECT_EQ(WidthLeaf(352), 32);
  EXPECT_EQ(WidthLeaf(48), 16);
}

TEST(Leaf, RaggedWidthsTakeSixteen) {
  EXPECT_EQ(WidthLeaf(100), 16);
  EXPECT_EQ(WidthLeaf(7), 16);
  EXPECT_EQ(WidthLeaf(1), 16);
}

TEST(Leaf, HeadsAreWholeUpTo256AndThenHalved) {
  EXPECT_EQ(HeadLeaf(64), 64);
  EXPECT_EQ(HeadLeaf(96), 96);
  EXPECT_EQ(HeadLeaf(256), 256);
  EXPECT_EQ(HeadLeaf(512), 256);
  EXPECT_EQ(HeadLeaf(576), 144);
}

TEST(WidthLeaf, IsWholeBlocksWhereTheyDivideTheWidth) {
  EXPECT_EQ(WidthLeaf(2048, 256), 256);
  EXPECT_EQ(WidthLeaf(2048, 128), 128);
  EXPECT_EQ(WidthLeaf(2048, 32), 128);
  EXPECT_EQ(WidthLeaf(17408 - 128, 256), 128);
  EXPECT_EQ(WidthLeaf(352, 128), 32);  // no block divides it: cuts part blocks, and both sides keep the scales
}

}  // namespace
}  // namespace trivet::plan
