// SPDX-License-Identifier: Apache-2.0
// Runs without a fault: whatever the layout, each is in order and equal to that of one rank.
#include <map>

#include "tests/ranks/recorded_runs.h"

namespace trivet {
namespace {

using engine::Launch;
using kernels::Numerics;
using proof::Verdict;
using Setting = RunSetting;

class LayoutsRecorded : public RecordedRuns {};

// Number `which` of runs of three requests of 20, 21 and 22 tokens, all of which are equal.
proof::RecordedRun AllEqual(const std::vector<proof::NamedFiles>& runs, size_t which) {
  const proof::Report report = proof::Verify(runs, {});
  EXPECT_EQ(report.finding.verdict, Verdict::kPass) << report.finding.message;
  for (const Json& comparison : report.json["comparisons"]) EXPECT_EQ(comparison["decisions"], (20 + 21 + 22) * 8);
  proof::RecordedRun run;
  EXPECT_FALSE(proof::CheckRun(runs[which].files, &run));
  return run;
}

TEST_F(LayoutsRecorded, OneLayoutGivesEqualRuns) {
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    const proof::NamedFiles first = Record({"", numerics}, record::Level::kFull);
    const proof::NamedFiles second = Record({"", numerics, 3, Launch::kProcesses}, record::Level::kFull);
    const proof::Report report = proof::Verify({first, second}, {true});
    EXPECT_EQ(report.finding.verdict, Verdict::kPass) << report.finding.message;
    EXPECT_EQ(Member(report.json["comparisons"][0], "decisions"), 20 * 8);
  }
}

TEST_F(LayoutsRecorded, LayoutsOfOneModelAreEqual) {
  std::vector<proof::NamedFiles> runs = {Record({"", Numerics::kExact, 1}, record::Level::kFull)};
  for (const int64_t ranks : {2, 3, 5}) {  // of five, two have dummy channels alone
    for (const char* cut : {"width", "whole", "replicate", "width-pad", "whole-pad"}) {
      runs.push_back(Record({"", Numerics::kExact, ranks, Launch::kThreads, 20, cut}, record::Level::kFull));
    }
  }
  const proof::Report report = proof::Verify(runs, {});
  EXPECT_EQ(report.finding.verdict, Verdict::kPass) << report.finding.message;
}

// Stages and replicas are facts of the record: who holds what follows from them, and it is held.
TEST_F(LayoutsRecorded, StagesAndReplicasAreEqualToOneRank) {
  const struct {
    int64_t ranks, stages, replicas;
    Launch launch;
  } layouts[] = {{1, 1, 1, Launch::kThreads},   {2, 2, 1, Launch::kThreads}, {1, 3, 1, Launch::kProcesses},
                 {1, 1, 2, Launch::kProcesses}, {3, 1, 2, Launch::kThreads}, {3, 2, 2, Launch::kProcesses}};
  for (const record::Level level : {record::Level::kDigest, record::Level::kFull}) {
    std::vector<proof::NamedFiles> runs;
    for (const auto& one : layouts) {
      runs.push_back(Record(
          {"", Numerics::kExact, one.ranks, one.launch, 20, {}, one.stages, one.replicas, /*requests=*/5}, level));
    }
    const proof::Report report = proof::Verify(runs, {});
    ASSERT_EQ(report.finding.verdict, Verdict::kPass) << report.finding.message;
    ASSERT_EQ(report.json["comparisons"].size(), 5U);
    for (const Json& comparison : report.json["comparisons"]) {
      EXPECT_EQ(comparison["decisions"], (20 + 21 + 22 + 23 + 24) * 8);
      EXPECT_EQ(comparison["logits_rows"], 5);
    }
    proof::RecordedRun run;
    ASSERT_FALSE(proof::CheckRun(runs.back().files, &run));
    // The last layer of the second request: the ranks of the last stage of the second replica.
    EXPECT_EQ(run.tokens.Carriers({7, record::GlobalToken(1, 3)}), (std::vector<int64_t>{9, 10, 11}));
    EXPECT_EQ(run.tokens.Carriers({0, record::GlobalToken(0, 3)}), (std::vector<int64_t>{0, 1, 2}));
    EXPECT_EQ(run.logits.size(), level == record::Level::kFull ? 5U : 0U) << "of all replicas";
  }
}

// So are shares of sequences. Token by token, as runs decode, most ranks have no rows in a step.
TEST_F(LayoutsRecorded, SharesOfSequencesAreEqualToOneRank) {
  const struct {
    int64_t ranks, context, stages, replicas;
    Launch launch;
  } layouts[] = {{1, 1, 1, 1, Launch::kThreads},
                 {1, 2, 1, 1, Launch::kThreads},
                 {2, 3, 1, 1, Launch::kProcesses},
                 {1, 3, 2, 2, Launch::kThreads}};
  for (const record::Level level : {record::Level::kDigest, record::Level::kFull}) {
    std::vector<proof::NamedFiles> runs;
    for (const auto& one : layouts) {
      Setting setting{"", Numerics::kExact, one.ranks, one.launch, 20, {}, one.stages, one.replicas, /*requests=*/3};
      setting.context = one.context;
      setting.prefill_chunk = level == record::Level::kFull ? 1 : 0;
      runs.push_back(Record(setting, level));
    }
    const proof::RecordedRun run = AllEqual(runs, 2);
    // Six chunks of two positions, of which the fifth has one and the sixth none: 0 0 1 1 2 2 2 2 1.
    EXPECT_EQ(run.tokens.Carriers({7, record::GlobalToken(1, 3)}), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(run.tokens.Carriers({0, record::GlobalToken(0, 9 + 7)}), (std::vector<int64_t>{4, 5}));
    EXPECT_EQ(run.tokens.Carriers({0, record::GlobalToken(0, 9 + 8)}), (std::vector<int64_t>{2, 3}));
    // Every rank computed its own positions and no others.
    size_t total = 0;
    for (const proof::RankRun& rank : run.ranks) total += rank.rows.size();
    EXPECT_EQ(total, (20U + 21U + 22U) * 2U) << "once for each rank that cuts a layer";
  }
}

// Rows that are dealt are facts of the record: each is kept by one of the ranks that cut a layer.
TEST_F(LayoutsRecorded, RowsThatAreDealtAreEqualToOneRank) {
  const struct {
    int64_t ranks, context, stages, replicas;
    Launch launch;
    const char* experts;
  } layouts[] = {{1, 1, 1, 1, Launch::kThreads, ""},        {2, 1, 1, 1, Launch::kThreads, "width"},
                 {3, 1, 1, 1, Launch::kProcesses, "whole"}, {3, 1, 2, 1, Launch::kThreads, "replicate"},
                 {2, 3, 1, 1, Launch::kProcesses, "whole"}, {2, 2, 2, 2, Launch::kThreads, "width"}};
  for (const record::Level level : {record::Level::kDigest, record::Level::kFull}) {
    std::vector<proof::NamedFiles> runs;
    for (const auto& one : layouts) {
      Setting setting{"", Numerics::kExact, one.ranks, one.launch, 20, one.experts, one.stages, one.replicas, 3};
      setting.context = one.context;
      setting.dealt = true;
      setting.prefill_chunk = level == record::Level::kFull ? 1 : 0;
      runs.push_back(Record(setting, level));
    }
    const proof::RecordedRun run = AllEqual(runs, 4);
    // 0 0 1 1 2 2 2 2 1 by context, and of each the first half, rounded up, is the first rank's.
    EXPECT_EQ(run.tokens.Carriers({7, record::GlobalToken(1, 3)}), (std::vector<int64_t>{2}));
    EXPECT_EQ(run.tokens.Carriers({0, record::GlobalToken(0, 9 + 1)}), (std::vector<int64_t>{1}));
    EXPECT_EQ(run.tokens.Carriers({0, record::GlobalToken(0, 9 + 8)}), (std::vector<int64_t>{3}));
    size_t total = 0;
    for (const proof::RankRun& rank : run.ranks) total += rank.rows.size();
    EXPECT_EQ(total, 20U + 21U + 22U) << "once";
    // How rows came together has a record of its own.
    std::map<std::string, int64_t> kinds;
    for (const Json& record : run.ranks[0].collectives) {
      if (record["layer"] == 0) kinds[record["site"].get<std::string>() + " " + record["kind"].get<std::string>()] += 1;
    }
    for (const char* site : {"norm1 gather", "shown gather", "returned gather", "resid1 reduce-scatter", "norm2 gather",
                             "router gather", "resid2 reduce-scatter"}) {
      EXPECT_EQ(kinds[site], 1) << site;
    }
  }
}

}  // namespace
}  // namespace trivet
