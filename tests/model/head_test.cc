// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/reference.h"
#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

constexpr int64_t kTokens = 5;

// Logits of one row, computed the long way.
std::vector<double> Expected(const plan::Geometry& geometry, std::span<const float> x) {
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + geometry.norm_eps);
  std::vector<double> logits(static_cast<size_t>(geometry.vocab));
  const char* table = geometry.tied_head ? "model.embed_tokens.weight" : "lm_head.weight";
  for (int64_t id = 0; id < geometry.vocab; ++id) {
    for (int64_t i = 0; i < geometry.hidden; ++i) {
      const double norm = 1 + static_cast<double>(SourceValue("model.norm.weight", i, 0));
      logits[static_cast<size_t>(id)] += static_cast<double>(x[static_cast<size_t>(i)]) * scale * norm *
                                         static_cast<double>(SourceValue(table, id, i));
    }
  }
  return logits;
}

TEST(Head, LogitsOfTheWantedRows) {
  for (const bool tied : {false, true}) {
    plan::Geometry geometry = SmallGeometry();
    geometry.tied_head = tied;
    const std::vector<float> x = Activations(kTokens, geometry.hidden);
    const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = kTokens});
    OneSequence sequence(kTokens);
    sequence.rows = {1, 4};
    std::vector<float> logits(static_cast<size_t>(2 * geometry.vocab));
    ASSERT_TRUE(LogitsOf(rank, sequence.view(), x, logits).ok());
    for (size_t row = 0; row < 2; ++row) {
      const auto at = static_cast<size_t>(sequence.rows[row] * geometry.hidden);
      const std::vector<double> expected =
          Expected(geometry, std::span(x).subspan(at, static_cast<size_t>(geometry.hidden)));
      for (size_t id = 0; id < expected.size(); ++id) {
        EXPECT_NEAR(logits[row * expected.size() + id], expected[id], 1e-5);
      }
    }
  }
}

// Rank 0 alone hands on its own columns and no pad: the others' places stay as they were.
TEST(Head, ARankFillsItsOwnColumns) {
  const plan::Geometry geometry = SmallGeometry();
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  const OneSequence sequence(kTokens);
  std::vector<float> whole(static_cast<size_t>(kTokens * geometry.vocab));
  const RankFixture one(geometry, MakeLayout(geometry, 1), {.tokens = kTokens});
  ASSERT_TRUE(LogitsOf(one, sequence.view(), x, whole).ok());
  const plan::Layout layout = MakeLayout(geometry, 2, "vocab", "pad");
  for (int64_t r = 0; r < 2; ++r) {
    const RankFixture rank(geometry, layout, {.rank = r, .tokens = kTokens, .alone = true});
    std::vector<float> logits(whole.size(), -77.0F);
    ASSERT_TRUE(LogitsOf(rank, sequence.view(), x, logits).ok());
    const plan::VocabShard& vocab = layout.shards[static_cast<size_t>(r)].vocab;
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto id = static_cast<int64_t>(i) % geometry.vocab;
      const bool mine = id >= vocab.begin && id < vocab.begin + vocab.real;
      EXPECT_EQ(logits[i], mine ? whole[i] : -77.0F) << id;
    }
  }
}

// The keys of one rank's part of all rows of `step`.
std::vector<uint64_t> DrawnOf(const RankFixture& rank, StepTokens step, std::span<const float> x,
                              std::vector<DrawRule> rules = {}) {
  const std::vector<int32_t> rows(step.logits_rows.begin(), step.logits_rows.end());
  rules.resize(rows.size());
  step.drawn_rows = rows;
  step.rules = rules;
  step.logits_rows = {};
  const StepView view = StageStep(rank.runtime(), step);
  std::vector<float> local(static_cast<size_t>(view.rows * rank.weights().head.n));
  std::vector<uint64_t> keys(static_cast<size_t>(view.rows * kernels::kArgmaxParts)), drawn(rows.size());
  EXPECT_TRUE(Head(rank.runtime(), rank.weights(), view, x, {local, keys}).ok());
  EXPECT_TRUE(GatherDrawn(rank.runtime(), view, local, keys, drawn).ok());
  return drawn;
}

// Whoever has the columns, and whatever pads stand behind them: the largest key of all ranks is the token of the
// largest logit, the lowest of equals. A cap that flattens all logits makes many equals, zeros nothing else.
TEST(Head, BestTokensAreThoseOfTheLargestLogits) {
  for (const float cap : {0.0F, 0.125F}) {
    for (const bool zeros : {false, true}) {
      plan::Geometry geometry = SmallGeometry();
      geometry.logit_softcap = cap;
      const std::vector<float> x = Activations(kTokens, geometry.hidden);
      const OneSequence sequence(kTokens);
      const RankFixture one(geometry, MakeLayout(geometry, 1), {.tokens = kTokens, .zeros = zeros});
      std::vector<float> logits(static_cast<size_t>(kTokens * geometry.vocab));
      ASSERT_TRUE(LogitsOf(one, sequence.view(), x, logits).ok());
      std::vector<int32_t> expected;
      for (auto row = logits.begin(); row != logits.end(); row += geometry.vocab) {
        expected.push_back(static_cast<int32_t>(std::max_element(row, row + geometry.vocab) - row));
      }
      for (int64_t ranks = 1; ranks <= 8; ++ranks) {
        for (const std::string& cut : plan::LegalCuts(geometry, "vocab", ranks)) {
          const plan::Layout layout = MakeLayout(geometry, ranks, "vocab", cut);
          std::vector<uint64_t> best(kTokens);
          for (int64_t r = 0; r < ranks; ++r) {
            const RankFixture rank(geometry, layout, {.rank = r, .tokens = kTokens, .alone = true, .zeros = zeros});
            const std::vector<uint64_t> own = DrawnOf(rank, sequence.view(), x);
            for (size_t i = 0; i < best.size(); ++i) best[i] = std::max(best[i], own[i]);
          }
          for (size_t i = 0; i < best.size(); ++i) {
            EXPECT_EQ(kernels::ArgmaxToken(best[i]), expected[i]) << ranks << " ranks, " << cut << ", row " << i;
            const float logit = logits[i * static_cast<size_t>(geometry.vocab) + static_cast<size_t>(expected[i])];
            EXPECT_EQ(kernels::ArgmaxLogit(best[i]), logit);
          }
        }
      }
    }
  }
}

