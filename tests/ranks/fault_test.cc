// SPDX-License-Identifier: Apache-2.0
// Planted faults: each mistake that a layout can hide is found by verifying the recorded run, and the finding names the
// place.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "proof/rank_files.h"
#include "proof/verify.h"
#include "tests/io/temp_dir.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

using engine::Launch;
using kernels::Numerics;
using proof::Verdict;
using testing::StartsWith;

// How a run is made.
struct Setting {
  std::string fault;
  Numerics numerics = Numerics::kExact;
  int64_t ranks = 3;
  Launch launch = Launch::kThreads;
  int64_t tokens = 20;
  std::string experts = {};  // cut
  int64_t stages = 1, replicas = 1, requests = 1;
  int64_t ep = 0, prefill_chunk = 0;  // 0: as the engine chooses
  std::string model = {};             // of the golden cases; empty: the demo
  int64_t context = 1;                // in stretches of 9, zigzag
  bool dealt = false;                 // rows to the ranks that cut a layer
};

class PlantedFault : public testing::Test {
 protected:
  // Records and seals a run.
  proof::NamedFiles Record(const Setting& setting, record::Level level = record::Level::kRows) {
    engine::EngineOptions options;
    options.layout.ranks = setting.ranks;
    options.layout.stages = setting.stages;
    options.layout.replicas = setting.replicas;
    options.layout.context = setting.context;
    options.layout.context_split = plan::SequenceSplit::kZigzag;
    options.layout.context_stretch = 9;
    options.layout.sequence_parallel = setting.dealt;
    if (!setting.experts.empty()) options.layout.cuts["experts"] = setting.experts;
    options.layout.ep = setting.ep;
    if (setting.prefill_chunk > 0) options.prefill_chunk = setting.prefill_chunk;
    options.launch = setting.launch;
    options.numerics = setting.numerics;
    options.proof.level = level;
    options.proof.dir = dir_.Path("run" + std::to_string(runs_++));
    options.proof.command = "test";
    if (!setting.fault.empty()) {
      const Result<comm::Fault> parsed = comm::ParseFault(setting.fault);
      CHECK_MSG(parsed.ok(), parsed.error().message);
      options.fault = *parsed;
    }
    std::optional<engine::OpenedModel> other;
    if (!setting.model.empty()) other.emplace(support::Open(CaseDir(setting.model)));
    const engine::OpenedModel& model = other ? *other : model_;
    auto engine = engine::Engine::Start(model, options, {});
    CHECK_MSG(engine.ok(), engine.error().message);
    std::vector<std::vector<TokenId>> set;
    for (int64_t i = 0; i < setting.requests; ++i) {
      set.push_back(support::RandomTokens(setting.tokens + i, model.geometry.vocab, static_cast<uint64_t>(5 + i)));
    }
    const auto scored = engine::Score(engine->get(), {set, true, false});
    CHECK_MSG(scored.ok(), scored.error().message);
    const Status sealed = (*engine)->SealProof();
    CHECK_MSG(sealed.ok(), sealed.error().message);
    return {options.proof.dir, proof::ReadRunDir(options.proof.dir).value()};
  }
  // The finding for a run with a fault, compared with one without.
  proof::Finding Caught(const Setting& setting) {
    Setting clean = setting;
    clean.fault.clear();
    return proof::Verify({Record(clean), Record(setting)}, {}).finding;
  }

  const engine::OpenedModel model_ = support::Open(DemoDir());
  const TempDir dir_;
  int runs_ = 0;
};

// Number `which` of runs of three requests of 20, 21 and 22 tokens, all of which are equal.
proof::RecordedRun AllEqual(const std::vector<proof::NamedFiles>& runs, size_t which) {
  const proof::Report report = proof::Verify(runs, {});
  EXPECT_EQ(report.finding.verdict, Verdict::kPass) << report.finding.message;
  for (const Json& comparison : report.json["comparisons"]) EXPECT_EQ(comparison["decisions"], (20 + 21 + 22) * 8);
  proof::RecordedRun run;
  EXPECT_FALSE(proof::CheckRun(runs[which].files, &run));
  return run;
}

TEST_F(PlantedFault, WithoutOneRunsAreEqual) {
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    const proof::NamedFiles first = Record({"", numerics}, record::Level::kFull);
    const proof::NamedFiles second = Record({"", numerics, 3, Launch::kProcesses}, record::Level::kFull);
    const proof::Report report = proof::Verify({first, second}, {true});
    EXPECT_EQ(report.finding.verdict, Verdict::kPass) << report.finding.message;
    EXPECT_EQ(Member(report.json["comparisons"][0], "decisions"), 20 * 8);
  }
}

