// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

constexpr int64_t kTokens = 70;  // more than a page

TEST(AttentionLayer, PartsOfRanksAddUp) {
  const OneSequence sequence(kTokens);
  const std::vector<float> x = Activations(kTokens, SmallGeometry().hidden);
  ExpectPartsAddUp(SmallGeometry(), "attn", kTokens, [&](const RankFixture& rank, const Sums& sums) {
    AttentionLayer(rank.runtime(), rank.weights().layers[1].attention, 0, sequence.view(), x, sums);
  });
}

TEST(AttentionLayer, PlainHeadsWithoutGateAndNorms) {
  plan::Geometry geometry = SmallGeometry();
  geometry.attention.output_gate = false;
  geometry.attention.qk_norm = false;
  const OneSequence sequence(kTokens);
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  ExpectPartsAddUp(geometry, "attn", kTokens, [&](const RankFixture& rank, const Sums& sums) {
    AttentionLayer(rank.runtime(), rank.weights().layers[1].attention, 0, sequence.view(), x, sums);
  });
}

TEST(MakeRopeTable, AnglesArePositionTimesFrequency) {
  const plan::Geometry geometry = SmallGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = 3});
  OneSequence sequence(3);
  sequence.spans[0].start = 100;
  const RopeTable table = MakeRopeTable(rank.runtime(), sequence.view());
  const int64_t half = geometry.attention.rotary_dim / 2;
  ASSERT_EQ(table.cos.size(), static_cast<size_t>(3 * half));
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(100 + t) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
      EXPECT_NEAR(table.cos[static_cast<size_t>(t * half + i)], std::cos(angle), 1e-5);
      EXPECT_NEAR(table.sin[static_cast<size_t>(t * half + i)], std::sin(angle), 1e-5);
    }
  }
}

}  // namespace
}  // namespace trivet::model