// Rules that draw, beside those that take the best: the tokens that the reference draws from the row's logits.
TEST(Head, DrawnTokensAreThoseOfTheLogits) {
  const plan::Geometry geometry = SmallGeometry();
  const std::vector<float> x = Activations(kTokens, geometry.hidden);
  const OneSequence sequence(kTokens);
  const RankFixture one(geometry, MakeLayout(geometry, 1), {.tokens = kTokens});
  std::vector<float> logits(static_cast<size_t>(kTokens * geometry.vocab));
  ASSERT_TRUE(LogitsOf(one, sequence.view(), x, logits).ok());
  int64_t other = 0;
  for (uint64_t step = 0; step < 16; ++step) {
    const uint64_t uniform = kDrawOne / 16 * step;
    const std::vector<DrawRule> rules = {{uniform, kDrawOne, 0.1F, 0, 0, 0},
                                         {uniform, kDrawOne, 0.1F, 0, 5, 0},
                                         {},
                                         {uniform, kDrawOne / 2, 1, 0, 0, 0}};
    const std::vector<uint64_t> drawn = DrawnOf(one, sequence.view(), x, rules);
    for (size_t i = 0; i < drawn.size(); ++i) {
      const float* row = logits.data() + static_cast<int64_t>(i) * geometry.vocab;
      uint64_t key = 0;
      for (int64_t token = 0; token < geometry.vocab; ++token)
        key = std::max(key, kernels::ArgmaxKey(row[token], token));
      const uint64_t best = key;
      const DrawRule rule = i < rules.size() ? rules[i] : DrawRule{};
      const int32_t number = 0;
      kernels::DrawRef({row, geometry.vocab, geometry.vocab, &number, &rule, &key, 1, 0, 1});
      EXPECT_EQ(drawn[i], key) << "row " << i << ", step " << step;
      other += key != best;
    }
  }
  EXPECT_GT(other, 20);
}

// A pad's logit is 0, which is more than the largest of a row whose logits are all negative.
TEST(Head, PadsOfTheVocabularyNeverWin) {
  constexpr int64_t kMany = 24;
  plan::Geometry geometry = SmallGeometry();
  geometry.vocab = 3;
  const std::vector<float> x = Activations(kMany, geometry.hidden);
  const OneSequence sequence(kMany);
  const RankFixture one(geometry, MakeLayout(geometry, 1), {.tokens = kMany});
  std::vector<float> logits(static_cast<size_t>(kMany * geometry.vocab));
  ASSERT_TRUE(LogitsOf(one, sequence.view(), x, logits).ok());
  int64_t negative = 0, pads = 0;
  for (const int64_t ranks : {1, 2}) {
    for (const std::string& cut : plan::LegalCuts(geometry, "vocab", ranks)) {
      const plan::Layout layout = MakeLayout(geometry, ranks, "vocab", cut);
      std::vector<uint64_t> best(kMany);
      for (int64_t r = 0; r < ranks; ++r) {
        const RankFixture rank(geometry, layout, {.rank = r, .tokens = kMany, .alone = true});
        const plan::VocabShard& vocab = layout.shards[static_cast<size_t>(r)].vocab;
        pads += vocab.rows - vocab.real;
        const std::vector<uint64_t> own = DrawnOf(rank, sequence.view(), x);
        for (size_t i = 0; i < best.size(); ++i) best[i] = std::max(best[i], own[i]);
      }
      for (size_t i = 0; i < best.size(); ++i) {
        const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i) * geometry.vocab;
        const auto largest = std::max_element(row, row + geometry.vocab);
        EXPECT_EQ(kernels::ArgmaxToken(best[i]), largest - row) << ranks << " ranks, " << cut << ", row " << i;
        negative += *largest < 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(negative, 0);
  EXPECT_GT(pads, 0);
}

TEST(Head, NoRowsAreNoWork) {
  const plan::Geometry geometry = SmallGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = kTokens});
  OneSequence sequence(kTokens);
  sequence.rows.clear();
  EXPECT_TRUE(LogitsOf(rank, sequence.view(), Activations(kTokens, geometry.hidden), {}).ok());
}

}  // namespace
}  // namespace trivet::model
