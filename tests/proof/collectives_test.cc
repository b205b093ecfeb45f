// SPDX-License-Identifier: Apache-2.0
#include "proof/collectives.h"

#include <gtest/gtest.h>

#include "proof/gates.h"
#include "proof/synthetic.h"

namespace trivet::proof {
namespace {

RecordedRun Two() {
  SyntheticOptions options;
  options.sizes = {2, 1, 1, 1, 1};
  return MakeSynthetic(options);
}

TEST(Collectives, TheFingerprintCoversWhatMovesBits) {
  const Json record = Two().ranks[0].collectives[0];
  const Digest fingerprint = ReductionFingerprint(record);
  for (const char* field : {"kind", "actual", "ranks", "order", "owners", "payload", "accumulate", "round_at"}) {
    Json other = record;
    other[field] = "another";
    EXPECT_NE(ReductionFingerprint(other), fingerprint) << field;
  }
  for (const char* field : {"source", "notes", "calls"}) {
    Json other = record;
    other[field] = "another";
    EXPECT_EQ(ReductionFingerprint(other), fingerprint) << field;
  }
}

TEST(Collectives, DeltasDescribe) {
  const RecordedRun a = Two();
  RecordedRun b = Two();
  EXPECT_TRUE(DescribeReductions(a, b).empty());
  b.ranks[0].collectives[2]["round_at"] = "every addition";
  const std::vector<ReductionDelta> deltas = DescribeReductions(a, b);
  ASSERT_EQ(deltas.size(), 1U);
  EXPECT_EQ(deltas[0].field, "round_at");
  EXPECT_EQ(deltas[0].layer, 1);
  // A site that no rank has: with stages, one rank alone need not have it.
  for (auto& rank : b.ranks) rank.collectives.erase(rank.collectives.begin());
  EXPECT_EQ(DescribeReductions(a, b)[0].field, "record");
}

// Whichever rank adds otherwise; whom its sums are of has another name on every rank of other groups, and moves no bit.
TEST(Collectives, DeltasOfAnyRank) {
  const RecordedRun a = Two();
  RecordedRun b = Two();
  b.ranks[1].collectives[2]["ranks"] = Json::array({2, 3});
  EXPECT_TRUE(DescribeReductions(a, b).empty());
  b.ranks[1].collectives[2]["order"] = "from the own rank";
  const std::vector<ReductionDelta> deltas = DescribeReductions(a, b);
  ASSERT_EQ(deltas.size(), 1U);
  EXPECT_EQ(deltas[0].field, "order");
  EXPECT_EQ(deltas[0].layer, 1);
  EXPECT_EQ(deltas[0].a, a.ranks[1].collectives[2]["order"]);
  EXPECT_EQ(deltas[0].b, Json::array({deltas[0].a, "from the own rank"}));
}

TEST(Collectives, TheSumBeforeAPlace) {
  RecordedRun run = Two();
  EXPECT_EQ(ReductionBefore(run, 1, record::Site::kRoute)["site"], "resid1");
  EXPECT_EQ(ReductionBefore(run, 1, record::Site::kRoute)["layer"], 1);
  EXPECT_EQ(ReductionBefore(run, 2, record::Site::kEmbed)["site"], "resid2");
  EXPECT_TRUE(ReductionBefore(run, -1, record::Site::kEmbed).is_null());
  // The rank that rounds otherwise speaks.
  run.ranks[1].collectives[2]["round_at"] = "bf16";
  EXPECT_EQ(ReductionBefore(run, 1, record::Site::kRoute)["round_at"], "bf16");
}

Verdict Of(const RecordedRun& run) {
  const Gate gate = CheckCollectives(run);
  return gate ? gate->verdict : Verdict::kPass;
}

TEST(Collectives, WhatIsNoRecordOfASumIsNone) {
  const struct {
    const char* field;
    Json value;
  } cases[] = {{"ranks", Json::array()}, {"ranks", 2}, {"layer", "0"}, {"site", 7}, {"source", 5}};
  for (const auto& one : cases) {
    RecordedRun run = Two();
    run.ranks[1].collectives[3][one.field] = one.value;
    EXPECT_EQ(Of(run), Verdict::kMissingProvenance) << one.field << " " << one.value;
  }
}

TEST(Collectives, AFallbackWithAReasonIsARecord) {
  RecordedRun run = Two();
  Json& record = run.ranks[1].collectives[3];
  record["actual"] = "two-shot";
  for (const Json& none : {Json(), Json(""), Json(5)}) {
    record["fallback_reason"] = none;
    EXPECT_EQ(Of(run), Verdict::kSilentFallback) << none;
  }
  record["fallback_reason"] = "the message is long";
  EXPECT_EQ(Of(run), Verdict::kPass);
}

TEST(Collectives, ARankWithoutWorkOwesNoSum) {
  RecordedRun run = Two();
  run.ranks[1].collectives.clear();
  EXPECT_EQ(Of(run), Verdict::kMissingProvenance);
  run.ranks[1].rows.clear();
  EXPECT_EQ(Of(run), Verdict::kPass);
}

// Rows that come together have records of their own, wherever a layout says that they do.
TEST(Collectives, GathersAreSites) {
  const auto lacks = [](const SyntheticOptions& options, record::Site site, int64_t layer) {
    RecordedRun run = MakeSynthetic(options);
    EXPECT_EQ(Of(run), Verdict::kPass);
    const auto gone = std::erase_if(run.ranks[1].collectives, [&](const Json& record) {
      return record["site"] == record::SiteName(site) && record["layer"] == layer;
    });
    EXPECT_EQ(gone, 1U) << record::SiteName(site);
    return Of(run);
  };
  SyntheticOptions shared, dealt;
  shared.sizes = {1, 2, 1, 1, 1};
  dealt.sizes = {2, 1, 1, 1, 1};
  dealt.sp = true;
  EXPECT_EQ(lacks(shared, record::Site::kShown, 3), Verdict::kMissingProvenance);
  EXPECT_EQ(lacks(shared, record::Site::kReturned, kSyntheticDelta), Verdict::kMissingProvenance);
  for (const auto site : {record::Site::kMixerNorm, record::Site::kChannelsNorm, record::Site::kRouter}) {
    EXPECT_EQ(lacks(dealt, site, 2), Verdict::kMissingProvenance);
  }
}

// A rank that lacks the site does not speak for it, and does not stand in the way.
TEST(Collectives, TheSumBeforeAPlaceIsOfARankThatHasIt) {
  RecordedRun run = Two();
  run.ranks[0].collectives.clear();
  EXPECT_EQ(ReductionBefore(run, 1, record::Site::kRoute)["site"], "resid1");
}

}  // namespace
}  // namespace trivet::proof
