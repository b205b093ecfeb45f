// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

constexpr int64_t kTokens = 6;

TEST(MlpLayer, PartsOfRanksAddUp) {
  const std::vector<float> x = Activations(kTokens, SmallDenseGeometry().hidden);
  ExpectPartsAddUp(SmallDenseGeometry(), "mlp", kTokens, [&](const RankFixture& rank, const Sums& sums) {
    MlpLayer(rank.runtime(), rank.weights().layers[0].mlp, x, kTokens, nullptr, sums);
  });
}

// A row's scale of 1 changes nothing, a scale of 0 leaves nothing.
TEST(MlpLayer, RowsAreScaled) {
  const plan::Geometry geometry = SmallDenseGeometry();
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = 2 * kTokens});
  const Sums plain = rank.runtime().NewSums(kTokens), scaled = rank.runtime().NewSums(kTokens);
  MlpLayer(rank.runtime(), rank.weights().layers[0].mlp, x, kTokens, nullptr, plain);
  const std::vector<float> scale = {0, 1, 0, 0, 1, 0};
  MlpLayer(rank.runtime(), rank.weights().layers[0].mlp, x, kTokens, scale.data(), scaled);
  for (size_t t = 0; t < static_cast<size_t>(kTokens); ++t) {
    for (size_t i = 0; i < static_cast<size_t>(geometry.hidden); ++i) {
      const size_t at = t * static_cast<size_t>(geometry.hidden) + i;
      EXPECT_EQ(scaled.fixed[at], t == 4 || t == 1 ? plain.fixed[at] : 0);
    }
  }
}

TEST(MlpLayer, NoRowsAreNoWork) {
  const plan::Geometry geometry = SmallDenseGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {});
  const Sums sums = rank.runtime().NewSums(1);
  MlpLayer(rank.runtime(), rank.weights().layers[0].mlp, {}, 0, nullptr, sums);
  for (const int64_t value : sums.fixed) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace trivet::model
