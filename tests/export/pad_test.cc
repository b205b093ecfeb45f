// SPDX-License-Identifier: Apache-2.0
#include "export/pad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "plan/leaf.h"
#include "tests/export/sources.h"
#include "tests/support/paths.h"
#include "tests/support/peak_memory.h"

namespace trivet::exporter {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kFamilies[] = {"llama",       "qwen2",  "qwen3",   "qwen3_moe",  "qwen3_next",
                                     "qwen3_5_moe", "gemma3", "gpt_oss", "deepseek_v3"};
constexpr int64_t kRanks[] = {2, 3, 5, 6, 7};

Result<PadPlan> Plan(const engine::OpenedModel& model, int64_t ranks, bool vocab = false) {
  return PlanPad(SourceOf(model), {ranks, vocab});
}

// Whether sums over every cut width are interrupted at the same places: then the padded model has the same bits.
bool SameLeaves(const plan::Geometry& a, const plan::Geometry& b) {
  return plan::WidthLeaf(a.moe.width) == plan::WidthLeaf(b.moe.width) &&
         plan::WidthLeaf(a.moe.shared_width) == plan::WidthLeaf(b.moe.shared_width) &&
         plan::WidthLeaf(a.mlp_width) == plan::WidthLeaf(b.mlp_width);
}

// The first `vocab` logits of every token.
std::vector<float> RealLogits(const std::vector<float>& logits, int64_t padded, int64_t vocab) {
  std::vector<float> real;
  for (size_t at = 0; at < logits.size(); at += static_cast<size_t>(padded)) {
    real.insert(real.end(), logits.begin() + static_cast<std::ptrdiff_t>(at),
                logits.begin() + static_cast<std::ptrdiff_t>(at) + vocab);
  }
  return real;
}

// What rounding may change where leaves differ: a chain of at most 128 operations a layer, 2^-24 each, and layers that
// make of a difference at most 16 times as much.
double Bound(const plan::Geometry& geometry, const std::vector<float>& logits) {
  double largest = 0;
  for (const float logit : logits) largest = std::max(largest, std::fabs(static_cast<double>(logit)));
  return 16 * static_cast<double>(geometry.layers.size()) * 128 * 0x1p-24 * largest;
}

class PadFamily : public testing::TestWithParam<const char*> {};

TEST_P(PadFamily, GivesTheSameLogitsAndSharesThatDivide) {
  const engine::OpenedModel model = support::Open(CaseDir(GetParam()));
  const plan::Geometry& stock = model.geometry;
  const support::TokenSet tokens = {support::RandomTokens(40, stock.vocab, 4)};
  const Result<std::vector<float>> expected = support::Logits(model, {}, tokens);
  ASSERT_TRUE(expected.ok());
  for (const int64_t ranks : kRanks) {
    for (const bool vocab : {false, true}) {
      const Result<PadPlan> plan = Plan(model, ranks, vocab);
      if (!plan.ok()) {
        EXPECT_EQ(plan.error().code, Code::kInfeasible) << plan.error().message;
        EXPECT_THAT(GetParam(), AnyOf(testing::StrEq("llama"), testing::StrEq("gemma3")));
        EXPECT_THAT(plan.error().message, HasSubstr("divide the hidden width"));
        continue;
      }
      for (const PaddedAxis& axis : plan->axes) {
        EXPECT_GE(axis.padded, axis.stock);
        if (axis.axis == "vocab" && !vocab) continue;
        EXPECT_EQ(axis.padded % ranks, 0) << axis.axis << " " << ranks;
      }
      const TempDir dir;
      const Result<OutputFiles> files = WriteModel(plan->model, dir.Path("out"), {});
      ASSERT_TRUE(files.ok()) << files.error().message;
      const engine::OpenedModel padded = support::Open(dir.Path("out"));
      EXPECT_THAT(padded.notices, IsEmpty());
      const Result<std::vector<float>> logits = support::Logits(padded, {}, tokens);
      ASSERT_TRUE(logits.ok()) << logits.error().message;
      const std::vector<float> real = RealLogits(*logits, padded.geometry.vocab, stock.vocab);
      if (SameLeaves(stock, padded.geometry)) {
        EXPECT_EQ(support::FirstDifference(real, *expected, stock.vocab), "") << ranks;
      } else {
        const double difference = support::LargestDifference(real, *expected);
        EXPECT_LE(difference, Bound(stock, *expected)) << ranks;
        std::printf("%s for %d ranks: largest difference %.2e\n", GetParam(), static_cast<int>(ranks), difference);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PadFamily, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param); });

// Whatever the extents, the padded layout of the model and the plain one of the padded model have the same tensors.
TEST(Pad, OddGeometriesKeepTheirLogits) {
  support::SyntheticModel grouped;
  grouped.q_heads = 6, grouped.kv_heads = 3, grouped.k_heads = 3, grouped.v_heads = 9, grouped.v_dim = 48;
  grouped.expert_width = 37, grouped.shared_width = 20, grouped.vocab = 97, grouped.some_f32 = true;
  support::SyntheticModel dense;
  dense.experts = 0, dense.mlp_width = 100, dense.head_dim = 80, dense.tied_head = true, dense.fused_experts = false;
  for (const support::SyntheticModel& extents : {grouped, dense}) {
    const engine::SmallModel small(extents);
    const support::TokenSet tokens = {support::RandomTokens(20, small.vocab(), 5)};
    const Result<std::vector<float>> expected = support::Logits(small.model(), {}, tokens);
    ASSERT_TRUE(expected.ok());
    for (const int64_t ranks : kRanks) {
      const Result<PadPlan> plan = Plan(small.model(), ranks);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      const std::string out = small.dir().Path("out");
      ASSERT_TRUE(WriteModel(plan->model, out, {}).ok());
      const engine::OpenedModel padded = support::Open(out);
      const Result<std::vector<float>> logits = support::Logits(padded, {}, tokens);
      ASSERT_TRUE(logits.ok());
      EXPECT_LE(support::LargestDifference(*logits, *expected), Bound(small.model().geometry, *expected));
      std::filesystem::remove_all(out);
    }
  }
}

TEST(Pad, TheDemoForFiveRanksKeepsItsBits) {
  const engine::OpenedModel model = support::Open(DemoDir());
  const Result<PadPlan> plan = Plan(model, 5);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(plan->notices, Contains(HasSubstr("multi-token-prediction head")));
  const TempDir dir;
  ASSERT_TRUE(WriteModel(plan->model, dir.Path("out"), {}).ok());
  const engine::OpenedModel padded = support::Open(dir.Path("out"));
  EXPECT_EQ(padded.geometry.attention.kv_heads, 5);
  EXPECT_EQ(padded.geometry.attention.q_heads, 20);
  EXPECT_EQ(padded.geometry.delta_net.k_heads, 5);
  EXPECT_EQ(padded.geometry.moe.width, 160);
  EXPECT_EQ(padded.geometry.moe.experts, 10);
  const support::TokenSet tokens = {support::RandomTokens(70, model.geometry.vocab, 6)};
  engine::EngineOptions even;
  even.layout.ranks = 5;
  even.layout.cuts = {{"attn", "pad"}, {"gdn", "pad"}, {"experts", "width-pad"}};
  const Result<std::vector<float>> expected = support::Logits(model, {}, tokens);
  const Result<std::vector<float>> one = support::Logits(padded, {}, tokens);
  const Result<std::vector<float>> five = support::Logits(padded, even, tokens);
  ASSERT_TRUE(expected.ok() && one.ok() && five.ok());
  EXPECT_EQ(support::FirstDifference(*one, *expected, model.geometry.vocab), "");
  EXPECT_EQ(support::FirstDifference(*five, *expected, model.geometry.vocab), "");
}

TEST(Pad, OneRankChangesNothing) {
  const engine::SmallModel small;
  const Result<PadPlan> plan = Plan(small.model(), 1);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->pads, 0);
  EXPECT_EQ(plan->padded_tensors, 0);
  EXPECT_THAT(plan->notices, IsEmpty());
}

TEST(Pad, SaysWhatHappensToTheVocabulary) {
  const engine::SmallModel small;  // 300 rows, filled up to 320 by engines: 5 times 64
  EXPECT_THAT(Plan(small.model(), 5)->notices, IsEmpty());
  EXPECT_THAT(Plan(small.model(), 3)->notices, testing::ElementsAre(HasSubstr("left as it is")));
  const Result<PadPlan> padded = Plan(small.model(), 3, true);
  ASSERT_TRUE(padded.ok());
  EXPECT_THAT(padded->notices, testing::ElementsAre(HasSubstr("rows 300 to 383 are zero")));
  EXPECT_EQ(padded->model.config["vocab_size"], 384);
}

TEST(Pad, MemoryIsAFewStagingBuffers) {
  if (!support::kMemoryIsMeasurable) GTEST_SKIP() << "a sanitizer keeps freed memory";
  support::SyntheticModel extents;
  extents.hidden = 1024;
  extents.expert_width = extents.shared_width = 384;
  extents.fused_experts = false;
  const engine::SmallModel small(extents);
  const int64_t growth = support::PeakGrowth([&] {
    const Result<PadPlan> plan = Plan(small.model(), 7);
    return plan.ok() && plan->pads > 0 && WriteModel(plan->model, small.dir().Path("out"), {}).ok();
  });
  EXPECT_GT(small.model().checkpoint.total_bytes(), 10 * kStagingBytes);
  EXPECT_GT(growth, 0);
  EXPECT_LE(growth, 3 * kStagingBytes);
}

TEST(Pad, Refusals) {
  const engine::OpenedModel quantised = support::Open(CaseDir("qwen3-fp8"));
  EXPECT_EQ(Plan(quantised, 3).error().code, Code::kUnsupported);
  const engine::SmallModel small;
  for (const int64_t ranks : {0, 17}) EXPECT_EQ(Plan(small.model(), ranks).error().code, Code::kUsage);
  // A tensor whose axes nobody knows cannot be padded, nor left out silently.
  OutputModel odd = {{}, small.model().files.config, small.dir().Path()};
  for (const checkpoint::TensorInfo& info : small.model().checkpoint.tensors()) {
    odd.tensors.push_back(CopyOf(small.model().checkpoint, info));
  }
  odd.tensors.push_back({{"model.mystery.weight", tensor::DType::kU8, {1}},
                         [](const Sink& sink) { return sink(std::vector<std::byte>(1)); }});
  ASSERT_TRUE(WriteModel(odd, small.dir().Path("odd"), {}).ok());
  const Result<PadPlan> unknown = Plan(support::Open(small.dir().Path("odd")), 3);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Code::kUnsupported);
  EXPECT_THAT(unknown.error().message, HasSubstr("model.mystery.weight"));
}

}  // namespace
}  // namespace trivet::exporter
