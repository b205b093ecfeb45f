// SPDX-License-Identifier: Apache-2.0
#include "kernels/fixed_point.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace trivet::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kLimitOnGrid = int64_t{1} << 50;

int64_t Grid(float value) {
  uint32_t flags = 0;
  const int64_t grid = ToGrid(value, &flags);
  EXPECT_EQ(flags, kInRange) << value;
  return grid;
}

TEST(ToGrid, RoundsToNearestAndTiesToEven) {
  const float step = 0x1p-30F;
  EXPECT_EQ(Grid(0.0F), 0);
  EXPECT_EQ(Grid(-0.0F), 0);
  EXPECT_EQ(Grid(step), 1);
  EXPECT_EQ(Grid(-step), -1);
  EXPECT_EQ(Grid(0.5F * step), 0);
  EXPECT_EQ(Grid(1.5F * step), 2);
  EXPECT_EQ(Grid(2.5F * step), 2);
  EXPECT_EQ(Grid(-0.5F * step), 0);
  EXPECT_EQ(Grid(-1.5F * step), -2);
  EXPECT_EQ(Grid(-2.5F * step), -2);
  EXPECT_EQ(Grid(std::nextafter(0.5F * step, 1.0F)), 1);
  EXPECT_EQ(Grid(std::nextafter(0.5F * step, 0.0F)), 0);
  EXPECT_EQ(Grid(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(Grid(1.0F), int64_t{1} << 30);
}

TEST(ToGrid, EqualsTheCorrectlyRoundedProductOverTheWholeRange) {
  std::mt19937_64 random(81);
  for (int i = 0; i < 1000000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!(std::fabs(value) <= kLeafLimit)) continue;
    ASSERT_EQ(Grid(value), std::llrint(static_cast<double>(value) * 1073741824.0)) << value;
  }
}

TEST(ToGrid, HoldsTheLimitAndSaturatesBeyondIt) {
  EXPECT_EQ(Grid(kLeafLimit), kLimitOnGrid);
  EXPECT_EQ(Grid(-kLeafLimit), -kLimitOnGrid);
  EXPECT_EQ(Grid(std::nextafter(kLeafLimit, 0.0F)), kLimitOnGrid - (int64_t{1} << 26));
  struct {
    float value;
    int64_t grid;
    uint32_t flags;
  } const cases[] = {
      {std::nextafter(kLeafLimit, kInf), kLimitOnGrid, kSaturated},
      {-std::nextafter(kLeafLimit, kInf), -kLimitOnGrid, kSaturated},
      {std::numeric_limits<float>::max(), kLimitOnGrid, kSaturated},
      {kInf, kLimitOnGrid, kNonFinite},
      {-kInf, -kLimitOnGrid, kNonFinite},
      {kNaN, kLimitOnGrid, kNonFinite},
      {-kNaN, kLimitOnGrid, kNonFinite},
  };
  for (const auto& test : cases) {
    uint32_t flags = 0;
    EXPECT_EQ(ToGrid(test.value, &flags), test.grid) << test.value;
    EXPECT_EQ(flags, test.flags) << test.value;
    EXPECT_EQ(RangeOf(test.value), test.flags) << test.value;
  }
}

TEST(ToGrid, FlagsAccumulate) {
  uint32_t flags = 0;
  ToGrid(2e6F, &flags);
  ToGrid(kInf, &flags);
  ToGrid(1.0F, &flags);
  EXPECT_EQ(flags, uint32_t{kSaturated} | kNonFinite);
}

TEST(FromGrid, IsTheNearestFloat) {
  EXPECT_EQ(FromGrid(0), 0.0F);
  EXPECT_FALSE(std::signbit(FromGrid(0)));
  EXPECT_EQ(FromGrid(1), 0x1p-30F);
  EXPECT_EQ(FromGrid(-3), -3 * 0x1p-30F);
  EXPECT_EQ(FromGrid(kLimitOnGrid), kLeafLimit);
  EXPECT_EQ(FromGrid((int64_t{1} << 24) + 1), 0x1p-6F) << "a tie goes to the even mantissa";
  EXPECT_EQ(FromGrid((int64_t{1} << 24) + 3), (0x1p24F + 4) * 0x1p-30F);
  EXPECT_EQ(FromGrid(std::numeric_limits<int64_t>::max()), 0x1p33F);
  EXPECT_EQ(FromGrid(std::numeric_limits<int64_t>::min()), -0x1p33F);
}

TEST(FromGrid, BringsBackEveryFloatTheGridHolds) {
  std::mt19937_64 random(82);
  for (int i = 0; i < 200000; ++i) {
    // Floats whose last mantissa bit weighs at least one step: 2^-7 and more.
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!(std::fabs(value) <= kLeafLimit) || std::fabs(value) < 0x1p-7F) continue;
    ASSERT_EQ(FromGrid(Grid(value)), value);
  }
}

TEST(Grid, SumsOfManySaturatedLeavesFit) {
  // 2^13 leaves at the limit: the largest sum the format was made for.
  EXPECT_EQ(FromGrid(kLimitOnGrid * ((int64_t{1} << 13) - 1)), 8191 * kLeafLimit);
}

}  // namespace
}  // namespace trivet::kernels
