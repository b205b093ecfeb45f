// SPDX-License-Identifier: Apache-2.0
#include "model/step_view.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

TEST(StageStep, AnglesArePositionTimesFrequency) {
  plan::Geometry geometry = SmallGeometry();
  geometry.ropes.push_back(TestRope(4));
  geometry.ropes[1].scale = 1.5F;
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = 3});
  OneSequence sequence(3);
  sequence.spans[0].start = 100;
  const std::vector<RopeAngles> all = StageStep(rank.runtime(), sequence.view()).ropes;
  ASSERT_EQ(all.size(), 2U);
  for (size_t r = 0; r < 2; ++r) {
    const int64_t half = r == 0 ? 4 : 2;
    const double scale = r == 0 ? 1 : 1.5;
    ASSERT_EQ(all[r].half, half);
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t i = 0; i < half; ++i) {
        const double turn = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        const double angle = static_cast<double>(100 + t) * turn;
        EXPECT_NEAR(all[r].cos[static_cast<size_t>(t * half + i)], scale * std::cos(angle), 2e-5);
        EXPECT_NEAR(all[r].sin[static_cast<size_t>(t * half + i)], scale * std::sin(angle), 2e-5);
      }
    }
  }
}

// What kernels read is a copy of the step, with every span's pages where they are.
TEST(StageStep, KernelsFindTokensSpansPagesAndRows) {
  const plan::Geometry geometry = SmallGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = 5});
  const std::vector<TokenId> ids = {7, 8, 9, 10, 11};
  const std::vector<int32_t> pages = {4, 2, 3}, rows = {1, 4};
  const std::vector<kernels::TokenSpan> spans = {{0, 2, 63, 1, pages.data()}, {2, 3, 0, 0, pages.data() + 2}};
  const std::vector<comm::RowRun> runs = {{0, 0, 5}};
  const StepView step = StageStep(rank.runtime(), {ids, spans, pages, rows, {spans, runs, 2}});
  EXPECT_EQ(std::vector(step.ids, step.ids + step.tokens), ids);
  EXPECT_EQ(std::vector(step.head_rows, step.head_rows + step.rows), rows);
  for (const std::span<const kernels::TokenSpan> staged : {step.own.paged, step.whole.paged}) {
    ASSERT_EQ(staged.size(), 2U);
    EXPECT_EQ(staged[1].count, 3);
    EXPECT_EQ(std::vector(staged[0].pages, staged[0].pages + 2), (std::vector<int32_t>{4, 2}));
    EXPECT_EQ(staged[1].pages[0], 3);
    EXPECT_NE(staged[1].pages, pages.data() + 2) << "the step's own copy";
  }
  EXPECT_EQ(step.whole_tokens, 5);
  EXPECT_EQ(step.whole_rows, 2);
  EXPECT_EQ(step.key_visits, 2 * 65 + 3 * 3);
}

// Rows whose logits are handed out are one block, and drawn ones stand behind it.
TEST(StageStep, DrawnRowsStandBehindThoseOfLogits) {
  const plan::Geometry geometry = SmallGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = 5});
  OneSequence sequence(5);
  sequence.rows = {2, 4};
  const std::vector<int32_t> drawn = {0, 3};
  StepTokens tokens = sequence.view();
  const std::vector<DrawRule> rules = {{}, {5, 6, 0.5F, 7, 0, 0}};
  tokens.drawn_rows = drawn;
  tokens.rules = rules;
  const StepView step = StageStep(rank.runtime(), tokens);
  EXPECT_EQ(step.rows, 4);
  EXPECT_EQ(step.drawn, 2);
  EXPECT_EQ(std::vector(step.head_rows, step.head_rows + 4), (std::vector<int32_t>{2, 4, 0, 3}));
  EXPECT_EQ(std::vector(step.argmax_rows, step.argmax_rows + 4), (std::vector<int32_t>{-1, -1, 2, 3}));
  EXPECT_EQ(std::vector(step.rules, step.rules + 4), (std::vector<DrawRule>{{}, {}, {}, rules[1]}));
  EXPECT_EQ(step.ruled, 1);
}

// A share of a step has its own rows, and spans of the whole step besides, over the same pages.
TEST(StageStep, AShareKnowsTheWholeStep) {
  const plan::Geometry geometry = SmallGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = 5});
  const std::vector<TokenId> ids = {9, 11};
  const std::vector<int32_t> pages = {4, 2, 3}, rows = {1};
  const std::vector<kernels::TokenSpan> whole = {{0, 3, 63, 1, pages.data()}, {3, 2, 0, 0, pages.data() + 2}};
  const std::vector<kernels::TokenSpan> own = {{0, 1, 65, 1, pages.data()}, {1, 1, 1, 0, pages.data() + 2}};
  const std::vector<comm::RowRun> runs = {{1, 0, 2}, {0, 2, 1}, {1, 3, 1}, {0, 4, 1}};
  const StepView step = StageStep(rank.runtime(), {ids, own, pages, rows, {whole, runs, 3}});
  EXPECT_EQ(step.tokens, 2);
  EXPECT_EQ(step.whole_tokens, 5);
  EXPECT_EQ(step.whole_rows, 3);
  EXPECT_EQ(step.own.paged[1].start, 1);
  EXPECT_EQ(step.own.paged[1].pages[0], 3);
  EXPECT_EQ(step.whole.paged[0].count, 3);
  EXPECT_EQ(step.key_visits, 66 + 2);
}

}  // namespace
}  // namespace trivet::model
