// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

// Every rank of every cut: a token's row where the rank holds it, zeros where another does.
TEST(Embed, RowsOfTheShareAndZerosElsewhere) {
  const plan::Geometry geometry = SmallGeometry();
  const OneSequence sequence(40);
  for (const int64_t ranks : {1, 2, 3, 5}) {
    for (const std::string& cut : plan::LegalCuts(geometry, "vocab", ranks)) {
      const plan::Layout layout = MakeLayout(geometry, ranks, "vocab", cut);
      for (int64_t r = 0; r < ranks; ++r) {
        const RankFixture rank(geometry, layout, {.rank = r, .tokens = 40, .alone = true});
        std::vector<float> x(static_cast<size_t>(40 * geometry.hidden), -1.0F);
        ASSERT_TRUE(Embed(rank.runtime(), rank.weights().embed, StageStep(rank.runtime(), sequence.view()), x).ok());
        const plan::VocabShard& vocab = layout.shards[static_cast<size_t>(r)].vocab;
        for (size_t t = 0; t < sequence.ids.size(); ++t) {
          const TokenId id = sequence.ids[t];
          const bool held = id >= vocab.begin && id < vocab.begin + vocab.real;
          for (int64_t i = 0; i < geometry.hidden; ++i) {
            EXPECT_EQ(x[t * static_cast<size_t>(geometry.hidden) + static_cast<size_t>(i)],
                      held ? SourceValue("model.embed_tokens.weight", id, i) : 0.0F);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trivet::model
