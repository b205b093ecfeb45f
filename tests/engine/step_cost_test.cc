// SPDX-License-Identifier: Apache-2.0
#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/plan_facts.h"
#include "plan/layout.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

// The demo's numbers by hand: 8 layers of width 256, every fourth with attention, ten experts of which a token takes
// two.
TEST(StepCostOf, CountsWhatATokenMeets) {
  const OpenedModel demo = support::Open(DemoDir());
  const plan::ElementBytes bytes = BytesOf(demo, cache::KvDtype::kF32);
  const sched::StepCost cost = StepCostOf(demo.geometry, bytes, Backend::kCpu);
  constexpr int64_t kDeltaNet = (2 * 256 + 2 * 512 + 16 + 512) * 256, kAttention = (8 * 3 + 2 * 2) * 64 * 256;
  constexpr int64_t kMoe = 3 * (160 + 2 * 96) * 256;
  EXPECT_NEAR(cost.token_work, 6 * kDeltaNet + 2 * kAttention + 8 * kMoe, 1e5);  // the convolution's taps besides
  EXPECT_EQ(cost.logits_work, 4096 * 256);
  EXPECT_EQ(cost.state_work, 6 * 3 * 8 * 64 * 64);
  EXPECT_EQ(cost.state_bytes, 6 * (8 * 64 * 64 + 3 * 1024) * 4);
  EXPECT_EQ(cost.routed_share, 0.2);
  ASSERT_EQ(cost.attention.size(), 1U);
  EXPECT_EQ(cost.attention[0].window, 0);
  EXPECT_EQ(cost.attention[0].key_work, 3 * 2 * 8 * (64 + 64));  // three of a product's
  EXPECT_EQ(cost.attention[0].key_bytes, 2 * 2 * (64 + 64) * 4);
  EXPECT_EQ(cost.weight_bytes, 0) << "a cache holds them";
  EXPECT_EQ(cost.expert_bytes, 0);
}

TEST(StepCostOf, WhatNoCacheHoldsIsRead) {
  const OpenedModel demo = support::Open(DemoDir());
  constexpr double kCached = 32 << 20;
  for (const double wide : {2.0, 4.0, 16.0}) {  // bytes of an element
    const plan::ElementBytes bytes{.matrix = plan::ElementBytes::Alike(wide)};
    const sched::StepCost cost = StepCostOf(demo.geometry, bytes, Backend::kCpu);
    const plan::LayoutCost priced = plan::PriceLayout(demo.geometry, *plan::MakeLayout(demo.geometry, {}), bytes);
    const double experts = 8 * 10 * 3 * 96 * 256 * wide;
    const double others = static_cast<double>(priced.ranks[0].step_bytes) - 0.2 * experts;
    EXPECT_NEAR(cost.weight_bytes + cost.expert_bytes, std::max(0.0, others + experts - kCached), 1);
    EXPECT_EQ(cost.weight_bytes > 0, others > kCached);
  }
}

TEST(StepCostOf, LayersOfOneWindowAreOne) {
  const OpenedModel demo = support::Open(DemoDir());
  plan::Geometry geometry = demo.geometry;
  const plan::ElementBytes bytes = BytesOf(demo, cache::KvDtype::kE4M3);
  for (plan::LayerGeometry& layer : geometry.layers) layer.mixer = plan::Mixer::kAttention;
  for (const size_t windowed : {1, 2, 4}) geometry.layers[windowed].window = 128;
  const sched::StepCost cost = StepCostOf(geometry, bytes, Backend::kCuda);
  ASSERT_EQ(cost.attention.size(), 2U);
  for (const sched::AttentionCost& layers : cost.attention) {
    const int64_t count = layers.window == 128 ? 3 : 5;
    EXPECT_EQ(layers.key_work, 3 * count * 8 * (64 + 64));
    EXPECT_EQ(layers.key_bytes, count * 2 * (64 + 64 + 2));
  }
  EXPECT_EQ(cost.state_work, 0);
  EXPECT_NE(cost.work_per_byte, StepCostOf(geometry, bytes, Backend::kCpu).work_per_byte);
}

}  // namespace
}  // namespace trivet::engine
