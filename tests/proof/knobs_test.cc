// SPDX-License-Identifier: Apache-2.0
#include "proof/knobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::proof {
namespace {

using testing::HasSubstr;

Application Of(Materialization status) { return {{"a", Scope::kEngine, 1, 1, 2, "somewhere"}, status}; }

TEST(Knobs, AppliedIsWhatWasReadBack) {
  EXPECT_EQ(StatusOf({"threads", Scope::kEngine, 0, 4, 4, "pool"}), Materialization::kApplied);
  EXPECT_EQ(StatusOf({"threads", Scope::kEngine, 0, 4, 2, "pool"}), Materialization::kFallback);
  EXPECT_EQ(StatusOf({"threads", Scope::kEngine, 0, 4, nullptr, ""}), Materialization::kUnobservable);
}

TEST(Knobs, WhoAsksForAValueGetsNoOther) {
  const Knob clamped{"batch.prefill_chunk", Scope::kEngine, 4096, 512, 512, "scheduler"};
  EXPECT_EQ(StatusOf(clamped), Materialization::kApplied) << "the engine does as planned";
  EXPECT_EQ(StatusOfAsked(clamped), Materialization::kFallback) << "and not as asked";
  const Knob named{"numerics.contract", Scope::kEngine, "exact", "trivet.exact.v1", "trivet.exact.v1", "rows", true};
  EXPECT_EQ(StatusOfAsked(named), Materialization::kApplied);
}

TEST(Knobs, JsonHasScopeAndStatus) {
  const Json json =
      KnobJson({"launch", Scope::kProcess, "threads", "threads", "threads", "ranks"}, Materialization::kApplied);
  EXPECT_EQ(json["scope"], "process");
  EXPECT_EQ(json["status"], "applied");
  EXPECT_EQ(KnobJson({"a", Scope::kDistributed, 1, 1, nullptr, ""}, Materialization::kError)["scope"],
            "distributed_context");
}

TEST(Knobs, TheWorstStatusCounts) {
  EXPECT_EQ(Aggregate({}), Materialization::kError);
  EXPECT_EQ(Aggregate({Of(Materialization::kApplied), Of(Materialization::kFallback)}), Materialization::kFallback);
  EXPECT_EQ(Aggregate({Of(Materialization::kUnsupported), Of(Materialization::kUnobservable)}),
            Materialization::kUnsupported);
}

TEST(Knobs, OnlyWhatAppliedIsExecutable) {
  EXPECT_FALSE(RequireExecutable({Of(Materialization::kApplied)}, true));
  EXPECT_FALSE(RequireExecutable({Of(Materialization::kFallback)}, false));
  for (const Materialization status : {Materialization::kFallback, Materialization::kUnobservable,
                                       Materialization::kUnsupported, Materialization::kError}) {
    const Gate gate = RequireExecutable({Of(Materialization::kApplied), Of(status)}, true);
    ASSERT_TRUE(gate);
    EXPECT_EQ(gate->verdict, Verdict::kKnobNotApplied);
    EXPECT_THAT(gate->message, HasSubstr(MaterializationName(status)));
    EXPECT_THAT(gate->message, HasSubstr("somewhere"));
    if (status != Materialization::kFallback) {
      EXPECT_TRUE(RequireExecutable({Of(status)}, false));
    }
  }
  EXPECT_TRUE(RequireExecutable({}, false));
}

}  // namespace
}  // namespace trivet::proof