TEST_F(PlantedFault, LayoutsOfOneModelAreEqual) {
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
TEST_F(PlantedFault, StagesAndReplicasAreEqualToOneRank) {
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
TEST_F(PlantedFault, SharesOfSequencesAreEqualToOneRank) {
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
TEST_F(PlantedFault, RowsThatAreDealtAreEqualToOneRank) {
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

// The layout that is declared is not the one that was carried out.
TEST_F(PlantedFault, AnotherSplitThanDeclaredIsHeldByTheWrongRanks) {
  Setting setting{"other-split", Numerics::kExact, 1};
  setting.context = 2;
  const proof::NamedFiles run = Record(setting);
  EXPECT_EQ(Member(ParseJson(run.files.at("layout.json"), "layout.json").value(), "cp_layout"), "zigzag");
  const proof::Finding finding = proof::Verify({run}, {}).finding;
  EXPECT_EQ(finding.verdict, Verdict::kAmbiguousGlobalTokenMapping) << finding.message;
  EXPECT_EQ(finding.where["dimensions"], Json::array({"cp"}));
  // Stretches of 9 in chunks of 3, and not of 5: position 3 is the second share's by what is declared.
  EXPECT_EQ(finding.where["rank"], 0);
  EXPECT_EQ(finding.where["position"], 3);
}

TEST_F(PlantedFault, RowsThatAreDealtBeforeTheyAreSharedOutAreHeldByTheWrongRanks) {
  for (const Launch launch : {Launch::kThreads, Launch::kProcesses}) {
    Setting setting{"sp-first", Numerics::kExact, 2, launch};
    setting.context = 2;
    setting.dealt = true;
    const proof::NamedFiles run = Record(setting);
    const proof::Finding finding = proof::Verify({run}, {}).finding;
    EXPECT_EQ(finding.verdict, Verdict::kAmbiguousGlobalTokenMapping) << finding.message;
    // Every number is right: it is the map that is not.
    setting.fault.clear();
    EXPECT_EQ(Record(setting).files.at("logits.bin"), run.files.at("logits.bin"));
  }
}

TEST_F(PlantedFault, OfASumOfDealtRowsIsNamed) {
  Setting setting{"partial-bf16:rank=1:site=4"};
  setting.dealt = true;
  const proof::Finding finding = Caught(setting);
  EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch);
  EXPECT_THAT(finding.message, StartsWith("layer 2 resid1"));
  // What a rank shows is rounded: another one is misled.
  Setting shown{"hand-bf16:rank=1"};
  shown.dealt = true;
  const proof::Finding misled = Caught(shown);
  EXPECT_EQ(misled.verdict, Verdict::kBoundaryDigestMismatch);
  EXPECT_THAT(misled.message, StartsWith("layer 0 resid1"));
}

// What a rank shows to its context group has another rounding: the first to see it has the keys of an earlier share.
TEST_F(PlantedFault, RowsShownInBF16AreNamedByTheirAxis) {
  for (const Launch launch : {Launch::kThreads, Launch::kProcesses}) {
    Setting setting{"hand-bf16:rank=1", Numerics::kExact, 1, launch};
    setting.context = 2;
    const proof::Finding finding = proof::Verify({Record({"", Numerics::kExact, 1}), Record(setting)}, {}).finding;
    EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch);
    EXPECT_THAT(finding.message, StartsWith("layer 0 resid1, request 0"));
    EXPECT_EQ(finding.where["dimensions"], Json::array({"cp"}));
    EXPECT_EQ(finding.where["ranks"]["b"], Json::array({0})) << "which is not at fault, but the first to be misled";
  }
}

TEST_F(PlantedFault, OfOneShareIsNamedByItsAxis) {
  Setting setting{"partial-bf16:rank=3:site=6", Numerics::kExact, 2};
  const proof::NamedFiles one = Record({"", Numerics::kExact, 2});
  setting.context = 2;
  const proof::Finding finding = proof::Verify({one, Record(setting)}, {}).finding;
  EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch);
  EXPECT_THAT(finding.message, StartsWith("layer 3 resid1, request 0"));
  EXPECT_EQ(finding.where["dimensions"], Json::array({"cp"}));
  EXPECT_EQ(finding.where["ranks"]["b"], Json::array({2, 3}));
}

TEST_F(PlantedFault, RowsHandedOnInBF16AreNamedByTheirAxis) {
  for (const Launch launch : {Launch::kThreads, Launch::kProcesses}) {
    Setting setting{"hand-bf16:rank=0", Numerics::kExact, 1, launch, 20, {}, 2};
    const proof::Finding finding = proof::Verify({Record({"", Numerics::kExact, 1}), Record(setting)}, {}).finding;
    EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch);
    // The first site of the second stage.
    EXPECT_THAT(finding.message, StartsWith("layer 4 resid1"));
    EXPECT_EQ(finding.where["dimensions"], Json::array({"pp"}));
    EXPECT_EQ(finding.where["ranks"]["b"], Json::array({1}));
  }
}

