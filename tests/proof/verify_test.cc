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

constexpr const char* kLayoutFacts[] = {"/schema",
                                        "/group",
                                        "/world",
                                        "/rank_order",
                                        "/sizes",
                                        "/sizes/tp",
                                        "/sp",
                                        "/cp_layout",
                                        "/split_order",
                                        "/expert_group_over",
                                        "/stages",
                                        "/stages/0",
                                        "/stages/0/pp",
                                        "/stages/0/layers",
                                        "/stages/0/layers/0",
                                        "/stages/0/layers/0/1",
                                        "/dp_assignment",
                                        "/dp_assignment/requests",
                                        "/dp_assignment/requests/1",
                                        "/experts/channels",
                                        "/experts/channels/1",
                                        "/experts/channels/1/1",
                                        "/experts/width"};
constexpr const char* kRunFacts[] = {"/schema",
                                     "/level",
                                     "/layers",
                                     "/hidden",
                                     "/identity/contract",
                                     "/router/layers",
                                     "/router/layers/1",
                                     "/router/experts",
                                     "/router/gate",
                                     "/claims",
                                     "/claims/0",
                                     "/placement",
                                     "/placement/0",
                                     "/requests",
                                     "/requests/1",
                                     "/requests/1/request",
                                     "/requests/1/computed",
                                     "/requests/1/logits_from",
                                     "/knobs",
                                     "/knobs/0",
                                     "/knobs/0/path",
                                     "/knobs/0/status",
                                     "/knobs/0/actual"};

// Whatever stands where a fact must, no run with it is in order.
TEST(Verify, AFactOfAnotherKindIsRefused) {
  SyntheticOptions options;
  options.sizes = {2, 1, 1, 1, 1};
  options.expert_group_over = {Dimension::kTp};
  const RecordedRun sound = MakeSynthetic(options);
  const Json others[] = {nullptr, "x", -7, 2.5, Json::array({"x"}), Json::array({Json::array()}), {{"x", 1}}};
  const auto check = [&](bool of_layout, const char* at) {
    for (const Json& other : others) {
      RecordedRun changed = sound;
      (of_layout ? changed.layout : changed.run)[Json::json_pointer(at)] = other;
      const Report report = Verify({{"changed", EncodeRun(changed)}}, {});
      EXPECT_NE(report.finding.verdict, Verdict::kPass)
          << (of_layout ? "layout.json " : "run.json ") << at << " " << other;
    }
  };
  for (const char* at : kLayoutFacts) check(true, at);
  for (const char* at : kRunFacts) check(false, at);
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
