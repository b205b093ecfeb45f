// SPDX-License-Identifier: Apache-2.0
// The golden plan of the demo model. After an intended change of the planner, write it anew and review the difference:
//   TRIVET_UPDATE_GOLDEN=1 build/tests/plan_test --gtest_filter='PlanJson.*'
#include "plan/plan_json.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/str.h"
#include "tests/plan/plan_fixtures.h"
#include "tests/support/paths.h"

namespace trivet::plan {
namespace {

Json DemoPlan(int64_t ranks) {
  const Geometry demo = DemoGeometry();
  LayoutOptions options;
  options.ranks = ranks;
  const Result<Layout> layout = MakeLayout(demo, options);
  CHECK(layout.ok());
  return PlanJson(demo, *layout, PriceLayout(demo, *layout, {}));
}

// One line per rank count, so that a difference shows which ones changed.
std::string DemoPlans() {
  std::string text = "[\n";
  for (int64_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
    text += DumpJson(DemoPlan(ranks)) + (ranks < kMaxRanks ? ",\n" : "\n");
  }
  return text + "]\n";
}

TEST(PlanJson, DemoMatchesTheGoldenPlan) {
  const std::string path = SourceRoot() + "/tests/plan/demo_plan.json";
  const std::string plans = DemoPlans();
  if (std::getenv("TRIVET_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(WriteTextFile(path, plans).ok());
  }
  const Result<std::string> golden = ReadTextFile(path, 1 << 24);
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const std::vector<std::string> expected = Split(*golden, '\n');
  const std::vector<std::string> found = Split(plans, '\n');
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], expected[i]) << "ranks " << i;
}

TEST(PlanJson, GoldenPlanIsValidJson) {
  const Result<Json> golden = ReadJsonFile(SourceRoot() + "/tests/plan/demo_plan.json");
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  ASSERT_EQ(golden->size(), static_cast<size_t>(kMaxRanks));
  EXPECT_EQ((*golden)[2]["layout"]["ranks"], 3);
}

TEST(PlanJson, NamesThePartsTheModelHas) {
  const Json plan = DemoPlan(3);
  EXPECT_EQ(plan["geometry"]["family"], "qwen3_5_moe");
  EXPECT_EQ(plan["geometry"]["attention"]["q_heads"], 8);
  EXPECT_FALSE(plan["geometry"].contains("mlp_width"));
  EXPECT_EQ(plan["cost"]["ranks"].size(), 3u);
  EXPECT_EQ(plan["cost"]["collectives"][0]["site"], "embed");
}

TEST(PlanJson, FactorsHaveFourDecimals) {
  EXPECT_EQ(RoundedFactor(1.23456789), 1.2346);
  EXPECT_EQ(RoundedFactor(1), 1);
}

}  // namespace
}  // namespace trivet::plan
