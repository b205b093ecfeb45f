// SPDX-License-Identifier: Apache-2.0
#include "plan/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace trivet::plan {
namespace {

double Sum(const std::vector<double>& weights, const Stage& stage) {
  double sum = 0;
  for (int64_t i = stage.begin; i < stage.end; ++i) sum += weights[static_cast<size_t>(i)];
  return sum;
}

// The lowest highest sum of contiguous parts, by trying all.
double Best(const std::vector<double>& weights, int64_t begin, int64_t stages) {
  const auto layers = static_cast<int64_t>(weights.size());
  if (stages == 1) return Sum(weights, {begin, layers});
  double best = 1e300;
  for (int64_t end = begin + 1; end + stages - 1 <= layers; ++end) {
    best = std::min(best, std::max(Sum(weights, {begin, end}), Best(weights, end, stages - 1)));
  }
  return best;
}

TEST(DealStages, TheDearestIsAsCheapAsCanBe) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> weights(1 + random() % 9);
    for (double& weight : weights) weight = static_cast<double>(random() % 20);
    const auto layers = static_cast<int64_t>(weights.size());
    const int64_t count = 1 + static_cast<int64_t>(random() % weights.size());
    const std::vector<Stage> stages =
        DealStages(layers, count, [&](const Stage& stage) { return Sum(weights, stage); });
    ASSERT_EQ(stages.size(), static_cast<size_t>(count));
    int64_t at = 0;
    double dearest = 0;
    for (const Stage& stage : stages) {
      EXPECT_EQ(stage.begin, at);
      EXPECT_GE(stage.layers(), 1);
      EXPECT_EQ(stage.last, stage.end == layers);
      at = stage.end;
      dearest = std::max(dearest, Sum(weights, stage));
    }
    EXPECT_EQ(at, layers);
    EXPECT_EQ(dearest, Best(weights, 0, count));
  }
}

TEST(DealStages, WhatComesWithTheLastLayerCounts) {
  const auto price = [](const Stage& stage) { return static_cast<double>(stage.layers()) + (stage.last ? 3 : 0); };
  EXPECT_EQ(DealStages(7, 2, price), StagesOf({5, 2}));
}

TEST(StagesOf, OneAfterTheOther) {
  EXPECT_EQ(StagesOf({1, 3, 4}), (std::vector<Stage>{{0, 1, false}, {1, 4, false}, {4, 8, true}}));
}

}  // namespace
}  // namespace trivet::plan
