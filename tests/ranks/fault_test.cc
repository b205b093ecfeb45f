// SPDX-License-Identifier: Apache-2.0
// Planted faults: each mistake that a layout can hide is found by verifying the recorded run, and the finding names the
// place.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/ranks/recorded_runs.h"

namespace trivet {
namespace {

using engine::Launch;
using kernels::Numerics;
using proof::Verdict;
using testing::StartsWith;
using Setting = RunSetting;

class PlantedFault : public RecordedRuns {
 protected:
  // The finding for a run with a fault, compared with one without.
  proof::Finding Caught(const Setting& setting) {
    Setting clean = setting;
    clean.fault.clear();
    return proof::Verify({Record(clean), Record(setting)}, {}).finding;
  }
};

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

// Of more ranks than experts some have no share, and the others have one expert.
TEST_F(PlantedFault, AChoiceAmongSharesOfOneExpertIsFoundInItsRecord) {
  const proof::NamedFiles clean = Record({"", Numerics::kExact, 11}),
                          faulty = Record({"local-topk:rank=10:site=3", Numerics::kExact, 11});
  EXPECT_EQ(clean.files.at("logits.bin"), faulty.files.at("logits.bin"));
  const proof::Finding finding = proof::Verify({faulty}, {}).finding;
  EXPECT_EQ(finding.verdict, Verdict::kForbiddenLocalShardTopk) << finding.message;
  EXPECT_EQ(finding.where["rank"], 10);
  EXPECT_EQ(finding.where["chosen_among"], 1);
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
