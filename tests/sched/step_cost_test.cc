// SPDX-License-Identifier: Apache-2.0
#include "sched/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace trivet::sched {
namespace {

TEST(StepWork, IsTheNumberOfTokensWhereNothingElseCosts) {
  const StepCost cost;
  const StepWork none(&cost);
  EXPECT_EQ(none.total(), 0);
  EXPECT_EQ(none.With({0, 1, 1}).With({100, 7, 0}).total(), 8);
}

TEST(StepWork, WeightsAreReadOnceUntilArithmeticTakesLonger) {
  const StepCost cost{.token_work = 10, .logits_work = 5, .weight_bytes = 50, .attention = {}, .work_per_byte = 2};
  const StepWork none(&cost);
  EXPECT_EQ(none.With({0, 1, 1}).total(), 100);
  EXPECT_EQ(none.With({0, 10, 0}).total(), 100);
  EXPECT_EQ(none.With({0, 10, 1}).total(), 105);
  EXPECT_EQ(none.With({0, 10, 1}).With({5, 2, 2}).total(), 135);
}

TEST(StepWork, ExpertsAreReadWhenSomeTokenTakesThem) {
  const StepCost cost{.token_work = 1, .expert_bytes = 800, .routed_share = 0.25, .attention = {}, .work_per_byte = 1};
  const StepWork none(&cost);
  EXPECT_DOUBLE_EQ(none.With({0, 1, 0}).total(), 200);
  EXPECT_DOUBLE_EQ(none.With({0, 2, 0}).total(), 350);
  EXPECT_NEAR(none.With({0, 100, 0}).total(), 800, 1e-6);
}

// Token by token and key by key.
double BruteForce(const AttentionCost& layers, const Stretch& stretch, double work_per_byte) {
  double pairs = 0;
  int64_t first_key = stretch.start + stretch.count;
  for (int64_t p = stretch.start; p < stretch.start + stretch.count; ++p) {
    const int64_t begin = layers.window == 0 ? 0 : std::max<int64_t>(0, p + 1 - layers.window);
    pairs += static_cast<double>(p + 1 - begin);
    first_key = std::min(first_key, begin);
  }
  const auto keys = static_cast<double>(stretch.start + stretch.count - first_key);
  return std::max(pairs * layers.key_work, keys * layers.key_bytes * work_per_byte);
}

TEST(StepWork, AttentionIsWhatEveryTokenSees) {
  std::mt19937 random(1);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  for (int i = 0; i < 2000; ++i) {
    StepCost cost{.token_work = 0, .attention = {}, .work_per_byte = 1};
    cost.attention = {{0, 1, static_cast<double>(below(40))}, {1 + below(50), 3, static_cast<double>(below(40))}};
    const Stretch stretch{below(100), 1 + below(100), 0};
    double expected = 0;
    for (const AttentionCost& layers : cost.attention) expected += BruteForce(layers, stretch, 1);
    ASSERT_EQ(StepWork(&cost).With(stretch).total(), expected) << stretch.start << "+" << stretch.count;
  }
}

TEST(StepWork, StatesAreReadAndWrittenOnceForEachSequence) {
  const StepCost cost{.token_work = 0, .state_work = 10, .state_bytes = 25, .attention = {}, .work_per_byte = 2};
  const StepWork none(&cost);
  EXPECT_EQ(none.With({0, 1, 0}).total(), 100);
  EXPECT_EQ(none.With({0, 10, 0}).total(), 100);
  EXPECT_EQ(none.With({0, 11, 0}).total(), 110);
  EXPECT_EQ(none.With({0, 1, 0}).With({7, 1, 0}).total(), 200);
}

}  // namespace
}  // namespace trivet::sched
