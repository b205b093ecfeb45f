// SPDX-License-Identifier: Apache-2.0
// Elementary functions against long double libm over dense samples of all floats, with bounds derived beside each test.
#include "kernels/elementary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

namespace trivet::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Distance in units of the last place that a float has at `want`.
long double Ulps(float got, long double want) {
  const int exponent = want == 0 ? -126 : std::max(std::ilogb(want), -126);
  return std::fabs(static_cast<long double>(got) - want) / std::ldexp(1.0L, exponent - 23);
}

// Calls visit(x) for floats spread over [low, high], in bit patterns `step` apart.
void Walk(float low, float high, uint32_t step, const std::function<void(float)>& visit) {
  for (const float sign : {1.0F, -1.0F}) {
    const float most = sign > 0 ? high : -low;
    for (uint64_t bits = 0; bits <= std::bit_cast<uint32_t>(most); bits += step) {
      visit(sign * std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
  }
  visit(low);
  visit(high);
}

TEST(Exp, IsWithinTwoUnitsOfTheLastPlace) {
  // Argument reduction errs by at most 1.7e-8 and the last Horner step by 4e-8 of a value in [0.70, 1.42]: 1.5 units
  // with the final rounding; the gradual-underflow range rounds once more, by half a unit.
  long double worst = 0;
  Walk(-103.0F, 88.0F, 1499, [&](float x) {
    const long double ulps = Ulps(Exp<ScalarOps>(x), std::exp(static_cast<long double>(x)));
    ASSERT_LT(ulps, 2.0L) << x;
    worst = std::max(worst, ulps);
  });
  std::printf("exp: worst error %.3Lf units\n", worst);
}

TEST(Exp, InRangeHasItsBits) {
  Walk(kLeastExp, 0.0F, 37, [](float x) {
    if (x > 0) return;
    ASSERT_EQ(std::bit_cast<uint32_t>(ExpInRange(x)), std::bit_cast<uint32_t>(Exp<ScalarOps>(x))) << x;
  });
}

TEST(Exp, ClampsAndKeepsNaNOut) {
  EXPECT_EQ(Exp<ScalarOps>(0.0F), 1.0F);
  EXPECT_EQ(Exp<ScalarOps>(-0.0F), 1.0F);
  EXPECT_EQ(Exp<ScalarOps>(kInf), Exp<ScalarOps>(88.0F));
  EXPECT_EQ(Exp<ScalarOps>(3e38F), Exp<ScalarOps>(88.0F));
  EXPECT_EQ(Exp<ScalarOps>(-kInf), Exp<ScalarOps>(-103.0F));
  EXPECT_EQ(Exp<ScalarOps>(kNaN), Exp<ScalarOps>(-103.0F));
  EXPECT_GT(Exp<ScalarOps>(-103.0F), 0.0F);
  EXPECT_LT(Exp<ScalarOps>(88.0F), kInf);
}

TEST(Exp, IsMonotonicAcrossReductionBorders) {
  // n changes at (i + 1/2) ln 2; a softmax must not rank a smaller score higher there by more than the error bound.
  for (int i = -140; i < 126; ++i) {
    const auto border = static_cast<float>((i + 0.5) * std::log(2.0));
    const float below = Exp<ScalarOps>(border - 1e-4F), above = Exp<ScalarOps>(border + 1e-4F);
    EXPECT_LE(below, above) << i;
  }
}

TEST(Sigmoid, IsWithinThreeUnits) {
  // exp errs by two units, relatively 2 * 2^-23; the sum and the quotient round by 2^-24 each: 3 * 2^-23 relative.
  Walk(-87.0F, 1e30F, 1499, [](float x) {
    const long double want = 1.0L / (1.0L + std::exp(-static_cast<long double>(x)));
    const long double got = static_cast<long double>(Sigmoid<ScalarOps>(x));
    ASSERT_LE(std::fabs(got - want), 3 * std::ldexp(want, -23)) << x;
  });
  // Below, the true value is under 2^-125, and so is the result.
  Walk(-3e38F, 0.0F, 1499, [](float x) { ASSERT_TRUE(x > -87.0F || Sigmoid<ScalarOps>(x) <= 0x1p-125F) << x; });
  EXPECT_EQ(Sigmoid<ScalarOps>(0.0F), 0.5F);
  EXPECT_EQ(Sigmoid<ScalarOps>(kInf), 1.0F);
}

TEST(Silu, IsWithinFourUnits) {
  // Sigmoid's 3 * 2^-23 and the product's 2^-24.
  Walk(-87.0F, 1e30F, 1499, [](float x) {
    const long double wide = static_cast<long double>(x), want = wide / (1.0L + std::exp(-wide));
    const long double got = static_cast<long double>(Silu<ScalarOps>(x));
    // Products below the normal range round by half of the smallest denormal.
    ASSERT_LE(std::fabs(got - want), 3.5L * std::ldexp(std::fabs(want), -23) + std::ldexp(1.0L, -150)) << x;
  });
  EXPECT_EQ(Silu<ScalarOps>(0.0F), 0.0F);
  EXPECT_TRUE(std::isnan(Silu<ScalarOps>(kNaN))) << "a NaN must reach the range check of the next product";
}

TEST(Softplus, IsWithinTwoAndAHalfUnits) {
  // exp errs by 2 * 2^-23 relative, which log1p does not enlarge; the series leaves 1e-10, the result rounds by 2^-24.
  Walk(-103.0F, 1e30F, 1499, [](float x) {
    const long double wide = static_cast<long double>(x);
    const long double want = std::log1p(std::exp(-std::fabs(wide))) + std::max(wide, 0.0L);
    const long double got = static_cast<long double>(Softplus(x));
    ASSERT_LE(std::fabs(got - want), 2.5L * std::ldexp(want, -23) + std::ldexp(1.5L, -149)) << x;
  });
  EXPECT_EQ(Softplus(20.5F), 20.5F);
  EXPECT_EQ(Softplus(kInf), kInf);
  EXPECT_GE(Softplus(-kInf), 0.0F);
  EXPECT_LE(Softplus(-kInf), 0x1p-148F);
  EXPECT_TRUE(std::isnan(Softplus(kNaN)));
}

TEST(Tanh, IsWithinTwoTenMillionths) {
  for (float x = -30; x <= 30; x += 0.0007F)
    EXPECT_NEAR(Tanh<ScalarOps>(x), std::tanh(static_cast<double>(x)), 2e-7) << x;
}

TEST(SoftCap, BendsTowardsTheCap) {
  EXPECT_EQ(SoftCap<ScalarOps>(0.0F, 50.0F), 0.0F);
  EXPECT_NEAR(SoftCap<ScalarOps>(10.0F, 50.0F), 50 * std::tanh(0.2), 1e-5);
  EXPECT_NEAR(SoftCap<ScalarOps>(-1e9F, 50.0F), -50, 1e-5);
}

TEST(ScalarOps, MinAndMaxTakeTheSecondForNaN) {
  EXPECT_EQ(ScalarOps::Max(kNaN, 1.0F), 1.0F);
  EXPECT_EQ(ScalarOps::Min(kNaN, 1.0F), 1.0F);
  EXPECT_EQ(ScalarOps::Max(2.0F, 1.0F), 2.0F);
  EXPECT_EQ(ScalarOps::Min(2.0F, 1.0F), 1.0F);
}

TEST(ScalarOps, PowersOfTwo) {
  for (int n = -126; n <= 127; ++n) EXPECT_EQ(ScalarOps::PowerOfTwo(n), std::ldexp(1.0F, n));
}

}  // namespace
}  // namespace trivet::kernels
