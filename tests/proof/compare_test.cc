// SPDX-License-Identifier: Apache-2.0
#include "proof/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "proof/synthetic.h"
#include "record/run_log.h"

namespace trivet::proof {
namespace {

using testing::HasSubstr;

Verdict Of(const Comparison& found) { return found.gate ? found.gate->verdict : Verdict::kPass; }

TEST(Compare, CountsWhatIsEqual) {
  SyntheticOptions options;
  options.sizes = {3, 1, 1, 2, 1};
  const Comparison found = Compare(MakeSynthetic({}), MakeSynthetic(options), {});
  EXPECT_EQ(Of(found), Verdict::kPass);
  EXPECT_EQ(found.decisions, 12 * 4);
  EXPECT_EQ(found.bounds, 12 * (1 + 4 * 3) + (12 - 4));
  EXPECT_EQ(found.logits_rows, 12 - 4);
  EXPECT_EQ(found.logits_bytes, (12 - 4) * 8 * 4);
  EXPECT_EQ(found.dimensions, (std::vector<std::string>{"tp", "pp"}));
  EXPECT_GT(found.reductions, 0);
}

// The last expert of a decision changes: the slot, both experts and how near the choice was are named.
TEST(Compare, ADecisionIsShownWithItsMargin) {
  const RecordedRun a = MakeSynthetic({});
  RecordedRun b = MakeSynthetic({});
  const std::span<record::RouteSlot> slots = b.ranks[0].routes.Slots(5);
  for (uint16_t expert = 0; expert < kSyntheticExperts; ++expert) {
    if (expert != slots[0].expert && expert != slots[1].expert) slots[1].expert = expert;
  }
  b.ranks[0].decisions[5].digest = record::DecisionDigest(SyntheticDomain(), b.ranks[0].routes.heads[5], slots);
  const Comparison found = Compare(a, b, {});
  ASSERT_EQ(Of(found), Verdict::kRouteSemanticFingerprintMismatch);
  const Json& where = found.gate->where;
  EXPECT_EQ(where["slot"], 1);
  EXPECT_EQ(where["experts"], Json::array({a.ranks[0].routes.Slots(5)[1].expert, slots[1].expert}));
  EXPECT_GT(where["margins"][0], 0.0);
  EXPECT_EQ(where["near_tie"], false);
  EXPECT_EQ(where["classification"], "origin");
  EXPECT_EQ(Grade(a, b), "different");
}

TEST(Compare, ALogitIsShownByItsBits) {
  const RecordedRun a = MakeSynthetic({});
  RecordedRun b = MakeSynthetic({});
  const int64_t token = record::GlobalToken(1, 3);
  b.logits[token][6] = 1.5F;
  for (record::BoundRecord& bound : b.ranks[0].bounds) {
    if (bound.site == record::Site::kLogits && bound.token == token) bound.digest = {};
  }
  const Comparison found = Compare(a, b, {});
  ASSERT_EQ(Of(found), Verdict::kLogitsBytesMismatch);
  EXPECT_EQ(found.gate->where["id"], 6);
  EXPECT_EQ(found.gate->where["logits"][1], "3fc00000");
  EXPECT_EQ(found.gate->where["request"], 1);
}

// Of several differences the one that the others follow from.
TEST(Compare, TheEarliestSpeaks) {
  const RecordedRun a = MakeSynthetic({});
  RecordedRun b = MakeSynthetic({});
  for (record::BoundRecord& bound : b.ranks[0].bounds) {
    if (bound.layer >= 2) bound.digest.low ^= 1;
  }
  for (record::DecisionRecord& decision : b.ranks[0].decisions) decision.digest.low ^= decision.layer >= 2;
  const Comparison found = Compare(a, b, {});
  EXPECT_EQ(Of(found), Verdict::kBoundaryDigestMismatch);
  EXPECT_THAT(found.gate->message, HasSubstr("layer 2 resid1, request 0, position 0"));
}

// What follows another sampled token is not compared; what comes before is.
TEST(Compare, ADivergenceEndsTheComparison) {
  const RecordedRun a = MakeSynthetic({});
  RecordedRun b = MakeSynthetic({});
  b.run["requests"][0]["sampled"][2] = 7777;  // position 5
  for (record::BoundRecord& bound : b.ranks[0].bounds) {
    if (record::RequestOf(bound.token) == 0 && record::PositionOf(bound.token) >= 5) bound.digest.low ^= 1;
  }
  const Comparison found = Compare(a, b, {});
  ASSERT_EQ(Of(found), Verdict::kSampledTokenDiverged);
  EXPECT_EQ(found.gate->where["position"], 5);
  for (record::BoundRecord& bound : b.ranks[0].bounds) {
    if (record::RequestOf(bound.token) == 0 && record::PositionOf(bound.token) == 4) bound.digest.low ^= 1;
  }
  EXPECT_EQ(Of(Compare(a, b, {})), Verdict::kBoundaryDigestMismatch);
}

TEST(Compare, RunsOfOtherWorkAreNamedByWhatDiffers) {
  const RecordedRun a = MakeSynthetic({});
  const auto what = [&](const std::function<void(RecordedRun*)>& edit) {
    RecordedRun b = MakeSynthetic({});
    edit(&b);
    const Comparison found = Compare(a, b, {});
    EXPECT_EQ(Of(found), Verdict::kIdentityDrift);
    return found.gate ? found.gate->where["what"].get<std::string>() : "";
  };
  EXPECT_EQ(what([](RecordedRun* run) { run->run["identity"]["checkpoint"] = "1"; }), "checkpoint");
  EXPECT_EQ(what([](RecordedRun* run) { run->run["router"]["top_k"] = 3; }), "top_k");
  EXPECT_EQ(what([](RecordedRun* run) { run->run["vocab"] = 9; }), "vocab");
  EXPECT_EQ(what([](RecordedRun* run) { run->run["identity"]["more"] = 1; }), "identity");
  EXPECT_EQ(what([](RecordedRun* run) { run->tokens.requests.pop_back(); }), "requests");
  EXPECT_EQ(what([](RecordedRun* run) { run->run["requests"].erase(1); }), "request 1");
}

// Layouts of the same sizes may still share work out otherwise.
TEST(Compare, HowSequencesAreSharedIsADimension) {
  SyntheticOptions plain, sequence, zigzag;
  plain.sizes = sequence.sizes = zigzag.sizes = {2, 2, 1, 1, 1};
  sequence.sp = zigzag.zigzag = true;
  EXPECT_EQ(Compare(MakeSynthetic(plain), MakeSynthetic(sequence), {}).dimensions, std::vector<std::string>{"sp"});
  EXPECT_EQ(Compare(MakeSynthetic(plain), MakeSynthetic(zigzag), {}).dimensions, std::vector<std::string>{"cp_layout"});
}

// What a difference says: along what the layouts differ, and the sum before it on both sides.
TEST(Compare, ADifferenceSaysWhatStoodBeforeIt) {
  SyntheticOptions two;
  two.sizes = {2, 1, 1, 1, 1};
  const RecordedRun a = MakeSynthetic({});
  RecordedRun b = MakeSynthetic(two);
  for (RankRun& rank : b.ranks) {
    for (record::BoundRecord& bound : rank.bounds) {
      if (bound.layer == 2 && bound.site == record::Site::kMixer) bound.digest.low ^= 1;
    }
  }
  const Comparison found = Compare(a, b, {});
  ASSERT_EQ(Of(found), Verdict::kBoundaryDigestMismatch);
  EXPECT_THAT(found.gate->message, HasSubstr("the layouts differ along tp"));
  EXPECT_THAT(found.gate->message, HasSubstr("layer 2 resid1, none in a group of one"));
  EXPECT_THAT(found.gate->message, HasSubstr("layer 2 resid1, one-shot of i64 by 2 ranks"));
  for (record::BoundRecord& bound : b.ranks[0].bounds) {
    if (bound.site == record::Site::kEmbed) bound.digest.low ^= 1;
  }
  for (record::BoundRecord& bound : b.ranks[1].bounds) {
    if (bound.site == record::Site::kEmbed) bound.digest.low ^= 1;
  }
  EXPECT_THAT(Compare(a, b, {}).gate->message, testing::Not(HasSubstr("sum before it"))) << "there is none";
}

TEST(Compare, AGradeNeedsDecisionsOnBothSides) {
  SyntheticOptions digests;
  digests.level = record::Level::kDigest;
  EXPECT_EQ(Grade(MakeSynthetic({}), MakeSynthetic({})), "bits");
  RecordedRun bare = MakeSynthetic(digests);
  EXPECT_EQ(Grade(MakeSynthetic({}), bare), "");
  EXPECT_EQ(Grade(bare, MakeSynthetic({})), "");
  RecordedRun half = MakeSynthetic({});
  half.ranks[0].routes.heads.resize(half.ranks[0].routes.heads.size() / 2);
  half.ranks[0].routes.slots.resize(half.ranks[0].routes.heads.size() * kSyntheticTopK);
  EXPECT_EQ(Grade(MakeSynthetic({}), half), "bits") << "what one side lacks is not graded";
}

// A replay is given as a prompt what the first run sampled.
TEST(Compare, PromptAndSampledTokensAreOneSequence) {
  const RecordedRun a = MakeSynthetic({});
  RecordedRun b = MakeSynthetic({});
  for (Json& request : b.run["requests"]) {
    for (const Json& token : request["sampled"]) request["prompt"].push_back(token);
    request["prompt"].erase(request["prompt"].size() - 1);
    request["sampled"] = Json::array();
  }
  EXPECT_EQ(Of(Compare(a, b, {})), Verdict::kPass);
}

}  // namespace
}  // namespace trivet::proof
