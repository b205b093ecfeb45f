// SPDX-License-Identifier: Apache-2.0
#include "sampling/random.h"

#include <gtest/gtest.h>

#include <set>

namespace trivet::sampling {
namespace {

using Words = std::array<uint32_t, 4>;

// Source: the known answers published with Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, IsMadeOfTheFirstWords) {
  EXPECT_EQ(UniformDouble({}), static_cast<double>(0xe169c58d6627e8d5u >> 11) / 0x1p53);
  EXPECT_EQ(UniformFloat({}), static_cast<float>(0x6627e8d5u >> 8) / 0x1p24F);
}

TEST(Uniform, EveryPartOfTheKeyCounts) {
  std::set<double> seen;
  const RandomKey keys[] = {
      {},           {1, 0, 0, 0}, {uint64_t{1} << 32, 0, 0, 0}, {0, 1, 0, 0}, {0, uint64_t{1} << 32, 0, 0},
      {0, 0, 1, 0}, {0, 0, 0, 1}};
  for (const RandomKey& key : keys) seen.insert(UniformDouble(key));
  EXPECT_EQ(seen.size(), std::size(keys));
}

TEST(Uniform, IsUniform) {
  constexpr int kBins = 64, kDraws = 64000;
  int bins[kBins] = {}, float_bins[kBins] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double x = UniformDouble({7, 3, i, 0});
    const float y = UniformFloat({7, 3, i, 1});
    ASSERT_TRUE(x >= 0 && x < 1 && y >= 0 && y < 1);
    ++bins[static_cast<int>(x * kBins)];
    ++float_bins[static_cast<int>(y * kBins)];
  }
  double chi2 = 0, float_chi2 = 0;
  constexpr double kExpected = static_cast<double>(kDraws) / kBins;
  for (int i = 0; i < kBins; ++i) {
    chi2 += (bins[i] - kExpected) * (bins[i] - kExpected) / kExpected;
    float_chi2 += (float_bins[i] - kExpected) * (float_bins[i] - kExpected) / kExpected;
  }
  // 63 degrees of freedom: 0.1 % lie above 103.4, 0.1 % below 32.
  EXPECT_LT(chi2, 103.4);
  EXPECT_GT(chi2, 32.0);
  EXPECT_LT(float_chi2, 103.4);
  EXPECT_GT(float_chi2, 32.0);
}

TEST(UniformDeath, PositionMustFit) { EXPECT_DEATH(UniformDouble({0, 0, -1, 0}), "position -1"); }

}  // namespace
}  // namespace trivet::sampling
