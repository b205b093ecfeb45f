// SPDX-License-Identifier: Apache-2.0
// Exact mode's promise, byte by byte: every way to run the demo model gives the logits that one rank gives. And what
// fast mode keeps of it: one layout gives one result.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "kernels/registry.h"
#include "plan/axis_rules.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"
#include "tests/support/sanitizer.h"

namespace trivet {
namespace {

using engine::EngineOptions;
using engine::Launch;

constexpr int64_t kMostRanks = 8;

EngineOptions AtRanks(int64_t ranks) {
  EngineOptions options;
  options.layout.ranks = ranks;
  return options;
}

// The demo model, its 2,000 tokens, and what one rank makes of them.
struct Baseline {
  engine::OpenedModel model;
  support::TokenSet all, few;  // few: golden cases, 180 tokens, for what is slow
  std::vector<float> all_logits, few_logits;
};

Baseline MakeBaseline() {
  Baseline made{support::Open(DemoDir()), {}, {}, {}, {}};
  const std::string golden = DemoDir() + "/golden/demo-golden.safetensors";
  made.all = support::TwoThousandTokens(support::ReadGolden(golden), made.model.geometry.vocab);
  made.few.assign(made.all.begin(), made.all.begin() + 3);
  for (const auto& [set, logits] : {std::pair(&made.all, &made.all_logits), std::pair(&made.few, &made.few_logits)}) {
    Result<std::vector<float>> scored = support::Logits(made.model, {}, *set);
    CHECK_MSG(scored.ok(), scored.error().message);
    *logits = std::move(scored).value();
  }
  return made;
}

// Made once for all tests.
const Baseline& Base() {
  static const Baseline base = MakeBaseline();
  return base;
}

int64_t Vocab() { return Base().model.geometry.vocab; }

std::vector<std::string> Axes() {
  std::vector<std::string> axes;
  for (const plan::AxisRule& rule : plan::AxisRules(Base().model.geometry, 2, 0)) axes.push_back(rule.axis);
  return axes;
}

class LayoutIdentity : public testing::Test {
 protected:
  void TearDown() override {
    if (compared_ == 0) return;
    std::printf("compared %lld logits in %d runs of %zu layouts\n", static_cast<long long>(compared_), runs_,
                layouts_.size());
  }

  static std::vector<float> LogitsOf(const EngineOptions& options, const support::TokenSet& set, size_t batch) {
    Result<std::vector<float>> logits = support::Logits(Base().model, options, set, batch);
    EXPECT_TRUE(logits.ok()) << support::Describe(options) << ": " << logits.error().message;
    return logits.ok() ? std::move(logits).value() : std::vector<float>();
  }

  void Compare(const std::vector<float>& expected, const std::vector<float>& found, const std::string& what) {
    EXPECT_EQ(support::FirstDifference(expected, found, Vocab()), "") << what;
    compared_ += static_cast<int64_t>(found.size());
    ++runs_;
    layouts_.insert(what);
  }

  // All 2,000 tokens under `options` give the bytes of one rank.
  void ExpectAllEqual(const EngineOptions& options, size_t batch = 0) {
    Compare(Base().all_logits, LogitsOf(options, Base().all, batch),
            fmt::format("{} batch {}", support::Describe(options), batch));
  }
  // The same of the first few sequences.
  void ExpectFewEqual(const EngineOptions& options) {
    Compare(Base().few_logits, LogitsOf(options, Base().few, 0), support::Describe(options));
  }