// A stage hands on what it rounded, all of its ranks: the next one agrees on it.
TEST_F(PlantedFault, RowsHandedOnByAStageOfTwoAreNoDisagreement) {
  for (const int64_t rank : {0, 1}) {
    Setting setting{fmt::format("hand-bf16:rank={}", rank), Numerics::kExact, 2};
    setting.stages = 2;
    const proof::Finding finding = proof::Verify({Record({"", Numerics::kExact, 2}), Record(setting)}, {}).finding;
    EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch);
    EXPECT_THAT(finding.message, StartsWith("layer 4 resid1"));
    EXPECT_EQ(finding.where["dimensions"], Json::array({"pp"}));
    EXPECT_EQ(finding.where["ranks"]["b"], Json::array({2, 3}));
  }
}

TEST_F(PlantedFault, OfOneReplicaIsNamedByItsAxis) {
  const Setting one{"", Numerics::kExact, 2, Launch::kThreads, 20, {}, 1, 1, /*requests=*/2};
  Setting two = one;
  two.replicas = 2;
  two.fault = "partial-bf16:rank=3:site=6";
  const proof::Finding finding = proof::Verify({Record(one), Record(two)}, {}).finding;
  EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch);
  EXPECT_THAT(finding.message, StartsWith("layer 3 resid1, request 1"));
  EXPECT_EQ(finding.where["dimensions"], Json::array({"dp"}));
  EXPECT_EQ(finding.where["ranks"]["b"], Json::array({2, 3}));
}

// A step of the demo has 16 reduced sites: in every layer the mixer (gdn, gdn, gdn, attn, ...) and the experts.
TEST_F(PlantedFault, OfASumIsNamedInBothModes) {
  const struct {
    const char* fault;
    const char* place;
  } cases[] = {{"partial-bf16:rank=1:site=4", "layer 2 resid1"},
               {"partial-bf16:rank=2:site=15", "layer 7 resid2"},
               {"local-scale:rank=1:site=6", "layer 3 resid1"},
               {"local-scale:rank=2:site=1", "layer 0 resid2"}};
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    for (const auto& one : cases) {
      const proof::Finding finding = Caught({one.fault, numerics});
      EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch) << one.fault;
      EXPECT_THAT(finding.message, StartsWith(one.place)) << one.fault;
      // The record of the sum says where the value was rounded.
      EXPECT_NE(finding.where["reduction"]["a"]["round_at"], finding.where["reduction"]["b"]["round_at"]) << one.fault;
    }
  }
}

// Leaves are cut when weights are loaded: the first product of the rank shows it, that of the router, which all have.
TEST_F(PlantedFault, SplitLeavesAreADisagreementOfRanks) {
  const proof::Finding finding = Caught({"split-k:rank=1"});
  EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch);
  EXPECT_THAT(finding.message, StartsWith("layer 0 router"));
  EXPECT_EQ(finding.where["dimensions"], Json::array({"tp"}));
}

TEST_F(PlantedFault, RankOrderCannotMatterToIntegers) {
  EXPECT_EQ(Caught({"rank-order:rank=1"}).verdict, Verdict::kPass);
}

TEST_F(PlantedFault, AnExpertInAnothersSlotIsFoundInItsBytes) {
  for (const char* cut : {"whole", "width"}) {
    const proof::Report report =
        proof::Verify({Record({"wrong-slot:rank=1:site=2", Numerics::kExact, 3, Launch::kThreads, 20, cut})}, {});
    EXPECT_EQ(report.finding.verdict, Verdict::kSlotWeightDigestMismatch) << cut;
    EXPECT_EQ(report.finding.where["layer"], 2) << cut;
  }
}

