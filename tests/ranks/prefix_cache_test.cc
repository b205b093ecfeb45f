// SPDX-License-Identifier: Apache-2.0
// Answers with the prefix cache are those without it, byte by byte: cold, warm, after eviction, after preemption, for a
// hybrid, for attention alone and for sliding windows, on one rank and on three.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

// Prompts, and for each the logits that its generated tokens were taken from: [max_new, V].
using Answers = std::vector<std::vector<float>>;

class PrefixCaching : public testing::Test {
 protected:
  explicit PrefixCaching(const std::string& dir = DemoDir()) : model_(support::Open(dir)) {}

  std::unique_ptr<engine::Engine> Start(engine::EngineOptions options) const {
    auto engine = engine::Engine::Start(model_, options, {});
    CHECK_MSG(engine.ok(), engine.error().message);
    return std::move(engine).value();
  }

  // Greedy continuations of all prompts, as one batch.
  Answers Run(engine::Engine* engine, const support::TokenSet& prompts, int32_t max_new) const {
    const auto vocab = static_cast<size_t>(model_.geometry.vocab);
    Answers answers(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      sched::Request request;
      request.id = SeqId{static_cast<int64_t>(i)};
      request.prompt = prompts[i];
      request.max_new_tokens = max_new;
      const Status submitted = engine->Submit(std::move(request));
      CHECK_MSG(submitted.ok(), submitted.error().message);
    }
    Result<bool> more = true;
    while (*more) {
      more = engine->Step([&](const sched::Span& span, const engine::SpanOutput& output,
                              bool wanted) -> Result<std::optional<TokenId>> {
        if (!wanted) return std::optional<TokenId>();
        const std::span<const float> row = output.logits.last(vocab);
        std::vector<float>& all = answers[static_cast<size_t>(span.seq)];
        all.insert(all.end(), row.begin(), row.end());
        return std::optional(static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
      });
      CHECK_MSG(more.ok(), more.error().message);
    }
    for (size_t i = 0; i < prompts.size(); ++i) engine->Finish(SeqId{static_cast<int64_t>(i)});
    return answers;
  }

  // Prompts that share 150 tokens, the whole of another one, or nothing.
  support::TokenSet Prompts() const {
    const int64_t vocab = model_.geometry.vocab;
    const std::vector<TokenId> system = support::RandomTokens(150, vocab, 1);
    support::TokenSet prompts;
    for (const int64_t tail : {1, 20, 42, 43, 30}) {
      prompts.push_back(system);
      const std::vector<TokenId> own = support::RandomTokens(tail, vocab, 100 + static_cast<uint64_t>(tail));
      prompts.back().insert(prompts.back().end(), own.begin(), own.end());
    }
    prompts.push_back(prompts[3]);
    prompts.push_back(support::RandomTokens(64, vocab, 7));
    prompts.push_back(prompts.back());
    return prompts;
  }

  engine::EngineOptions Cached(int64_t ranks) const {
    engine::EngineOptions options;
    options.layout.ranks = ranks;
    options.prefix_cache = true;
    return options;
  }

  void Expect(const Answers& expected, const Answers& found, const std::string& what) const {
    ASSERT_EQ(expected.size(), found.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(support::FirstDifference(expected[i], found[i], model_.geometry.vocab), "") << what << ", prompt " << i;
    }
  }

  // Off, cold and warm; then with prompts one at a time, so that all but the first begin with known pages.
  void CheckColdAndWarm(const engine::EngineOptions& options) const {
    const support::TokenSet prompts = Prompts();
    engine::EngineOptions plain;
    plain.kv_dtype = options.kv_dtype;
    const Answers expected = Run(Start(plain).get(), prompts, 20);
    const auto engine = Start(options);
    Expect(expected, Run(engine.get(), prompts, 20), "cold");
    const int64_t cold = engine->counts().prefix_hits;
    Expect(expected, Run(engine.get(), prompts, 20), "warm");
    EXPECT_GE(engine->counts().prefix_hits - cold, 6) << "all but the two of one page";
    const auto fresh = Start(options);
    for (size_t i = 0; i < prompts.size(); ++i) Expect({expected[i]}, Run(fresh.get(), {prompts[i]}, 20), "in turn");
    EXPECT_GE(fresh->counts().prefix_hits, 4);
  }

  const engine::OpenedModel model_;
};

class PrefixCachingAtRanks : public PrefixCaching, public testing::WithParamInterface<int64_t> {};

TEST_P(PrefixCachingAtRanks, ColdAndWarm) { CheckColdAndWarm(Cached(GetParam())); }

TEST_P(PrefixCachingAtRanks, InFp8) {
  engine::EngineOptions options = Cached(GetParam());
  options.kv_dtype = cache::KvDtype::kE4M3;
  CheckColdAndWarm(options);
}

TEST_P(PrefixCachingAtRanks, AfterEviction) {
  const support::TokenSet prompts = Prompts();
  const Answers expected = Run(Start({}).get(), prompts, 5);
  engine::EngineOptions options = Cached(GetParam());
  options.kv_tokens = 512;
  const auto engine = Start(options);
  Expect(expected, Run(engine.get(), prompts, 5), "cold");
  Run(engine.get(), {support::RandomTokens(400, model_.geometry.vocab, 50)}, 1);
  EXPECT_GT(engine->counts().prefix_evictions, 0);
  Expect(expected, Run(engine.get(), prompts, 5), "after eviction");
  EXPECT_EQ(engine->counts().free_pages, 8);
}

// Every replica evicts from a cache of its own.
TEST_P(PrefixCachingAtRanks, ReplicasThatEvict) {
  support::TokenSet prompts;
  for (uint64_t i = 0; i < 6; ++i) prompts.push_back(support::RandomTokens(300, model_.geometry.vocab, 60 + i));
  const Answers expected = Run(Start({}).get(), prompts, 5);
  engine::EngineOptions options = Cached(GetParam());
  options.layout.replicas = 2;
  options.kv_tokens = 512;
  const auto engine = Start(options);
  Expect(expected, Run(engine.get(), prompts, 5), "replicas that evict");
  EXPECT_GT(engine->counts().prefix_evictions, 0);
  Expect(expected, Run(engine.get(), prompts, 5), "and once more");
  EXPECT_EQ(engine->counts().free_pages, 16);
}

// Pages and states are whole on every rank of a context group, whoever computed their tokens.
TEST_P(PrefixCachingAtRanks, SharesOfSequencesThatEvict) {
  const support::TokenSet prompts = Prompts();
  const Answers expected = Run(Start({}).get(), prompts, 5);
  engine::EngineOptions options = Cached(GetParam());
  options.layout.context = 2;
  options.layout.context_stretch = 40;
  options.kv_tokens = 512;
  const auto engine = Start(options);
  Expect(expected, Run(engine.get(), prompts, 5), "cold");
  Run(engine.get(), {support::RandomTokens(400, model_.geometry.vocab, 50)}, 1);
  EXPECT_GT(engine->counts().prefix_evictions, 0);
  Expect(expected, Run(engine.get(), prompts, 5), "after eviction");
}

TEST_P(PrefixCachingAtRanks, AfterPreemption) {
  const support::TokenSet prompts = Prompts();
  const Answers expected = Run(Start({}).get(), prompts, 140);
  engine::EngineOptions options = Cached(GetParam());
  options.kv_tokens = 768;
  const auto engine = Start(options);
  Expect(expected, Run(engine.get(), prompts, 140), "few pages");
  EXPECT_GT(engine->counts().preemptions, 0);
  EXPECT_EQ(engine->counts().free_pages, 12);
}

// A turn that follows an answer begins where the prompt before it ended.
TEST_P(PrefixCachingAtRanks, NextTurn) {
  std::vector<TokenId> turn = Prompts()[0];
  const auto plain = Start({}), engine = Start(Cached(GetParam()));
  Run(engine.get(), {turn}, 10);
  const std::vector<TokenId> more = support::RandomTokens(80, model_.geometry.vocab, 9);
  turn.insert(turn.end(), more.begin(), more.end());
  Expect(Run(plain.get(), {turn}, 10), Run(engine.get(), {turn}, 10), "next turn");
  EXPECT_EQ(engine->counts().prefix_hit_tokens, 128);
}

// A turn whose prompt holds the answer before it begins near that answer's end.
TEST_P(PrefixCachingAtRanks, NextTurnAfterALongAnswer) {
  std::vector<TokenId> turn = Prompts()[0];
  const auto plain = Start({}), engine = Start(Cached(GetParam()));
  const auto ask = [&](int32_t max_new) {
    const Answers expected = Run(plain.get(), {turn}, max_new), found = Run(engine.get(), {turn}, max_new);
    Expect(expected, found, "turn");
    const auto vocab = static_cast<size_t>(model_.geometry.vocab);
    for (auto row = found[0].begin(); row != found[0].end(); row += static_cast<std::ptrdiff_t>(vocab)) {
      turn.push_back(static_cast<TokenId>(std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row));
    }
    const std::vector<TokenId> more = support::RandomTokens(20, model_.geometry.vocab, turn.size());
    turn.insert(turn.end(), more.begin(), more.end());
  };
  ask(120);  // 151 + 120 - 1 tokens are in the cache: 4 pages
  ask(90);   // 291 + 90 - 1: 5 pages
  EXPECT_EQ(engine->counts().prefix_hit_tokens, 256);
  ask(3);
  EXPECT_EQ(engine->counts().prefix_hit_tokens, 256 + 320);
}

// Prompts that arrive together compute what they share once.
TEST_P(PrefixCachingAtRanks, TogetherOnce) {
  const support::TokenSet prompts = Prompts();
  const auto engine = Start(Cached(GetParam()));
  Expect(Run(Start({}).get(), prompts, 3), Run(engine.get(), prompts, 3), "together");
  // Two pages of the shared 150 tokens for prompts 2 to 4, of prompt 4 for 5 and 6, three in all for the one like it.
  EXPECT_EQ(engine->counts().prefix_hits, 5);
  EXPECT_GE(engine->counts().prefix_hit_tokens, 5 * 128);
}

INSTANTIATE_TEST_SUITE_P(Ranks, PrefixCachingAtRanks, testing::Values(1, 3));

// Layers whose window is far shorter than the context keep a window's keys, and compute what they compute with all.
TEST(SlidingWindows, RingsChangeNoLogit) {
  for (const char* family : {"gemma3", "gpt_oss"}) {
    const engine::OpenedModel model = support::Open(CaseDir(family));
    const support::TokenSet set = {support::RandomTokens(250, model.geometry.vocab, 3),
                                   support::RandomTokens(190, model.geometry.vocab, 4)};
    engine::EngineOptions whole;
    const Result<std::vector<float>> expected = support::Logits(model, whole, set);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    for (const int64_t ranks : {1, 3}) {
      for (const int64_t chunk : {1, 7, 64}) {
        engine::EngineOptions options;
        options.layout.ranks = ranks;
        options.prefill_chunk = chunk;
        const auto engine = engine::Engine::Start(model, options, {});
        ASSERT_TRUE(engine.ok()) << engine.error().message;
        engine::EngineOptions same = options;
        same.prefill_chunk = 256;
        const auto roomy = engine::Engine::Start(model, same, {});
        EXPECT_LT((*engine)->memory().ranks[0].states, (*roomy)->memory().ranks[0].states) << "nothing is freed";
        const Result<std::vector<float>> found = support::ScoreAll(engine->get(), set);
        ASSERT_TRUE(found.ok());
        EXPECT_EQ(support::FirstDifference(*expected, *found, model.geometry.vocab), "") << family << ' ' << chunk;
      }
    }
  }
}

class PrefixCachingOfFamily : public PrefixCaching, public testing::WithParamInterface<const char*> {
 protected:
  PrefixCachingOfFamily() : PrefixCaching(CaseDir(GetParam())) {}
};

TEST_P(PrefixCachingOfFamily, ColdAndWarm) {
  for (const int64_t ranks : {1, 3}) {
    CheckColdAndWarm(Cached(ranks));
    engine::EngineOptions chunks = Cached(ranks);
    chunks.prefill_chunk = 40;
    CheckColdAndWarm(chunks);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PrefixCachingOfFamily,
                         testing::Values("llama", "gemma3", "gpt_oss", "deepseek_v3", "qwen3_next"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trivet
