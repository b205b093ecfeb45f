// SPDX-License-Identifier: Apache-2.0
#include "engine/joint_step.h"

#include <gtest/gtest.h>

#include "tests/engine/step_plans.h"

namespace trivet::engine {
namespace {

JointStep Two() {
  sched::StepPlan plan = ThreeTokens();
  plan.step = 4;
  return {{plan, {}}, true};
}

TEST(JointStep, BytesAndBack) {
  const Result<JointStep> back = JointStep::Deserialize(Two().Serialize());
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(back->hidden);
  ASSERT_EQ(back->plans.size(), 2U);
  EXPECT_EQ(back->plans[0].step, 4);
  EXPECT_EQ(back->plans[0].tokens, Two().plans[0].tokens);
  EXPECT_TRUE(back->plans[1].spans.empty());
}

TEST(JointStep, NoPrefixIsAStep) {
  const std::vector<std::byte> bytes = Two().Serialize();
  // A whole first plan is a step of one replica.
  size_t whole = 0;
  for (size_t count = 0; count < bytes.size(); ++count) {
    whole += JointStep::Deserialize(std::span(bytes).first(count)).ok();
  }
  EXPECT_EQ(whole, 2U);
}

}  // namespace
}  // namespace trivet::engine
