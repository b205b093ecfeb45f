// SPDX-License-Identifier: Apache-2.0
#include "comm/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::comm {
namespace {

TEST(ParseFault, TakesEveryKind) {
  const std::pair<const char*, FaultKind> kinds[] = {{"partial-bf16", FaultKind::kPartialBF16},
                                                     {"rank-order", FaultKind::kRankOrder},
                                                     {"split-k", FaultKind::kSplitK},
                                                     {"local-scale", FaultKind::kLocalScale},
                                                     {"hand-bf16", FaultKind::kHandBF16},
                                                     {"weight-bit", FaultKind::kWeightBit},
                                                     {"router-ulp", FaultKind::kRouterUlp},
                                                     {"local-topk", FaultKind::kLocalTopK},
                                                     {"combine-order", FaultKind::kCombineOrder},
                                                     {"split-kv", FaultKind::kSplitKV},
                                                     {"moved-map", FaultKind::kMovedMap},
                                                     {"other-replica", FaultKind::kOtherReplica},
                                                     {"die", FaultKind::kDie},
                                                     {"hang", FaultKind::kHang}};
  for (const auto& [name, kind] : kinds) {
    const Result<Fault> fault = ParseFault(name);
    ASSERT_TRUE(fault.ok()) << name;
    EXPECT_EQ(fault->kind, kind);
    EXPECT_EQ(fault->rank, 0);
    EXPECT_EQ(fault->site, 0);
    EXPECT_EQ(fault->step, 0);
  }
}

TEST(ParseFault, TakesPlaceAndTimeInAnyOrder) {
  const Fault fault = *ParseFault("die:step=7:rank=2");
  EXPECT_EQ(fault.step, 7);
  EXPECT_EQ(fault.rank, 2);
  EXPECT_EQ(ParseFault("partial-bf16:site=5:rank=2")->site, 5);
  EXPECT_TRUE(fault.Hits(FaultKind::kDie, 2));
  EXPECT_FALSE(fault.Hits(FaultKind::kDie, 1));
  EXPECT_FALSE(fault.Hits(FaultKind::kHang, 2));
  EXPECT_FALSE(Fault().Hits(FaultKind::kDie, 0));
}

TEST(ParseFault, ANumberThatAKindDoesNotHaveIsRefused) {
  for (const char* text : {"die:site=3", "hang:rank=1:site=0", "partial-bf16:step=1", "rank-order:site=0",
                           "split-k:rank=1:site=2", "fallback:site=1", "hand-bf16:site=7", "sp-first:step=1"}) {
    const Result<Fault> fault = ParseFault(text);
    ASSERT_FALSE(fault.ok()) << text;
    EXPECT_EQ(fault.error().code, Code::kUsage);
    EXPECT_THAT(fault.error().message, testing::HasSubstr("which it does not have")) << text;
  }
}

TEST(ParseFault, AnythingElseIsAUsageErrorThatListsTheKinds) {
  for (const char* text : {"", "none", "Die", " die", "die:", "die:rank", "die:rank=", "die:rank=x", "die:rank=1=2",
                           "die:rank=1:", ":rank=1", "die:when=3", "die:=3", "die:rank=-1", "die:site=-1",
                           "die:step=-1", "die:rank=1:rank=2", "die:rank=99999999999999999999", "die\n"}) {
    const Result<Fault> fault = ParseFault(text);
    ASSERT_FALSE(fault.ok()) << text;
    EXPECT_EQ(fault.error().code, Code::kUsage);
    EXPECT_THAT(fault.error().message, testing::StartsWith("--fault: expected partial-bf16, rank-order, split-k"))
        << text;
  }
}

}  // namespace
}  // namespace trivet::comm
