// SPDX-License-Identifier: Apache-2.0
// Tokens that are drawn where the logits are: the same for every count of ranks and every way to cut the vocabulary,
// and those that whole logits give.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/axis_rules.h"
#include "tests/io/temp_dir.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

using engine::EngineOptions;
using sched::LogitsMode;

constexpr int32_t kNew = 9;

class DrawnTokens : public testing::Test {
 protected:
  DrawnTokens() {
    for (const int64_t length : {1, 9, 66, 130, 31}) {
      prompts_.push_back(support::RandomTokens(length, model_.geometry.vocab, static_cast<uint64_t>(length)));
    }
    whole_ = Run({}, {LogitsMode::kLast, LogitsMode::kLast, LogitsMode::kLast, LogitsMode::kLast, LogitsMode::kLast});
  }

  // Continuations of all prompts, whose rows were handed out as `modes` says.
  support::TokenSet Run(const EngineOptions& options, const std::vector<LogitsMode>& modes) const {
    const Result<std::unique_ptr<engine::Engine>> started = engine::Engine::Start(model_, options, {});
    CHECK_MSG(started.ok(), started.error().message);
    engine::Engine& engine = **started;
    Result<support::TokenSet> answers = support::Continue(&engine, prompts_, kNew, modes, sampling_);
    CHECK_MSG(answers.ok(), answers.error().message);
    const auto drawn = static_cast<int64_t>(std::count(modes.begin(), modes.end(), LogitsMode::kDrawn));
    EXPECT_EQ(engine.times().drawn_rows, drawn * kNew);
    EXPECT_EQ(engine.times().logits_rows, (static_cast<int64_t>(modes.size()) - drawn) * kNew);
    return std::move(answers).value();
  }

  // Alone, and in steps with rows of logits before, behind and between them.
  void ExpectSame(const EngineOptions& options) const {
    constexpr LogitsMode kLast = LogitsMode::kLast, kDrawn = LogitsMode::kDrawn;
    EXPECT_EQ(Run(options, {kDrawn, kDrawn, kDrawn, kDrawn, kDrawn}), whole_) << support::Describe(options);
    EXPECT_EQ(Run(options, {kLast, kDrawn, kLast, kDrawn, kLast}), whole_) << support::Describe(options);
  }

  const engine::OpenedModel model_ = support::Open(DemoDir());
  const std::vector<sampling::SamplingParams> sampling_ = support::WaysToSample(5);
  support::TokenSet prompts_, whole_;
};

TEST_F(DrawnTokens, OneToEightRanksAsThreads) {
  for (int64_t ranks = 1; ranks <= 8; ++ranks) {
    EngineOptions options;
    options.layout.ranks = ranks;
    ExpectSame(options);
  }
}

TEST_F(DrawnTokens, EveryCutOfTheVocabulary) {
  for (const int64_t ranks : {2, 3, 5, 7}) {
    for (const std::string& cut : plan::LegalCuts(model_.geometry, "vocab", ranks)) {
      EngineOptions options;
      options.layout.ranks = ranks;
      options.layout.cuts["vocab"] = cut;
      ExpectSame(options);
    }
  }
}

TEST_F(DrawnTokens, PaddedVocabulary) {
  EngineOptions options;
  options.layout.ranks = 3;
  options.layout.pad_to = 7;
  ExpectSame(options);
}

TEST_F(DrawnTokens, StagesSharesOfSequencesAndReplicas) {
  for (const plan::SequenceSplit split : {plan::SequenceSplit::kContiguous, plan::SequenceSplit::kZigzag}) {
    EngineOptions options;
    options.layout.ranks = 2;
    options.layout.context = 3;
    options.layout.context_split = split;
    options.layout.context_stretch = 4;
    ExpectSame(options);
  }
  EngineOptions options;
  options.layout.ranks = 2;
  options.layout.stages = 2;
  options.layout.replicas = 2;
  options.prefill_chunk = 7;
  ExpectSame(options);
}

TEST_F(DrawnTokens, RanksAsProcesses) {
  EngineOptions options;
  options.layout.ranks = 3;
  options.launch = engine::Launch::kProcesses;
  ExpectSame(options);
}

// Rows between sums dealt to the ranks.
TEST_F(DrawnTokens, DealtRows) {
  EngineOptions options;
  options.layout.ranks = 3;
  options.layout.sequence_parallel = true;
  ExpectSame(options);
}

// One batch of one sequence many times: a draw does not depend on its neighbours, and most draws are not the best.
TEST_F(DrawnTokens, OthersThanTheBest) {
  const support::TokenSet best = [&] {
    const Result<std::unique_ptr<engine::Engine>> started = engine::Engine::Start(model_, {}, {});
    CHECK_MSG(started.ok(), started.error().message);
    const std::vector<LogitsMode> modes(prompts_.size(), LogitsMode::kDrawn);
    sampling::SamplingParams greedy;
    greedy.temperature = 0;
    return support::Continue(started->get(), prompts_, kNew, modes, {prompts_.size(), greedy}).value();
  }();
  EXPECT_EQ(best[0], whole_[0]);
  int differing = 0;
  for (size_t i = 1; i < best.size(); ++i) differing += best[i] != whole_[i];
  EXPECT_GE(differing, 3);
}

// What is recorded is recorded whole.
TEST_F(DrawnTokens, AreFoundInLogitsWhereTheseAreRecorded) {
  EngineOptions options;
  options.proof.level = record::Level::kDigest;
  const TempDir dir;
  options.proof.dir = dir.Path() + "/run";
  const auto started = engine::Engine::Start(model_, options, {});
  ASSERT_TRUE(started.ok()) << started.error().message;
  engine::Engine& engine = **started;
  ASSERT_TRUE(engine.Submit({SeqId{0}, prompts_[0], 2, 0, LogitsMode::kDrawn}).ok());
  int seen = 0;
  Result<bool> more = true;
  while (more.ok() && *more) {
    more = engine.Step([&](const sched::Span&, const engine::SpanOutput& output, bool wanted) {
      EXPECT_TRUE(wanted);
      EXPECT_FALSE(output.drawn.has_value());
      const TokenId token = sampling::Sample(output.logits, sampling_[0], {}, 0, 0)->token;
      EXPECT_EQ(token, whole_[0][static_cast<size_t>(seen++)]);
      return Result<std::optional<TokenId>>(token);
    });
  }
  EXPECT_TRUE(more.ok());
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace trivet