TEST_F(PlantedFault, ABitOfAnExpertIsFoundInItsBytes) {
  for (const char* cut : {"whole", "width"}) {
    const proof::Report report =
        proof::Verify({Record({"weight-bit:rank=1:site=5", Numerics::kExact, 3, Launch::kThreads, 20, cut})}, {});
    EXPECT_EQ(report.finding.verdict, Verdict::kSlotWeightDigestMismatch) << cut;
    EXPECT_EQ(report.finding.where["layer"], 5) << cut;
  }
}

// The logits that all ranks agree on are recorded before, so the choice is what differs.
TEST_F(PlantedFault, ARouterThatRoundsOtherwiseIsADisagreementOfRanks) {
  const proof::Finding finding = Caught({"router-ulp:rank=2:site=3"});
  EXPECT_EQ(finding.verdict, Verdict::kRouteSemanticFingerprintMismatch);
  EXPECT_THAT(finding.message, StartsWith("layer 3 route"));
  EXPECT_EQ(finding.where["dimensions"], Json::array({"tp"}));
  // How near it was to another choice.
  EXPECT_EQ(finding.where["margins"].size(), 2U);
  EXPECT_EQ(finding.where["slot"], 0);
}

// Choosing among shares of the experts and then among those gives the same experts, so the record alone shows it.
TEST_F(PlantedFault, AChoiceAmongSharesIsFoundInItsRecord) {
  for (const Launch launch : {Launch::kThreads, Launch::kProcesses}) {
    const proof::NamedFiles clean = Record({""}),
                            faulty = Record({"local-topk:rank=1:site=3", Numerics::kExact, 3, launch});
    for (const char* file : {"decisions.bin", "bounds.bin"}) {
      EXPECT_EQ(clean.files.at(proof::RankPath(1, file)), faulty.files.at(proof::RankPath(1, file))) << file;
    }
    const proof::Finding finding = proof::Verify({faulty}, {}).finding;
    EXPECT_EQ(finding.verdict, Verdict::kForbiddenLocalShardTopk) << finding.message;
    EXPECT_EQ(finding.where["rank"], 1);
    EXPECT_EQ(finding.where["chosen_among"], 3) << "the smallest share of ten experts";
  }
}

// Where rows are dealt, every rank chooses and one notes the row: a rank that keeps none tells how it chose, too.
TEST_F(PlantedFault, AChoiceAmongSharesIsFoundOnARankThatKeepsNoRow) {
  Setting dealt{"local-topk:rank=2:site=3"};
  dealt.dealt = true;
  const proof::Finding finding = proof::Verify({Record(dealt)}, {}).finding;
  EXPECT_EQ(finding.verdict, Verdict::kForbiddenLocalShardTopk) << finding.message;
  EXPECT_EQ(finding.where["rank"], 2);
}

// Integers do not know in which order they were added, so the mistake is made in float32 there.
TEST_F(PlantedFault, ACombineInAnotherOrderIsNamedByItsAxis) {
  Setting groups{"combine-order:rank=1:site=2", Numerics::kExact, 2};
  groups.ep = 2;
  const proof::Finding finding = proof::Verify({Record({"", Numerics::kExact, 2}), Record(groups)}, {}).finding;
  EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch) << finding.message;
  EXPECT_THAT(finding.message, StartsWith("layer 2 resid2"));
  EXPECT_EQ(finding.where["dimensions"], Json::array({"ep"}));
  // Two addends have one order; a model with three experts a token shows that theirs counts in fast mode.
  Setting three{"combine-order:rank=0:site=2", Numerics::kFast, 1};
  three.model = "qwen3_moe";
  const proof::Finding fast = Caught(three);
  EXPECT_EQ(fast.verdict, Verdict::kBoundaryDigestMismatch) << fast.message;
  EXPECT_THAT(fast.message, StartsWith("layer 2 resid2"));
}

