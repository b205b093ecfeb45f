// SPDX-License-Identifier: Apache-2.0
#include "engine/knobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proof/gates.h"
#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

using proof::Materialization;
using testing::HasSubstr;

class Knobs : public testing::Test {
 protected:
  // What became of settings, by path.
  std::map<std::string, Materialization> Asked(const std::vector<AskedKnob>& asked) {
    EngineOptions options;
    for (const AskedKnob& knob : asked) {
      const Status set = SetKnob(knob, &options);
      CHECK_MSG(set.ok(), set.error().message);
    }
    auto engine = Engine::Start(small_.model(), options, {});
    CHECK_MSG(engine.ok(), engine.error().message);
    std::map<std::string, Materialization> became;
    for (const proof::Application& one : Apply(asked, (*engine)->Knobs())) became[one.knob.path] = one.status;
    return became;
  }

  const SmallModel small_;
};

TEST_F(Knobs, AreReadBackFromWhatRuns) {
  for (const auto& [path, status] : Asked({{"parallel.tp", 3, ""},
                                           {"parallel.ep", 3, ""},
                                           {"launch", "processes", ""},
                                           {"numerics.contract", "portable", ""},
                                           {"backend", "cpu", ""},
                                           {"threads", 2, ""},
                                           {"kernels.rows", "ref", ""},
                                           {"kv.prefix_cache", false, ""},
                                           {"kv.dtype", "fp8", ""},
                                           {"kv.tokens", 1024, ""},
                                           {"batch.prefill_chunk", 7, ""},
                                           {"batch.prefill_budget", 9, ""},
                                           {"batch.max_sequences", 2, ""},
                                           {"cut.attn", "pad", ""}})) {
    EXPECT_EQ(status, Materialization::kApplied) << path;
  }
}

TEST_F(Knobs, StagesAndReplicasAreReadBack) {
  for (const auto& [path, status] : Asked({{"parallel.tp", 2, ""}, {"parallel.pp", 2, ""}, {"parallel.dp", 2, ""}})) {
    EXPECT_EQ(status, Materialization::kApplied) << path;
  }
}

TEST_F(Knobs, SharesOfSequencesAreReadBack) {
  for (const auto& [path, status] :
       Asked({{"parallel.cp", 2, ""}, {"parallel.cp_split", "zigzag", ""}, {"parallel.cp_stretch", 10, ""}})) {
    EXPECT_EQ(status, Materialization::kApplied) << path;
  }
  for (const auto& [path, status] : Asked({{"parallel.tp", 3, ""}, {"parallel.sp", true, ""}})) {
    EXPECT_EQ(status, Materialization::kApplied) << path;
  }
  engine::EngineOptions options;
  EXPECT_EQ(SetKnob({"parallel.sp", 1, ""}, &options).error().code, Code::kUsage);
  EXPECT_EQ(SetKnob({"parallel.cp_split", "round", ""}, &options).error().code, Code::kUsage);
}

TEST_F(Knobs, AnotherValueThanAskedForIsAFallback) {
  // Longer than the context; no whole page.
  auto became = Asked({{"batch.prefill_chunk", 100000, ""}, {"kv.tokens", 1000, ""}});
  EXPECT_EQ(became["batch.prefill_chunk"], Materialization::kFallback);
  EXPECT_EQ(became["kv.tokens"], Materialization::kFallback);
}

TEST_F(Knobs, WhatShowsNowhereIsUnobservable) {
  // One rank starts no other; this model has no dense channel mixer.
  auto became = Asked({{"launch", "processes", ""}, {"parallel.tp", 1, ""}});
  EXPECT_EQ(became["launch"], Materialization::kUnobservable);
  EXPECT_EQ(became["parallel.tp"], Materialization::kApplied);
}

// A run must not be refused for what its own engine wrote down.
TEST_F(Knobs, TheVerifierKnowsEveryOne) {
  EngineOptions options;
  options.layout.ranks = 2;
  auto engine = Engine::Start(small_.model(), options, {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  proof::RecordedRun run;
  run.run["knobs"] = Json::array();
  for (const proof::Knob& knob : (*engine)->Knobs()) {
    run.run["knobs"].push_back(proof::KnobJson(knob, proof::StatusOf(knob)));
  }
  const proof::Gate gate = proof::CheckKnobs(run);
  EXPECT_FALSE(gate) << gate->message;
}

TEST_F(Knobs, TheContractIsCalledByWhatWasAskedFor) {
  EngineOptions options;
  ASSERT_TRUE(SetKnob({"numerics.contract", "portable", ""}, &options).ok());
  auto engine = Engine::Start(small_.model(), options, {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  for (const proof::Knob& knob : (*engine)->Knobs()) {
    if (knob.path == "numerics.contract") {
      EXPECT_EQ(knob.requested, "portable");
    }
  }
}

TEST_F(Knobs, WrongNamesAndValuesAreRefused) {
  EngineOptions options;
  const Status unknown = SetKnob({"parallel.luck", 1, ""}, &options);
  EXPECT_EQ(unknown.error().code, Code::kUsage);
  EXPECT_THAT(unknown.error().message, HasSubstr("parallel.tp"));
  EXPECT_THAT(unknown.error().message, HasSubstr("parallel.luck"));
  for (const AskedKnob& asked : {AskedKnob{"parallel.tp", "three", ""}, AskedKnob{"parallel.tp", -1, ""},
                                 AskedKnob{"launch", "fork", ""}, AskedKnob{"numerics.contract", 1, ""},
                                 AskedKnob{"cut.attn", "sideways", ""}, AskedKnob{"kv.prefix_cache", "on", ""}}) {
    EXPECT_EQ(SetKnob(asked, &options).error().code, Code::kUsage) << asked.path;
  }
  EXPECT_EQ(SetKnob({"placement.map", "none.json", small_.dir().Path()}, &options).error().code, Code::kNotFound);
  EXPECT_EQ(SetKnob({"kv.prefix_cache", true, ""}, &options).error().code, Code::kUnsupported);
}

TEST_F(Knobs, TheVariedOneIsToBlame) {
  const std::vector<AskedKnob> asked = {{"parallel.tp", 3, ""}, {"backend", "cuda", ""}};
  const auto applied = NotApplied(asked, "backend", MakeError(Code::kUnsupported, "no GPU"));
  EXPECT_EQ(applied[0].status, Materialization::kUnobservable);
  EXPECT_EQ(applied[1].status, Materialization::kUnsupported);
  EXPECT_THAT(proof::RequireExecutable(applied, false)->message, HasSubstr("no GPU"));
  for (const proof::Application& one : NotApplied(asked, "", MakeError(Code::kCapacity, "full"))) {
    EXPECT_EQ(one.status, Materialization::kError);
    EXPECT_EQ(one.knob.evidence, "no engine came up") << "none is to blame";
  }
}

}  // namespace
}  // namespace trivet::engine
