// SPDX-License-Identifier: Apache-2.0
#include "engine/scoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/small_model.h"
#include "tests/support/model_runs.h"

namespace trivet::engine {
namespace {

std::unique_ptr<Engine> StartOn(const SmallModel& small, const EngineOptions& options = {}) {
  auto engine = Engine::Start(small.model(), options, {});
  CHECK_MSG(engine.ok(), engine.error().message);
  return std::move(engine).value();
}

TEST(TokenLogprobs, AreLogSoftmaxAtTheNextToken) {
  const std::vector<TokenId> tokens = {2, 0, 1};
  const std::vector<float> logits = {0, 0, 0, 1, 2, 3, 9, 9, 9};  // the last row predicts nothing that was given
  const std::vector<double> logprobs = TokenLogprobs(tokens, logits, 3);
  ASSERT_EQ(logprobs.size(), 2U);
  EXPECT_NEAR(logprobs[0], -std::log(3.0), 1e-12);
  EXPECT_NEAR(logprobs[1], 2 - std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0)), 1e-12);
}

TEST(TokenLogprobs, LargeLogitsDoNotOverflow) {
  const std::vector<double> logprobs =
      TokenLogprobs(std::vector<TokenId>{0, 1}, std::vector<float>{1e30F, -1e30F, 0, 0}, 2);
  EXPECT_NEAR(logprobs.at(0), -2e30, 1e24);
  EXPECT_TRUE(TokenLogprobs(std::vector<TokenId>{5}, std::vector<float>{1, 2}, 2).empty());
}

TEST(Score, KeepsTheOrderAndTheLastRow) {
  const SmallModel small;
  const auto engine = StartOn(small);
  const support::TokenSet set = {support::RandomTokens(5, small.vocab(), 1), support::RandomTokens(1, small.vocab(), 2),
                                 support::RandomTokens(40, small.vocab(), 3)};
  const auto all = Score(engine.get(), {set, false, false});
  const auto last = Score(engine.get(), {set, true, false});
  ASSERT_TRUE(all.ok() && last.ok());
  const auto vocab = static_cast<size_t>(small.vocab());
  for (size_t i = 0; i < set.size(); ++i) {
    ASSERT_EQ((*all)[i].logits.size(), set[i].size() * vocab);
    ASSERT_EQ((*last)[i].logits.size(), vocab);
    EXPECT_TRUE(std::equal((*last)[i].logits.begin(), (*last)[i].logits.end(),
                           (*all)[i].logits.end() - static_cast<std::ptrdiff_t>(vocab)));
    EXPECT_TRUE((*all)[i].hidden.empty());
  }
}

TEST(Score, NothingGivesNothing) {
  const SmallModel small;
  const auto engine = StartOn(small);
  const auto scored = Score(engine.get(), {{}, false, false});
  ASSERT_TRUE(scored.ok());
  EXPECT_TRUE(scored->empty());
}

TEST(Score, ARefusedSequenceLeavesTheEngineAsItWas) {
  const SmallModel small;
  const auto engine = StartOn(small);
  const std::vector<TokenId> good = {1, 2, 3}, unknown = {static_cast<TokenId>(small.vocab())};
  const auto refused = Score(engine.get(), {{good, unknown}, false, false});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  const auto scored = Score(engine.get(), {{good}, false, false});
  ASSERT_TRUE(scored.ok()) << scored.error().message;
  EXPECT_EQ((*scored)[0].logits.size(), good.size() * static_cast<size_t>(small.vocab()));
}

TEST(Score, ASequenceLongerThanTheContextIsRefused) {
  const SmallModel small;
  EngineOptions options;
  options.max_context = 8;
  const auto engine = StartOn(small, options);
  const auto refused = Score(engine.get(), {{std::vector<TokenId>(9, 1)}, false, false});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kCapacity);
}

// Few pages: sequences lose theirs and are computed again, but each position is reported once.
TEST(Score, HiddenStatesOfASequenceThatWasComputedTwice) {
  const SmallModel small;
  support::TokenSet set;
  for (uint64_t i = 0; i < 4; ++i) set.push_back(support::RandomTokens(180, small.vocab(), i));
  const auto roomy = StartOn(small);
  const auto expected = Score(roomy.get(), {set, false, true});
  EngineOptions options;
  options.max_context = 192;
  options.kv_tokens = 256;
  options.prefill_chunk = 40;
  const auto tight = StartOn(small, options);
  const auto found = Score(tight.get(), {set, false, true});
  ASSERT_TRUE(expected.ok() && found.ok());
  for (size_t i = 0; i < set.size(); ++i) {
    EXPECT_EQ((*expected)[i].logits, (*found)[i].logits);
    EXPECT_EQ((*expected)[i].hidden, (*found)[i].hidden);
  }
}

}  // namespace
}  // namespace trivet::engine
