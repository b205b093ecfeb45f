// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

constexpr int64_t kTokens = 70;  // more than a page

// Sums of the attention layer of a geometry whose layer 1 it is.
void RunLayer(const RankFixture& rank, std::span<const float> x, const Sums& sums) {
  const OneSequence sequence(kTokens);
  const StepView step = StageStep(rank.runtime(), sequence.view());
  const LayerPlace place{0, rank.runtime().geometry.layers[1]};
  EXPECT_TRUE(AttentionLayer(rank.runtime(), rank.weights().layers[1].attention, place, step, x, sums).ok());
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

}  // namespace
}  // namespace trivet::model
