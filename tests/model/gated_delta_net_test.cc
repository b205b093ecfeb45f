// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

// The delta-net layer over a sequence.
void RunLayer(const RankFixture& rank, const OneSequence& sequence, std::span<const float> x, const Sums& sums) {
  const StepView step = StageStep(rank.runtime(), sequence.view());
  const LayerPlace place{0, rank.runtime().geometry.layers[0]};
  EXPECT_TRUE(DeltaNetLayer(rank.runtime(), rank.weights().layers[0].delta_net, place, step, x, sums).ok());
}

TEST(DeltaNetLayer, PartsOfRanksAddUp) {
  constexpr int64_t kTokens = 20;
  const OneSequence sequence(kTokens);
  const std::vector<float> x = Activations(kTokens, SmallGeometry().hidden);
  ExpectPartsAddUp(SmallGeometry(), "gdn", kTokens,
                   [&](const RankFixture& rank, const Sums& sums) { RunLayer(rank, sequence, x, sums); });
}

// The states carry on: a step of one token after nineteen gives what twenty in one step give.
TEST(DeltaNetLayer, StepsAreOneSequence) {
  const plan::Geometry geometry = SmallGeometry();
  const std::vector<float> x = Activations(20, geometry.hidden);
  const OneSequence whole(20);
  const RankFixture at_once(geometry, MakeLayout(geometry, 1), {.tokens = 20});
  const Sums expected = at_once.runtime().NewSums(20);
  RunLayer(at_once, whole, x, expected);

  const RankFixture split(geometry, MakeLayout(geometry, 1), {.tokens = 20});
  OneSequence first(19), last(1);
  last.spans[0].start = 19;
  const auto width = static_cast<size_t>(geometry.hidden);
  const Sums before = split.runtime().NewSums(19), after = split.runtime().NewSums(1);
  const std::span<const float> all(x);
  RunLayer(split, first, all.first(19 * width), before);
  RunLayer(split, last, all.last(width), after);
  EXPECT_TRUE(std::equal(before.fixed.begin(), before.fixed.end(), expected.fixed.begin()));
  EXPECT_TRUE(
      std::equal(after.fixed.begin(), after.fixed.end(), expected.fixed.end() - static_cast<std::ptrdiff_t>(width)));
}

}  // namespace
}  // namespace trivet::model
