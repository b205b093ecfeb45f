// SPDX-License-Identifier: Apache-2.0
// Bytes are compared with another implementation in tests/oracle/quantize_oracle.py; here: which tensors become what,
// refusals, and memory.
#include "export/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "quant/quantize.h"
#include "tests/export/sources.h"
#include "tests/support/peak_memory.h"

namespace trivet::exporter {
namespace {

using tensor::DType;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::map<std::string, checkpoint::TensorDecl> Decls(const QuantizePlan& plan) {
  std::map<std::string, checkpoint::TensorDecl> decls;
  for (const OutputTensor& tensor : plan.model.tensors) {
    EXPECT_TRUE(decls.emplace(tensor.decl.name, tensor.decl).second) << tensor.decl.name << " twice";
  }
  return decls;
}

// A model with experts of width 48 in one stack, which blocks of 32 do not divide.
class Quantize : public testing::Test {
 protected:
  Result<QuantizePlan> Plan(const engine::OpenedModel& model, QuantFormat format, bool head = false) {
    return PlanQuantize(SourceOf(model), {format, head, &pool_});
  }

  ThreadPool pool_{2};
};

TEST_F(Quantize, WordsOfFormats) {
  EXPECT_EQ(*ParseQuantFormat("fp8"), QuantFormat::kFp8);
  EXPECT_EQ(*ParseQuantFormat("mxfp4"), QuantFormat::kMxfp4);
  EXPECT_EQ(ParseQuantFormat("int8").error().code, Code::kUsage);
}

TEST_F(Quantize, Fp8TakesStackedExpertsApart) {
  const engine::SmallModel small;
  const Result<QuantizePlan> plan = Plan(small.model(), QuantFormat::kFp8);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto decls = Decls(*plan);
  const std::string at = small.model().names.prefix + "layers.0.";
  for (const auto& [name, rows, cols] : {std::tuple{"mlp.experts.7.gate_proj", 48, 64},
                                         {"mlp.experts.0.up_proj", 48, 64},
                                         {"mlp.experts.3.down_proj", 64, 48},
                                         {"mlp.shared_expert.down_proj", 64, 48},
                                         {"linear_attn.in_proj_qkv", 256, 64}}) {
    ASSERT_THAT(decls, Contains(testing::Key(at + name + ".weight")));
    EXPECT_EQ(decls.at(at + name + ".weight").dtype, DType::kF8E4M3);
    EXPECT_THAT(decls.at(at + name + ".weight").shape, ElementsAre(rows, cols));
    EXPECT_EQ(decls.at(at + name + ".weight_scale_inv").dtype, DType::kF32);
    EXPECT_THAT(decls.at(at + name + ".weight_scale_inv").shape, ElementsAre((rows + 127) / 128, (cols + 127) / 128));
  }
  EXPECT_FALSE(decls.contains(at + "mlp.experts.gate_up_proj"));
  const Json& config = plan->model.config["quantization_config"];
  EXPECT_EQ(config["quant_method"], "fp8");
  EXPECT_EQ(config["weight_block_size"], Json::array({128, 128}));
  const Json& left = config["modules_to_not_convert"];
  for (const char* name :
       {"linear_attn.in_proj_a", "linear_attn.in_proj_b", "linear_attn.conv1d", "mlp.gate", "mlp.shared_expert_gate"}) {
    EXPECT_EQ(decls.at(at + name + ".weight").dtype, DType::kBF16) << name;
    EXPECT_EQ(std::count(left.begin(), left.end(), at + name), 1) << name;
  }
  EXPECT_EQ(std::count(left.begin(), left.end(), "lm_head"), 1);
  EXPECT_EQ(std::count(left.begin(), left.end(), at + "linear_attn.out_proj"), 0);
}

TEST_F(Quantize, Mxfp4RefusesAWidthByTheTensor) {
  const engine::SmallModel small;
  const Result<QuantizePlan> plan = Plan(small.model(), QuantFormat::kMxfp4);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::kUnsupported);
  EXPECT_THAT(plan.error().message, HasSubstr("experts.0.down_proj: expected a width that is a multiple of 32"));
}

TEST_F(Quantize, Mxfp4IsWhatCompressedTensorsPacks) {
  support::SyntheticModel extents;
  extents.expert_width = extents.shared_width = 64;
  const engine::SmallModel small(extents);
  for (const bool head : {false, true}) {
    const Result<QuantizePlan> plan = Plan(small.model(), QuantFormat::kMxfp4, head);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto decls = Decls(*plan);
    const std::string at = small.model().names.prefix + "layers.0.mlp.experts.1.down_proj.";
    EXPECT_EQ(decls.at(at + "weight_packed").dtype, DType::kU8);
    EXPECT_THAT(decls.at(at + "weight_packed").shape, ElementsAre(64, 32));
    EXPECT_THAT(decls.at(at + "weight_scale").shape, ElementsAre(64, 2));
    EXPECT_EQ(decls.contains("lm_head.weight_packed"), head);
    EXPECT_EQ(decls.contains("lm_head.weight"), !head);
    const Json& config = plan->model.config["quantization_config"];
    EXPECT_EQ(config["format"], "mxfp4-pack-quantized");
    EXPECT_EQ(config["config_groups"]["group_0"]["weights"]["group_size"], 32);
    const Json& left = config["ignore"];
    EXPECT_EQ(std::count(left.begin(), left.end(), "lm_head"), head ? 0 : 1);
  }
}

TEST_F(Quantize, ExpertsWithBiasesHaveAPackedFormOfTheirOwn) {
  const engine::OpenedModel model = support::Open(CaseDir("gpt_oss"));
  const Result<QuantizePlan> plan = Plan(model, QuantFormat::kMxfp4);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto decls = Decls(*plan);
  const std::string at = "model.layers.0.";
  EXPECT_THAT(decls.at(at + "mlp.experts.gate_up_proj_blocks").shape, ElementsAre(4, 192, 3, 16));
  EXPECT_THAT(decls.at(at + "mlp.experts.gate_up_proj_scales").shape, ElementsAre(4, 192, 3));
  EXPECT_THAT(decls.at(at + "mlp.experts.down_proj_blocks").shape, ElementsAre(4, 96, 3, 16));
  EXPECT_EQ(decls.at(at + "self_attn.q_proj.weight").dtype, DType::kBF16);
  EXPECT_EQ(decls.at(at + "mlp.experts.down_proj_bias").dtype, DType::kBF16);
  EXPECT_EQ(plan->model.config["quantization_config"]["quant_method"], "mxfp4");
  const Result<QuantizePlan> fp8 = Plan(model, QuantFormat::kFp8);
  ASSERT_FALSE(fp8.ok());
  EXPECT_EQ(fp8.error().code, Code::kUnsupported);
  EXPECT_THAT(fp8.error().message, HasSubstr("those of gpt_oss"));
}

TEST_F(Quantize, ATiedHeadCannotBeQuantised) {
  support::SyntheticModel extents;
  extents.tied_head = true;
  const engine::SmallModel small(extents);
  const Result<QuantizePlan> plan = Plan(small.model(), QuantFormat::kFp8, true);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::kUsage);
  EXPECT_TRUE(Plan(small.model(), QuantFormat::kFp8).ok());
}

