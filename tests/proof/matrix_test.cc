// SPDX-License-Identifier: Apache-2.0
#include "proof/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proof/rank_files.h"
#include "proof/synthetic.h"

namespace trivet::proof {
namespace {

using testing::HasSubstr;

Json Plan() {
  return ParseJson(R"({"schema": "trivet.matrix.v1", "model": "demo", "tokens": [[1, 2], [3]],
                       "base": {"parallel.tp": 3, "launch": "threads"},
                       "vary": {"parallel.tp": [1, 2], "cut.attn": ["pad"]}})",
                   "plan")
      .value();
}

TEST(MatrixPlan, EveryCaseChangesOneSetting) {
  const Result<MatrixPlan> plan = ParseMatrixPlan(Plan(), "plan");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->cases.size(), 4U);
  EXPECT_EQ(plan->cases[0].name, "base");
  EXPECT_EQ(plan->cases[1].name, "parallel.tp=1");
  EXPECT_EQ(plan->cases[1].varied, "parallel.tp");
  EXPECT_EQ(plan->cases[1].settings[0].second, 1);
  EXPECT_EQ(plan->cases[1].settings[1].second, "threads");
  EXPECT_EQ(plan->cases[3].settings.size(), 3U) << "the base leaves the cut to the engine";
  EXPECT_EQ(plan->level, record::Level::kDigest);
  EXPECT_TRUE(plan->strict);
  EXPECT_EQ(plan->tokens, (std::vector<std::vector<TokenId>>{{1, 2}, {3}}));
}

TEST(MatrixPlan, WhatIsWrongIsNamed) {
  const struct {
    const char* key;
    Json value;
    const char* word;
  } cases[] = {{"variations", Json::object(), "\"variations\""},
               {"schema", "trivet.matrix.v2", "trivet.matrix.v1"},
               {"model", 3, "model"},
               {"model", "", "model"},
               {"level", "off", "digest, rows or full"},
               {"strict", "yes", "strict"},
               {"tokens", Json::array(), "tokens"},
               {"tokens", Json::array({Json::array({-1})}), "token ids"},
               {"tokens", Json::array({Json::array()}), "none empty"},
               {"texts", Json::array({"a"}), "both"},
               {"base", Json::array(), "base"},
               {"vary", Json::array(), "vary"},
               {"vary", Json::object(), "at least one setting"},
               {"vary", {{"parallel.tp", 2}}, "parallel.tp"},
               {"vary", {{"parallel.tp", Json::array({3})}}, "another value"},
               {"vary", {{"parallel.tp", Json::array({1, 2, 1})}}, "every value once"},
               {"vary", {{"cut.attn", Json::array({"pad", "pad"})}}, "every value once"}};
  for (const auto& one : cases) {
    Json plan = Plan();
    plan[one.key] = one.value;
    const Result<MatrixPlan> parsed = ParseMatrixPlan(plan, "plan");
    ASSERT_FALSE(parsed.ok()) << one.key << DumpJson(one.value);
    EXPECT_THAT(parsed.error().message, HasSubstr(one.word));
  }
  for (const Json& texts : {Json::array({""}), Json::array({7}), Json::array()}) {
    Json plan = Plan();
    plan.erase("tokens");
    plan["texts"] = texts;
    const Result<MatrixPlan> parsed = ParseMatrixPlan(plan, "plan");
    ASSERT_FALSE(parsed.ok()) << texts;
    EXPECT_THAT(parsed.error().message, HasSubstr("\"texts\""));
  }
  Json neither = Plan();
  neither.erase("tokens");
  EXPECT_THAT(ParseMatrixPlan(neither, "plan").error().message, HasSubstr("neither"));
  EXPECT_THAT(ParseMatrixPlan(Json::array({1}), "plan").error().message, HasSubstr("found array"));
  Json many = Plan();
  for (int i = 10; i < 300; ++i) many["vary"]["parallel.tp"].push_back(i);
  EXPECT_EQ(ParseMatrixPlan(many, "plan").error().code, Code::kCapacity);
}

const std::vector<Application> kApplied = {
    {{"parallel.tp", Scope::kProcess, 1, 1, 1, "communicator"}, Materialization::kApplied}};

TEST(MatrixReport, NamesTheFirstCaseThatDiffers) {
  SyntheticOptions two;
  two.sizes = {2, 1, 1, 1, 1};
  RecordedRun other = MakeSynthetic(two);
  for (RankRun& rank : other.ranks) rank.bounds[0].digest.low ^= 1;
  MatrixReport report;
  report.Add({"base", {}, ""}, kApplied, {"r0", EncodeRun(MakeSynthetic({}))});
  EXPECT_TRUE(report.has_base());
  EXPECT_THAT(report.line(), HasSubstr("base: PASS (0): 48 decisions in 48 copies"));
  report.Add({"tp=2", {}, "tp"}, kApplied, {"r1", EncodeRun(MakeSynthetic(two))});
  EXPECT_THAT(report.line(), HasSubstr("tp=2: PASS (0): 48 decisions"));
  report.Add({"bad", {}, "tp"}, kApplied, {"r2", EncodeRun(other)});
  report.Refuse({"last", {}, "tp"}, {}, {Verdict::kKnobNotApplied, "no"});
  const Report whole = report.Finish();
  EXPECT_EQ(whole.finding.verdict, Verdict::kBoundaryDigestMismatch);
  EXPECT_EQ(whole.json["finding"]["case"], "bad");
  ASSERT_EQ(whole.json["cases"].size(), 4U);
  EXPECT_EQ(whole.json["cases"][1]["decisions"], 48);
  EXPECT_EQ(whole.json["cases"][1]["grade"], "bits");
  EXPECT_EQ(whole.json["cases"][3]["verdict"], 82);
  EXPECT_EQ(whole.json["cases"][3]["materialization"], "error");
}

TEST(MatrixReport, ABaseThatDoesNotStandIsNone) {
  Files files = EncodeRun(MakeSynthetic({}));
  files.erase("COMPLETE");
  MatrixReport report;
  report.Add({"base", {}, ""}, kApplied, {"r0", files});
  EXPECT_FALSE(report.has_base());
  EXPECT_EQ(report.Finish().finding.verdict, Verdict::kIncompleteArtifact);
}

}  // namespace
}  // namespace trivet::proof
