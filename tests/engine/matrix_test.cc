// SPDX-License-Identifier: Apache-2.0
#include "engine/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

class Matrix : public testing::Test {
 protected:
  proof::Report Run(const Json& base, const Json& vary, bool strict = true) {
    const Json json = {{"schema", "trivet.matrix.v1"},
                       {"model", "small"},
                       {"level", "rows"},
                       {"strict", strict},
                       {"tokens", Json::array({Json::array({1, 2, 3, 4, 5}), Json::array({9, 8, 7})})},
                       {"base", base},
                       {"vary", vary}};
    const Result<proof::MatrixPlan> plan = proof::ParseMatrixPlan(json, "plan");
    CHECK_MSG(plan.ok(), plan.error().message);
    MatrixOptions options;
    options.tokens = plan->tokens;
    options.dir = small_.dir().Path();
    options.report = [this](const std::string& line) { lines_.push_back(line); };
    const Result<proof::Report> report = RunMatrix(small_.model(), *plan, options);
    CHECK_MSG(report.ok(), report.error().message);
    return *report;
  }

  const SmallModel small_;
  std::vector<std::string> lines_;
};

TEST_F(Matrix, EqualLayoutsPass) {
  const proof::Report report =
      Run({{"parallel.tp", 3}}, {{"parallel.tp", {1, 2}}, {"launch", {"processes"}}, {"batch.prefill_chunk", {2}}});
  EXPECT_EQ(report.finding.verdict, proof::Verdict::kPass) << report.text;
  ASSERT_EQ(lines_.size(), 5U);
  for (size_t i = 1; i < 5; ++i) {
    const Json& one = report.json["cases"][i];
    EXPECT_EQ(one["materialization"], "applied");
    EXPECT_EQ(one["decisions"], 8 * 4) << one["case"];
    EXPECT_EQ(one["logits_rows"], 8) << one["case"];
  }
}

TEST_F(Matrix, OtherArithmeticIsOtherWork) {
  const proof::Report report = Run({{"parallel.tp", 2}}, {{"numerics.contract", {"fast"}}, {"parallel.tp", {1}}});
  EXPECT_EQ(report.finding.verdict, proof::Verdict::kIdentityDrift);
  EXPECT_EQ(report.json["finding"]["case"], "numerics.contract=fast");
  EXPECT_EQ(report.json["cases"][2]["verdict"], 0) << "the others are judged all the same";
}

TEST_F(Matrix, WhatDidNotApplyIsNotRun) {
  const Json vary = {{"batch.prefill_chunk", {100000}}};
  const proof::Report strict = Run({{"parallel.tp", 2}}, vary);
  EXPECT_EQ(strict.finding.verdict, proof::Verdict::kKnobNotApplied);
  EXPECT_EQ(strict.json["cases"][1]["materialization"], "fallback");
  EXPECT_FALSE(strict.json["cases"][1].contains("decisions"));
}

TEST_F(Matrix, AFallbackRunsWhereThePlanAllowsIt) {
  const proof::Report report = Run({{"parallel.tp", 2}}, {{"batch.prefill_chunk", {100000}}}, false);
  EXPECT_EQ(report.finding.verdict, proof::Verdict::kPass);
  EXPECT_EQ(report.json["cases"][1]["materialization"], "fallback");
}

TEST_F(Matrix, WhatCannotBeBuiltIsAnErrorOfItsCase) {
  const proof::Report report = Run({{"parallel.tp", 2}}, {{"parallel.tp", {17}}, {"kv.prefix_cache", {true}}});
  EXPECT_EQ(report.finding.verdict, proof::Verdict::kKnobNotApplied);
  EXPECT_EQ(report.json["cases"][1]["materialization"], "error");
  EXPECT_EQ(report.json["cases"][2]["materialization"], "unsupported");
}

TEST_F(Matrix, WithoutABaseNothingFollows) {
  const proof::Report report = Run({{"parallel.tp", 17}}, {{"launch", {"threads"}}});
  EXPECT_EQ(report.finding.verdict, proof::Verdict::kKnobNotApplied);
  EXPECT_EQ(report.json["cases"].size(), 1U);
}

// Which of a base's settings no engine came up for is in the engine's own words.
TEST_F(Matrix, ABaseBlamesNoneOfItsSettings) {
  const proof::Report report = Run({{"launch", "threads"}, {"parallel.tp", 17}}, {{"launch", {"processes"}}});
  EXPECT_THAT(report.finding.message, testing::HasSubstr("17"));
  EXPECT_THAT(report.finding.message, testing::Not(testing::HasSubstr("launch")));
  EXPECT_EQ(report.json["cases"][0]["materialization"], "error");
  for (const Json& knob : report.json["cases"][0]["knobs"]) EXPECT_EQ(knob["evidence"], "no engine came up");
  EXPECT_EQ(lines_[0], "base: KNOB_NOT_APPLIED (82): " + report.finding.message + "\n");
}

TEST_F(Matrix, SettingsAreCheckedBeforeAnythingRuns) {
  proof::MatrixPlan plan;
  plan.cases = {{"base", {{"parallel.luck", 1}}, ""}};
  EXPECT_EQ(CheckSettings(plan, "").error().code, Code::kUsage);
  plan.cases = {{"base", {{"kv.prefix_cache", true}}, ""}};
  EXPECT_TRUE(CheckSettings(plan, "").ok()) << "a case of its own, not a mistake";
}

}  // namespace
}  // namespace trivet::engine
