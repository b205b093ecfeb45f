// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

constexpr int64_t kTokens = 70;  // more than a page

// Sums of the attention layer of a geometry whose layer 1 it is.
void RunLayer(const RankFixture& rank, std::span<const float> x, const Sums& sums) {
  const OneSequence sequence(kTokens);
  const RotatedStep rotated(rank.runtime(), sequence.view());
  const LayerPlace place{0, rank.runtime().geometry.layers[1]};
  AttentionLayer(rank.runtime(), rank.weights().layers[1].attention, place, rotated.step, x, sums);
}

void ExpectRanksAddUp(const plan::Geometry& geometry) {
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  ExpectPartsAddUp(geometry, "attn", kTokens,
                   [&](const RankFixture& rank, const Sums& sums) { RunLayer(rank, x, sums); });
}

TEST(AttentionLayer, PartsOfRanksAddUp) { ExpectRanksAddUp(SmallGeometry()); }

TEST(AttentionLayer, PlainHeadsWithoutGateAndNorms) {
  plan::Geometry geometry = SmallGeometry();
  geometry.attention.output_gate = false;
  geometry.attention.qk_norm = false;
  ExpectRanksAddUp(geometry);
}

// The output's bias is added once, whatever the cut.
TEST(AttentionLayer, BiasesSinksWindowAndCap) {
  plan::Geometry geometry = SmallGeometry();
  geometry.attention.qkv_bias = geometry.attention.output_bias = geometry.attention.sinks = true;
  geometry.attention.softcap = 2;
  geometry.layers[1].window = 9;
  ExpectRanksAddUp(geometry);
}

TEST(MakeRopeAngles, AnglesArePositionTimesFrequency) {
  plan::Geometry geometry = SmallGeometry();
  geometry.ropes.push_back(TestRope(4));
  geometry.ropes[1].scale = 1.5F;
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = 3});
  OneSequence sequence(3);
  sequence.spans[0].start = 100;
  const std::vector<RopeAngles> all = MakeRopeAngles(rank.runtime(), sequence.view());
  ASSERT_EQ(all.size(), 2U);
  for (size_t r = 0; r < 2; ++r) {
    const int64_t half = r == 0 ? 4 : 2;
    const double scale = r == 0 ? 1 : 1.5;
    ASSERT_EQ(all[r].half, half);
    ASSERT_EQ(all[r].cos.size(), static_cast<size_t>(3 * half));
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t i = 0; i < half; ++i) {
        const double turn = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        const double angle = static_cast<double>(100 + t) * turn;
        EXPECT_NEAR(all[r].cos[static_cast<size_t>(t * half + i)], scale * std::cos(angle), 2e-5);
        EXPECT_NEAR(all[r].sin[static_cast<size_t>(t * half + i)], scale * std::sin(angle), 2e-5);
      }
    }
  }
}

}  // namespace
}  // namespace trivet::model
