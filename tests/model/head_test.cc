// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

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

TEST(Head, NoRowsAreNoWork) {
  const plan::Geometry geometry = SmallGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {.tokens = kTokens});
  OneSequence sequence(kTokens);
  sequence.rows.clear();
  EXPECT_TRUE(LogitsOf(rank, sequence.view(), Activations(kTokens, geometry.hidden), {}).ok());
}

}  // namespace
}  // namespace trivet::model
