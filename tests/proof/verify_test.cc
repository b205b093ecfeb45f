// SPDX-License-Identifier: Apache-2.0
#include "proof/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "proof/rank_files.h"
#include "proof/synthetic.h"

namespace trivet::proof {
namespace {

using testing::HasSubstr;

TEST(Verify, ReportsCountsForMachinesAndPeople) {
  SyntheticOptions options;
  options.sizes = {2, 1, 1, 1, 1};
  const Report report = Verify({{"a", EncodeRun(MakeSynthetic({}))}, {"b", EncodeRun(MakeSynthetic(options))}}, {});
  EXPECT_EQ(report.finding.verdict, Verdict::kPass);
  EXPECT_EQ(report.json["verdict"], 0);
  EXPECT_EQ(report.json["runs"][1]["counts"]["decision_copies"], 2 * 48);
  EXPECT_EQ(report.json["comparisons"][0]["decisions"], 48);
  EXPECT_EQ(report.json["comparisons"][0]["grade"], "bits");
  EXPECT_THAT(report.text, HasSubstr("48 decisions"));
}

// The first failing run speaks, and nothing is compared with it.
TEST(Verify, AFailingRunIsNotCompared) {
  Files bad = EncodeRun(MakeSynthetic({}));
  bad.erase("COMPLETE");
  const Report report = Verify({{"a", EncodeRun(MakeSynthetic({}))}, {"b", bad}, {"c", bad}}, {});
  EXPECT_EQ(report.finding.verdict, Verdict::kIncompleteArtifact);
  EXPECT_EQ(report.json["finding"]["run"], "b");
  EXPECT_EQ(report.json["runs"].size(), 3U);
  EXPECT_TRUE(report.json["comparisons"].empty());
}

// 100,000 decisions in each of two runs of two ranks.
TEST(Verify, ManyDecisionsTakeSeconds) {
  SyntheticOptions options;
  options.level = record::Level::kDigest;
  options.lengths = {20000, 5000};
  SyntheticOptions two = options;
  two.sizes = {2, 1, 1, 1, 1};
  const std::vector<NamedFiles> runs = {{"a", EncodeRun(MakeSynthetic(options))}, {"b", EncodeRun(MakeSynthetic(two))}};
  const int64_t begin = NowUs();
  const Report report = Verify(runs, {});
  EXPECT_EQ(report.finding.verdict, Verdict::kPass) << report.finding.message;
  EXPECT_EQ(report.json["comparisons"][0]["decisions"], 100000);
  EXPECT_LT(NowUs() - begin, 20000000) << "an order of magnitude of room for slow machines and sanitizers";
}

}  // namespace
}  // namespace trivet::proof
