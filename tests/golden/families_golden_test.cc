// SPDX-License-Identifier: Apache-2.0
// Small models of every family against what transformers computed for them in float32: tests/golden/cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "quant/convert.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

// The promise of docs/numerics.md; measured differences are about a hundredth of it.
constexpr double kTolerance = 1e-3;

bool IsQuantised(const std::string& name) { return name.find('-') != std::string::npos; }

// The reference of the quantised cases held its rotary frequencies in bfloat16.
engine::OpenedModel OpenCase(const std::string& name) {
  engine::OpenedModel model = support::Open(CaseDir(name));
  if (!IsQuantised(name)) return model;
  for (plan::RopeTable& rope : model.geometry.ropes) {
    for (float& frequency : rope.frequencies) frequency = quant::FromBF16(quant::ToBF16(frequency));
  }
  return model;
}

class FamilyGolden : public testing::TestWithParam<const char*> {
 protected:
  FamilyGolden()
      : model_(OpenCase(GetParam())), golden_(support::ReadGolden(CaseDir(GetParam()) + "/golden.safetensors")[0]) {}

  const engine::OpenedModel model_;
  const support::GoldenCase golden_;
};

TEST_P(FamilyGolden, LogitsAndHiddenStatesAreNearTheReference) {
  const Result<std::unique_ptr<engine::Engine>> engine = engine::Engine::Start(model_, {}, {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const auto scored = engine::Score(engine->get(), {{golden_.tokens}, false, true});
  ASSERT_TRUE(scored.ok()) << scored.error().message;
  const double logits = support::LargestDifference((*scored)[0].logits, golden_.logits);
  EXPECT_LE(logits, kTolerance);
  // The reference's last hidden state is behind the final norm; the logits stand for it.
  const std::vector<std::vector<float>>& hidden = (*scored)[0].hidden;
  const size_t size = hidden[0].size();
  ASSERT_EQ(golden_.hidden.size(), (hidden.size() + 1) * size);
  double worst = 0;
  for (size_t layer = 0; layer + 1 < hidden.size(); ++layer) {
    const auto begin = golden_.hidden.begin() + static_cast<std::ptrdiff_t>((layer + 1) * size);
    const std::vector<float> expected(begin, begin + static_cast<std::ptrdiff_t>(size));
    double largest = 0;
    for (const float value : expected) largest = std::max(largest, std::fabs(static_cast<double>(value)));
    worst = std::max(worst, support::LargestDifference(hidden[layer], expected) / largest);
  }
  EXPECT_LE(worst, kTolerance);
  EXPECT_FALSE((*engine)->saturated());
  std::printf("%s: largest difference of a logit %.2e, of a hidden state %.2e of the layer's largest\n", GetParam(),
              logits, worst);
}

TEST_P(FamilyGolden, LogitsAreTheSameBytesHoweverTheyAreComputed) {
  std::vector<engine::EngineOptions> variants(1);
  for (int64_t ranks = 2; ranks <= 8; ++ranks) variants.emplace_back().layout.ranks = ranks;
  for (const char* rows : {"ref", "avx2", "avx512"}) variants.emplace_back().kernels.rows = rows;
  variants.emplace_back().prefill_chunk = 7;
  for (const char* cut : {"uneven", "pad", "replicate"}) {
    engine::EngineOptions& options = variants.emplace_back();
    options.layout.ranks = 3;
    options.layout.cuts["attn"] = cut;
  }
  std::vector<float> expected;
  for (const engine::EngineOptions& options : variants) {
    if (!options.kernels.rows.empty() && !kernels::SelectKernels(kernels::CpuTarget(), options.kernels).ok()) continue;
    const Result<std::vector<float>> logits = support::Logits(model_, options, {golden_.tokens});
    ASSERT_TRUE(logits.ok()) << support::Describe(options) << ": " << logits.error().message;
    if (expected.empty()) expected = *logits;
    EXPECT_EQ(support::FirstDifference(*logits, expected, model_.geometry.vocab), "") << support::Describe(options);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGolden,
                         testing::Values("llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_moe", "gemma3",
                                         "gpt_oss", "deepseek_v3", "llama-mxfp4", "qwen3-fp8", "qwen3_5-fp8",
                                         "qwen3_5-mxfp4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(UnknownFamily, IsRefusedByName) {
  const Result<engine::OpenedModel> model = engine::OpenModel("deepseek_v4", CaseDir("deepseek_v4"));
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, Code::kUnsupported);
  EXPECT_THAT(model.error().message, testing::HasSubstr("deepseek_v4, a family not supported yet"));
}

}  // namespace
}  // namespace trivet