 private:
  int64_t compared_ = 0;
  int runs_ = 0;
  std::set<std::string> layouts_;
};

TEST_F(LayoutIdentity, TheTokenSetIsWhatItIsCalled) {
  EXPECT_EQ(support::Count(Base().all), 2000);
  size_t longest = 0;
  for (const std::vector<TokenId>& sequence : Base().all) longest = std::max(longest, sequence.size());
  EXPECT_GT(longest, 600U);
  EXPECT_GE(Base().all.size(), 16U);
  EXPECT_EQ(Base().all_logits.size(), static_cast<size_t>(2000 * Vocab()));
}

// Without this the comparisons below would prove nothing.
TEST_F(LayoutIdentity, AComparisonSeesOneBit) {
  std::vector<float> changed = Base().few_logits;
  changed[4097] = std::nextafter(changed[4097], 1e9F);
  EXPECT_THAT(support::FirstDifference(Base().few_logits, changed, Vocab()), testing::HasSubstr("token 1 id 1: "));
}

TEST_F(LayoutIdentity, RankCountsAsThreads) {
  for (int64_t ranks = 1; ranks <= kMostRanks; ++ranks) ExpectAllEqual(AtRanks(ranks));
}

TEST_F(LayoutIdentity, RankCountsAsProcesses) {
  for (int64_t ranks = 1; ranks <= kMostRanks; ++ranks) {
    EngineOptions options = AtRanks(ranks);
    options.launch = Launch::kProcesses;
    ExpectAllEqual(options);
  }
}

TEST_F(LayoutIdentity, MoreRanksThanUnits) {
  for (const int64_t ranks : {11, 16}) ExpectFewEqual(AtRanks(ranks));
}

TEST_F(LayoutIdentity, EveryCutOfEveryAxisAlone) {
  for (int64_t ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (const std::string& axis : Axes()) {
      for (const std::string& cut : plan::LegalCuts(Base().model.geometry, axis, ranks)) {
        EngineOptions options = AtRanks(ranks);
        options.layout.cuts[axis] = cut;
        ExpectFewEqual(options);
      }
    }
  }
}

// Cut number i of every axis at once, the last axis shifted against the first: every legal cut of every rank count
// meets the whole token set.
TEST_F(LayoutIdentity, EveryCutTogetherWithOthers) {
  for (int64_t ranks = 2; ranks <= kMostRanks; ++ranks) {
    size_t most = 0;
    for (const std::string& axis : Axes()) {
      most = std::max(most, plan::LegalCuts(Base().model.geometry, axis, ranks).size());
    }
    for (size_t i = 0; i < most; ++i) {
      EngineOptions options = AtRanks(ranks);
      size_t shift = i;
      for (const std::string& axis : Axes()) {
        const std::vector<std::string> cuts = plan::LegalCuts(Base().model.geometry, axis, ranks);
        options.layout.cuts[axis] = cuts[shift++ % cuts.size()];
      }
      // A sanitizer, which makes it take twenty minutes, looks for how ranks meet; more tokens show it no more of that.
      support::kSanitized ? ExpectFewEqual(options) : ExpectAllEqual(options);
    }
  }
}

TEST_F(LayoutIdentity, ExpertsAndSharedExpertInEveryCombination) {
  for (const std::string& experts : plan::LegalCuts(Base().model.geometry, "experts", 3)) {
    for (const std::string& shared : plan::LegalCuts(Base().model.geometry, "shared", 3)) {
      EngineOptions options = AtRanks(3);
      options.layout.cuts = {{"experts", experts}, {"shared", shared}};
      ExpectFewEqual(options);
    }
  }
}

TEST_F(LayoutIdentity, PaddingToOtherRankCounts) {
  for (const int64_t pad_to : {3, 5, 6, 7}) {
    for (const int64_t ranks : {1, 2, 3, 5}) {
      EngineOptions options = AtRanks(ranks);
      options.layout.pad_to = pad_to;
      ranks == 1 ? ExpectAllEqual(options) : ExpectFewEqual(options);
    }
  }
}

TEST_F(LayoutIdentity, PaddedCutsOfPaddedAxes) {
  for (const int64_t pad_to : {5, 7}) {
    EngineOptions options = AtRanks(3);
    options.layout.pad_to = pad_to;
    options.layout.cuts = {
        {"attn", "pad"}, {"gdn", "pad"}, {"experts", "whole-pad"}, {"shared", "pad"}, {"vocab", "pad"}};
    ExpectFewEqual(options);
    options.layout.cuts = {{"attn", "overlap"}, {"gdn", "overlap"}, {"experts", "width-pad"}};
    ExpectFewEqual(options);
  }
}

TEST_F(LayoutIdentity, AloneAndInBatches) {
  for (const int64_t ranks : {1, 3}) {
    for (const size_t batch : {1, 7, 16}) ExpectAllEqual(AtRanks(ranks), batch);
  }
}

TEST_F(LayoutIdentity, PrefillChunks) {
  for (const int64_t ranks : {1, 3}) {
    for (const int64_t chunk : {1, 7, 64, 512, 2048}) {
      EngineOptions options = AtRanks(ranks);
      options.prefill_chunk = chunk;
      ExpectAllEqual(options);
    }
  }
}

TEST_F(LayoutIdentity, ThreadsPerRank) {
  for (const int64_t ranks : {1, 3}) {
    for (const int threads : {1, 2, 5}) {
      EngineOptions options = AtRanks(ranks);
      options.threads = threads;
      ExpectAllEqual(options);
    }
  }
}

// Few pages: sequences lose theirs to others and are computed again.
TEST_F(LayoutIdentity, AShortCache) {
  EngineOptions options = AtRanks(2);
  options.max_context = 704;
  options.kv_tokens = 704;
  ExpectAllEqual(options);
}

TEST_F(LayoutIdentity, EveryKernelRow) {
  std::set<std::string> suffixes;
  for (const std::vector<std::string>& family : kernels::RunnableRows(kernels::CpuTarget())) {
    for (const std::string& row : family) suffixes.insert(row.substr(row.find('/') + 1));
  }
  ASSERT_TRUE(suffixes.contains("ref"));
  for (const std::string& suffix : suffixes) {
    for (const int64_t ranks : {1, 3}) {
      EngineOptions options = AtRanks(ranks);
      options.kernels.rows = suffix;
      ExpectFewEqual(options);
    }
  }
}

// Tokens generated one by one have the logits that scoring the finished text gives.
TEST_F(LayoutIdentity, DecodingIsScoring) {
  for (const int64_t ranks : {1, 3}) {
    auto engine = engine::Engine::Start(Base().model, AtRanks(ranks), {});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    support::TokenSet texts = Base().few;
    std::vector<std::vector<float>> rows(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      sched::Request request;
      request.id = SeqId{static_cast<int64_t>(i)};
      request.prompt = texts[i];
      request.max_new_tokens = 20;
      request.logits = sched::LogitsMode::kAll;
      ASSERT_TRUE((*engine)->Submit(request).ok());
    }
    Result<bool> more = true;
    while (more.ok() && *more) {
      more = (*engine)->Step([&](const sched::Span& span, const engine::SpanOutput& output,
                                 bool wanted) -> Result<std::optional<TokenId>> {
        const auto i = static_cast<size_t>(span.seq);
        rows[i].insert(rows[i].end(), output.logits.begin(), output.logits.end());
        if (!wanted) return std::optional<TokenId>();
        const auto last = output.logits.last(static_cast<size_t>(Vocab()));
        texts[i].push_back(static_cast<TokenId>(std::max_element(last.begin(), last.end()) - last.begin()));
        return std::optional<TokenId>(texts[i].back());
      });
    }
    ASSERT_TRUE(more.ok()) << more.error().message;
    std::vector<float> decoded;
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i].pop_back();  // sampled last, computed never
      decoded.insert(decoded.end(), rows[i].begin(), rows[i].end());
    }
    Compare(LogitsOf(AtRanks(1), texts, 0), decoded, fmt::format("decoding at N={}", ranks));
  }
}

// Fast mode promises less: one layout gives one result, however its tokens come.
TEST_F(LayoutIdentity, FastModeRepeatsItself) {
  for (const int64_t ranks : {1, 3}) {
    EngineOptions options = AtRanks(ranks);
    options.numerics = kernels::Numerics::kFast;
    const std::vector<float> first = LogitsOf(options, Base().all, 0);
    for (const size_t batch : {0, 1, 7}) {
      Compare(first, LogitsOf(options, Base().all, batch),
              fmt::format("{} batch {}", support::Describe(options), batch));
    }
    for (const int64_t chunk : {7, 64}) {
      EngineOptions chunked = options;
      chunked.prefill_chunk = chunk;
      Compare(first, LogitsOf(chunked, Base().all, 0), support::Describe(chunked));
    }
    options.launch = Launch::kProcesses;
    options.threads = 2;
    Compare(first, LogitsOf(options, Base().all, 0), support::Describe(options));
    // It is near exact mode, and not the same: else this test would not have run what it is about.
    EXPECT_NE(support::FirstDifference(Base().all_logits, first, Vocab()), "");
    EXPECT_LE(support::LargestDifference(Base().all_logits, first), 1e-3);
  }
}

}  // namespace
}  // namespace trivet
