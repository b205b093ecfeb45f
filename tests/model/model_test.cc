// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <gtest/gtest.h>

#include <random>

#include "plan/axis_rules.h"
#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

plan::Geometry RandomGeometry(std::mt19937_64* random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(*random);
  };
  plan::Geometry geometry = pick(0, 1) == 1 ? SmallGeometry() : SmallDenseGeometry();
  geometry.hidden = pick(1, 90);
  geometry.vocab = pick(70, 200);  // OneSequence has ids below 70
  geometry.tied_head = pick(0, 1) == 1;
  geometry.attention.kv_heads = pick(1, 3);
  geometry.attention.q_heads = geometry.attention.kv_heads * pick(1, 3);
  geometry.attention.head_dim = 2 * pick(1, 20);
  geometry.attention.rotary_dim = 2 * pick(1, geometry.attention.head_dim / 2);
  geometry.attention.output_gate = pick(0, 1) == 1;
  geometry.attention.qkv_bias = geometry.attention.output_bias = geometry.attention.sinks = pick(0, 1) == 1;
  geometry.mlp.bias = geometry.branch_norms = pick(0, 1) == 1;
  if (pick(0, 2) == 0) {
    geometry.layers[1].mixer = plan::Mixer::kLatentAttention;
    geometry.latent = {pick(0, 40), pick(1, 50), pick(1, 20), 2 * pick(1, 10), 2 * pick(1, 20), true};
    geometry.attention.kv_heads = 1;
    geometry.attention.rotary_dim = geometry.latent.rope_dim;
    geometry.attention.head_dim = geometry.latent.nope_dim + geometry.latent.rope_dim;
  }
  geometry.ropes = {TestRope(geometry.attention.rotary_dim)};
  geometry.delta_net.k_heads = pick(1, 3);
  geometry.delta_net.v_heads = geometry.delta_net.k_heads * pick(1, 3);
  geometry.delta_net.k_dim = pick(1, 40);
  geometry.delta_net.v_dim = 2 * pick(1, 20);
  geometry.delta_net.conv_width = pick(1, 5);
  if (geometry.moe.experts > 0) {
    geometry.moe = {pick(1, 6), 1, pick(1, 100), pick(0, 100)};
    geometry.moe.top_k = pick(1, geometry.moe.experts);
    geometry.moe.bias = geometry.moe.router.bias = pick(0, 1) == 1;
    geometry.moe.shared_gate = pick(0, 1) == 1;
  } else {
    geometry.mlp_width = pick(1, 200);
  }
  return geometry;
}

// The workspace aborts the program when it runs out.
TEST(Model, WorkspaceSufficesForEveryShape) {
  std::mt19937_64 random(7);
  int steps = 0;
  for (int i = 0; i < 60; ++i) {
    const plan::Geometry geometry = RandomGeometry(&random);
    const int64_t ranks = 1 + i % 5, tokens = 1 + static_cast<int64_t>(random() % 100);
    std::vector<std::pair<std::string, std::string>> cuts = {{"", ""}};
    for (const plan::AxisRule& axis : plan::AxisRules(geometry, ranks, 0)) {
      cuts.emplace_back(axis.axis, axis.cuts[random() % axis.cuts.size()].word);
    }
    for (const auto& [axis, cut] : cuts) {
      const int64_t rank = static_cast<int64_t>(random() % static_cast<uint64_t>(ranks));
      RankFixture fixture(geometry, MakeLayout(geometry, ranks, axis, cut),
                          {.rank = rank, .tokens = tokens, .alone = true, .zeros = true});
      Model model(fixture.runtime(), fixture.TakeWeights());
      const OneSequence sequence(tokens);
      std::vector<float> logits(static_cast<size_t>(tokens * geometry.vocab));
      ASSERT_TRUE(model.Forward(sequence.view(), {logits, {}}).ok());
      ++steps;
    }
  }
  EXPECT_GT(steps, 300);
}

TEST(Model, HiddenStatesAreTheStreamAfterEveryBlock) {
  const plan::Geometry geometry = SmallGeometry();
  RankFixture fixture(geometry, MakeLayout(geometry, 1), {.tokens = 4});
  Model model(fixture.runtime(), fixture.TakeWeights());
  const OneSequence sequence(4);
  const auto stream = static_cast<size_t>(4 * geometry.hidden);
  std::vector<float> logits(static_cast<size_t>(4 * geometry.vocab)), hidden(2 * stream), again(logits.size());
  ASSERT_TRUE(model.Forward(sequence.view(), {logits, hidden}).ok());
  // The head of the last block's states gives the logits.
  RankFixture other(geometry, MakeLayout(geometry, 1), {.tokens = 4});
  ASSERT_TRUE(LogitsOf(other, sequence.view(), std::span(hidden).last(stream), again).ok());
  EXPECT_EQ(again, logits);
  EXPECT_NE(std::vector<float>(hidden.begin(), hidden.begin() + static_cast<std::ptrdiff_t>(stream)),
            std::vector<float>(hidden.begin() + static_cast<std::ptrdiff_t>(stream), hidden.end()));
}

// Of a step that decodes, what its layers have; none of a prompt's.
TEST(Model, PartsOfAStepAreTimed) {
  const plan::Geometry geometry = SmallGeometry();
  RankFixture fixture(geometry, MakeLayout(geometry, 1), {.tokens = 4});
  Model model(fixture.runtime(), fixture.TakeWeights());
  std::vector<float> logits(static_cast<size_t>(4 * geometry.vocab));
  const OneSequence one(1), four(4);
  ASSERT_TRUE(model.Forward(one.view(), {std::span(logits).first(static_cast<size_t>(geometry.vocab)), {}}).ok());
  EXPECT_TRUE(model.TakePartTimes().empty());
  model.TimeParts();
  ASSERT_TRUE(model.Forward(four.view(), {logits, {}}).ok());
  EXPECT_TRUE(model.TakePartTimes().empty());
  ASSERT_TRUE(model.Forward(one.view(), {std::span(logits).first(static_cast<size_t>(geometry.vocab)), {}}).ok());
  const std::vector<PartTimes> steps = model.TakePartTimes();
  ASSERT_EQ(steps.size(), 1U);
  for (size_t part = 0; part < plan::kStepParts; ++part) {
    EXPECT_EQ(steps[0][part] > 0, part != static_cast<size_t>(plan::StepPart::kMlp)) << plan::kStepPartNames[part];
  }
}

}  // namespace
}  // namespace trivet::model
