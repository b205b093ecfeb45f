// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

constexpr int64_t kTokens = 9;

void AddExperts(const RankFixture& rank, const std::vector<float>& x, const Sums& sums) {
  EXPECT_TRUE(MoeLayer(rank.runtime(), rank.weights().layers[0].moe, 0, {x, x}, sums).ok());
}

// Also with one of the two kinds of experts on every rank, which must then count once.
TEST(MoeLayer, PartsOfRanksAddUp) {
  const std::vector<float> x = Activations(kTokens, SmallGeometry().hidden);
  for (const char* axis : {"experts", "shared"}) {
    ExpectPartsAddUp(SmallGeometry(), axis, kTokens,
                     [&](const RankFixture& rank, const Sums& sums) { AddExperts(rank, x, sums); });
  }
}

TEST(MoeLayer, WithoutASharedExpert) {
  plan::Geometry geometry = SmallGeometry();
  geometry.moe.shared_width = 0;
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  const RankFixture whole(geometry, MakeLayout(geometry, 1), {.tokens = kTokens});
  EXPECT_EQ(whole.weights().layers[0].moe.router.n, geometry.moe.experts);
  const Sums sums = whole.runtime().NewSums(kTokens);
  AddExperts(whole, x, sums);
  int64_t any = 0;
  for (const int64_t value : sums.fixed) any |= value;
  EXPECT_NE(any, 0);
}

// With everything replicated nothing is reduced, so every rank computes the whole.
TEST(MoeLayer, AllReplicatedIsTheWholeEverywhere) {
  const plan::Geometry geometry = SmallGeometry();
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  plan::LayoutOptions options;
  options.ranks = 3;
  options.cuts = {{"experts", "replicate"}, {"shared", "replicate"}};
  const Result<plan::Layout> layout = plan::MakeLayout(geometry, options);
  ASSERT_TRUE(layout.ok());
  std::vector<int64_t> first;
  for (int64_t r = 0; r < 3; ++r) {
    const RankFixture rank(geometry, *layout, {.rank = r, .tokens = kTokens});
    const Sums sums = rank.runtime().NewSums(kTokens);
    AddExperts(rank, x, sums);
    if (r == 0) first.assign(sums.fixed.begin(), sums.fixed.end());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), sums.fixed.begin())) << "rank " << r;
  }
}

// The log has what was chosen, and what this rank then multiplied: of every token the pairs whose experts it holds.
TEST(MoeLayer, NotesDecisionsAndExecutions) {
  const plan::Geometry geometry = SmallGeometry();
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  const plan::Layout layout = MakeLayout(geometry, 2, "experts", "whole");
  std::vector<record::DecisionRecord> decisions;
  size_t executed = 0;
  for (int64_t r = 0; r < 2; ++r) {
    const RankFixture rank(geometry, layout, {.rank = r, .tokens = kTokens, .log = true});
    record::RunLog& log = *rank.runtime().log;
    std::vector<record::RowRecord> rows;
    for (int64_t t = 0; t < kTokens; ++t) rows.push_back({record::GlobalToken(3, t), 0, 0, 1, 0});
    log.BeginStep(rows, {});
    AddExperts(rank, x, rank.runtime().NewSums(kTokens));
    ASSERT_EQ(log.decisions().size(), static_cast<size_t>(kTokens));
    ASSERT_EQ(log.bounds().size(), static_cast<size_t>(kTokens));  // the router's logits
    for (size_t t = 0; t < log.decisions().size(); ++t) {
      EXPECT_EQ(log.decisions()[t].token, record::GlobalToken(3, static_cast<int64_t>(t)));
      if (r == 0) continue;
      EXPECT_EQ(log.decisions()[t].digest, decisions[t].digest) << "ranks choose alike";
    }
    decisions = log.decisions();
    const std::vector<int64_t>& slots = layout.shards[static_cast<size_t>(r)].experts.slots;
    for (const record::ExecuteRecord& done : log.executions()) {
      const auto pair = static_cast<size_t>(record::PositionOf(done.token) * geometry.moe.top_k + done.slot);
      EXPECT_EQ(log.route_slots()[pair].expert, slots[done.local_slot]);
    }
    executed += log.executions().size();
  }
  EXPECT_EQ(executed, static_cast<size_t>(kTokens * geometry.moe.top_k));
}

}  // namespace
}  // namespace trivet::model
