// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

constexpr int64_t kTokens = 70;  // more than a page

void RunLayer(const RankFixture& rank, const OneSequence& sequence, std::span<const float> x, const Sums& sums) {
  const StepView step = StageStep(rank.runtime(), sequence.view());
  const LayerPlace place{0, rank.runtime().geometry.layers[1]};
  EXPECT_TRUE(LatentAttentionLayer(rank.runtime(), rank.weights().layers[1].latent, place, step, x, sums).ok());
}

void ExpectRanksAddUp(const plan::Geometry& geometry) {
  const OneSequence sequence(kTokens);
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  ExpectPartsAddUp(geometry, "attn", kTokens,
                   [&](const RankFixture& rank, const Sums& sums) { RunLayer(rank, sequence, x, sums); });
}

TEST(LatentAttentionLayer, PartsOfRanksAddUp) { ExpectRanksAddUp(SmallLatentGeometry()); }

TEST(LatentAttentionLayer, BiasesAndQueriesFromTheHiddenState) {
  plan::Geometry geometry = SmallLatentGeometry();
  geometry.attention.output_bias = true;
  geometry.latent.query_rank = 0;
  geometry.latent.interleaved = false;
  ExpectRanksAddUp(geometry);
}

// What the cache keeps is enough: the last token alone gets the bytes it gets in one prefill.
TEST(LatentAttentionLayer, StepsAreOneSequence) {
  const plan::Geometry geometry = SmallLatentGeometry();
  const auto hidden = static_cast<size_t>(geometry.hidden);
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  const RankFixture at_once(geometry, MakeLayout(geometry, 1), {.tokens = kTokens});
  const Sums expected = at_once.runtime().NewSums(kTokens);
  RunLayer(at_once, OneSequence(kTokens), x, expected);
  const RankFixture split(geometry, MakeLayout(geometry, 1), {.tokens = kTokens});
  const Sums before = split.runtime().NewSums(kTokens - 1), after = split.runtime().NewSums(1);
  RunLayer(split, OneSequence(kTokens - 1), std::span(x).first(x.size() - hidden), before);
  OneSequence last(1);
  last.spans[0].start = kTokens - 1;
  RunLayer(split, last, std::span(x).last(hidden), after);
  EXPECT_TRUE(std::equal(after.fixed.begin(), after.fixed.end(), expected.fixed.end() - geometry.hidden));
}

}  // namespace
}  // namespace trivet::model