// Every family, both formats: refused by name, or what is written scores the same bytes on one rank and on three.
TEST_F(Quantize, WhatIsWrittenRunsOnAnyRanks) {
  int written = 0;
  for (const char* name :
       {"llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_moe", "gemma3", "gpt_oss", "deepseek_v3"}) {
    const engine::OpenedModel model = support::Open(CaseDir(name));
    const support::TokenSet tokens = {support::RandomTokens(40, model.geometry.vocab, 3)};
    for (const QuantFormat format : {QuantFormat::kFp8, QuantFormat::kMxfp4}) {
      const Result<QuantizePlan> plan = Plan(model, format);
      if (!plan.ok()) {
        EXPECT_EQ(plan.error().code, Code::kUnsupported) << name;
        continue;
      }
      const TempDir dir;
      const Result<OutputFiles> files = WriteModel(plan->model, dir.Path("out"), {});
      ASSERT_TRUE(files.ok()) << files.error().message;
      const engine::OpenedModel quantised = support::Open(dir.Path("out"));
      EXPECT_THAT(quantised.notices, testing::SizeIs(model.notices.size()));
      engine::EngineOptions three;
      three.layout.ranks = 3;
      const Result<std::vector<float>> one = support::Logits(quantised, {}, tokens);
      const Result<std::vector<float>> cut = support::Logits(quantised, three, tokens);
      ASSERT_TRUE(one.ok() && cut.ok()) << name;
      EXPECT_EQ(support::FirstDifference(*one, *cut, model.geometry.vocab), "") << name;
      ++written;
    }
  }
  EXPECT_EQ(written, 8 + 4);
}

// The checkpoint is many times what the writing takes: staging, and a band of rows as floats with their codes.
TEST_F(Quantize, MemoryIsAFewStagingBuffers) {
  if (!support::kMemoryIsMeasurable) GTEST_SKIP() << "a sanitizer keeps freed memory";
  support::SyntheticModel extents;
  extents.hidden = 1024;
  extents.experts = 8;
  extents.expert_width = extents.shared_width = 384;
  const engine::SmallModel small(extents);
  for (const QuantFormat format : {QuantFormat::kFp8, QuantFormat::kMxfp4}) {
    const int64_t growth = support::PeakGrowth([&] {
      ThreadPool pool(2);
      const Result<QuantizePlan> plan = PlanQuantize(SourceOf(small.model()), {format, false, &pool});
      return plan.ok() && WriteModel(plan->model, small.dir().Path("out"), {}).ok();
    });
    std::filesystem::remove_all(small.dir().Path("out"));
    std::printf("%s: checkpoint %.1f MB, peak growth %.2f MB\n", format == QuantFormat::kFp8 ? "fp8" : "mxfp4",
                static_cast<double>(small.model().checkpoint.total_bytes()) * 1e-6, static_cast<double>(growth) * 1e-6);
    EXPECT_GT(small.model().checkpoint.total_bytes(), 10 * kStagingBytes);
    EXPECT_GT(growth, 0);
    EXPECT_LE(growth, 3 * kStagingBytes);
  }
}

}  // namespace
}  // namespace trivet::exporter
