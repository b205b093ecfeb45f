// SPDX-License-Identifier: Apache-2.0
// The demo model against what a reference implementation computed in float32.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

// The promise of docs/numerics.md; measured differences are about a hundredth of it.
constexpr double kTolerance = 2e-3;

struct Variant {
  const char* rows;
  kernels::Numerics numerics;
};

class DemoGolden : public testing::TestWithParam<Variant> {};

TEST_P(DemoGolden, LogitsAreNearTheReference) {
  const engine::OpenedModel model = support::Open(DemoDir());
  const std::vector<support::GoldenCase> golden = support::ReadGolden(DemoDir() + "/golden/demo-golden.safetensors");
  ASSERT_EQ(golden.size(), 5U);
  engine::EngineOptions options;
  options.kernels.rows = GetParam().rows;
  options.numerics = GetParam().numerics;
  const Result<std::unique_ptr<engine::Engine>> engine = engine::Engine::Start(model, options, {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  double worst = 0;
  size_t compared = 0;
  for (const support::GoldenCase& one : golden) {
    const Result<std::vector<float>> logits = support::ScoreAll(engine->get(), {one.tokens});
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    ASSERT_EQ(logits->size(), one.tokens.size() * static_cast<size_t>(model.geometry.vocab));
    worst = std::max(worst, support::LargestDifference(*logits, one.logits));
    compared += logits->size();
  }
  std::printf("%s: %zu logits, largest difference %.2e\n", support::Describe(options).c_str(), compared, worst);
  EXPECT_LE(worst, kTolerance);
  EXPECT_FALSE((*engine)->saturated());
}

INSTANTIATE_TEST_SUITE_P(RowsAndModes, DemoGolden,
                         testing::Values(Variant{"", kernels::Numerics::kExact},
                                         Variant{"ref", kernels::Numerics::kExact},
                                         Variant{"", kernels::Numerics::kFast},
                                         Variant{"ref", kernels::Numerics::kFast}));

TEST(DemoHidden, OneMatrixAfterEveryBlock) {
  const engine::OpenedModel model = support::Open(DemoDir());
  const std::vector<TokenId> tokens = support::RandomTokens(70, model.geometry.vocab, 3);
  for (const int64_t chunk : {7, 512}) {
    engine::EngineOptions options;
    options.prefill_chunk = chunk;
    const Result<std::unique_ptr<engine::Engine>> engine = engine::Engine::Start(model, options, {});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const auto scored = engine::Score(engine->get(), {{tokens, {tokens[0]}}, false, true});
    ASSERT_TRUE(scored.ok()) << scored.error().message;
    ASSERT_EQ((*scored)[0].hidden.size(), model.geometry.layers.size());
    for (size_t layer = 0; layer < model.geometry.layers.size(); ++layer) {
      EXPECT_EQ((*scored)[0].hidden[layer].size(), tokens.size() * static_cast<size_t>(model.geometry.hidden));
      // The first token sees nothing else: alone it has the same states.
      ASSERT_EQ((*scored)[1].hidden[layer].size(), static_cast<size_t>(model.geometry.hidden));
      EXPECT_TRUE(std::equal((*scored)[1].hidden[layer].begin(), (*scored)[1].hidden[layer].end(),
                             (*scored)[0].hidden[layer].begin()));
    }
  }
}

}  // namespace
}  // namespace trivet