// 200 tokens are four blocks of keys, and 56 of them come in a step of their own.
TEST_F(PlantedFault, KeysSplitByTheSizeOfAStepDifferBetweenSchedules) {
  Setting whole{"split-kv:rank=1:site=0", Numerics::kExact, 3, Launch::kThreads, 200}, chunks = whole;
  whole.prefill_chunk = 256;
  chunks.prefill_chunk = 48;
  const proof::NamedFiles in_one = Record(whole);
  const proof::Finding finding = proof::Verify({in_one, Record(chunks)}, {}).finding;
  EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch) << finding.message;
  EXPECT_THAT(finding.message, StartsWith("layer 3 resid1, request 0"));
  EXPECT_EQ(finding.where["dimensions"], Json::array()) << "one layout";
  EXPECT_GE(finding.where["position"], 128) << "of two blocks, both halves are merged as without a split";
  chunks.fault.clear();
  EXPECT_EQ(proof::Verify({in_one, Record(chunks)}, {}).finding.verdict, Verdict::kPass) << "schedules move nothing";
}

TEST_F(PlantedFault, AMapThatChangesInAStepIsFoundInItsRows) {
  const proof::NamedFiles faulty =
      Record({"moved-map:rank=1:site=4", Numerics::kExact, 3, Launch::kThreads, 20, "whole"}, record::Level::kFull);
  const proof::Finding finding = proof::Verify({faulty}, {}).finding;
  EXPECT_EQ(finding.verdict, Verdict::kPlacementMapVersionMismatch) << finding.message;
  EXPECT_EQ(finding.where["rank"], 1);
  EXPECT_EQ(finding.where["layer"], 4);
  // The experts moved with the map, so every number is right.
  const proof::NamedFiles clean =
      Record({"", Numerics::kExact, 3, Launch::kThreads, 20, "whole"}, record::Level::kFull);
  EXPECT_EQ(faulty.files.at(proof::RankPath(1, "bounds.bin")), clean.files.at(proof::RankPath(1, "bounds.bin")));
  EXPECT_NE(faulty.files.at(proof::RankPath(1, "execute.bin")), clean.files.at(proof::RankPath(1, "execute.bin")));
}

// What is declared of who computes what, and what is done: the decisions of a request are where they do not belong.
TEST_F(PlantedFault, ARequestOfAnotherReplicaIsHeldByTheWrongRanks) {
  Setting setting{"other-replica", Numerics::kExact, 2};
  setting.replicas = 2;
  setting.requests = 2;
  const proof::Finding finding = proof::Verify({Record(setting)}, {}).finding;
  EXPECT_EQ(finding.verdict, Verdict::kAmbiguousGlobalTokenMapping) << finding.message;
  EXPECT_EQ(finding.where["rank"], 2) << "the first of the replica that computes what the other one owes";
  EXPECT_EQ(finding.where["request"], 0);
}

TEST_F(PlantedFault, AStageOfOneRankRecordsNoSum) {
  Setting setting{"partial-bf16:rank=0:site=6", Numerics::kExact, 1};
  proof::RecordedRun run;
  ASSERT_FALSE(proof::CheckRun(Record(setting).files, &run));
  int64_t rounded = 0;
  for (const Json& record : run.ranks[0].collectives) {
    EXPECT_EQ(record["kind"], "none");
    EXPECT_EQ(record["actual"], "none");
    rounded += record["round_at"] != "none";
  }
  EXPECT_EQ(rounded, 1) << "and the mistake is still made";
}

TEST_F(PlantedFault, AnotherAlgorithmIsASilentFallback) {
  const proof::Report report = proof::Verify({Record({"fallback"})}, {});
  EXPECT_EQ(report.finding.verdict, Verdict::kSilentFallback) << report.finding.message;
}

// Few tokens: every rank adds for itself, so the faulty one disagrees with the others at once.
TEST_F(PlantedFault, RankOrderInFastModeIsADisagreementOfRanks) {
  for (const Launch launch : {Launch::kThreads, Launch::kProcesses}) {
    const proof::Finding finding = Caught({"rank-order:rank=2", Numerics::kFast, 3, launch});
    EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch);
    EXPECT_THAT(finding.message, StartsWith("layer 0 resid1"));
    EXPECT_EQ(finding.where["dimensions"], Json::array({"tp"}));
  }
}

// Many tokens: the faulty rank adds a share for everybody, so all agree, on other bits than without the fault.
TEST_F(PlantedFault, RankOrderInFastModeShowsInSharedSums) {
  const proof::Finding finding = Caught({"rank-order:rank=1", Numerics::kFast, 3, Launch::kThreads, 200});
  EXPECT_EQ(finding.verdict, Verdict::kBoundaryDigestMismatch);
  EXPECT_THAT(finding.message, StartsWith("layer 0 resid1"));
  EXPECT_EQ(finding.where["reduction"]["b"]["order"], "from the own rank");
}

}  // namespace
}  // namespace trivet
