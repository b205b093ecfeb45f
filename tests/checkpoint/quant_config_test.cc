// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::checkpoint {
namespace {

using testing::HasSubstr;

Result<QuantConfig> Read(const std::string& quantization, const char* key = "quantization_config") {
  ModelFiles files;
  files.text_config = Json::object();
  files.text_config[key] = ParseJson(quantization, "test").value();
  return ReadQuantConfig(files);
}

TEST(QuantConfig, NoneIsUnquantised) {
  ModelFiles files;
  files.text_config = Json::object();
  const auto config = ReadQuantConfig(files);
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->method.empty());
  EXPECT_FALSE(config->Ignores("lm_head"));
}

TEST(QuantConfig, Fp8HasBlocks) {
  const auto config = Read(R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[64,256],
                               "modules_to_not_convert":["lm_head","model.layers.0"]})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->block_rows, 64);
  EXPECT_EQ(config->block_cols, 256);
  EXPECT_TRUE(config->Ignores("lm_head"));
  EXPECT_TRUE(config->Ignores("model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(config->Ignores("model.language_model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(config->Ignores("model.layers.00.mlp.gate_proj"));
  EXPECT_FALSE(config->Ignores("model.layers.1.mlp.gate_proj"));
}

TEST(QuantConfig, PatternsOfEveryMethod) {
  const auto quark = Read(R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4","group_size":32}},
                              "exclude":["*in_proj_a","re:.*\\.mlp\\.gate$"]})");
  ASSERT_TRUE(quark.ok()) << quark.error().message;
  EXPECT_TRUE(quark->Ignores("model.layers.3.linear_attn.in_proj_a"));
  EXPECT_FALSE(quark->Ignores("model.layers.3.linear_attn.in_proj_qkv"));
  EXPECT_TRUE(quark->Ignores("model.layers.3.mlp.gate"));
  EXPECT_FALSE(quark->Ignores("model.layers.3.mlp.gate_proj"));
  const auto gpt_oss = Read(R"({"quant_method":"mxfp4","modules_to_not_convert":["model.layers.*.self_attn"]})");
  ASSERT_TRUE(gpt_oss.ok());
  EXPECT_TRUE(gpt_oss->Ignores("model.layers.12.self_attn.q_proj"));
  EXPECT_FALSE(gpt_oss->Ignores("model.layers.12.mlp.experts.gate_up_proj"));
}

TEST(QuantConfig, CompressedTensors) {
  constexpr const char* kGroups =
      R"({"quant_method":"compressed-tensors","format":"float-quantized","ignore":["lm_head"],
          "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"channel"}}}})";
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto config = Read(kGroups, key);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_TRUE(config->Ignores("lm_head"));
  }
  EXPECT_TRUE(
      Read(R"({"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized","config_groups":{"g":{"weights":
                       {"num_bits":4,"type":"float","strategy":"group","group_size":32}}}})")
          .ok());
}

TEST(QuantConfig, WhatIsNotSupportedIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"quant_method":"gptq"})", "gptq"},
      {R"({"quant_method":"awq"})", "awq"},
      {R"({"quant_method":"bitsandbytes"})", "bitsandbytes"},
      {R"({"quant_method":"fbgemm_fp8"})", "fbgemm_fp8"},
      {R"({})", "none"},
      {R"([])", "an object"},
      {R"({"quant_method":"fp8","fmt":"e5m2"})", "e5m2"},
      {R"({"quant_method":"fp8","weight_block_size":[128,96]})", "[128,96]"},
      {R"({"quant_method":"fp8","weight_block_size":[0,128]})", "[0,128]"},
      {R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"})", "nvfp4-pack-quantized"},
      {R"({"quant_method":"compressed-tensors","format":"pack-quantized"})", "pack-quantized"},
      {R"({"quant_method":"compressed-tensors","format":"float-quantized","sparsity_config":{"format":"sparse-24-bitmask"}})",
       "sparse-24-bitmask"},
      {R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"weights":{"num_bits":8,"type":"int"}}}})",
       "int 8 bits"},
      {R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp6_e3m2"}}})", "fp6_e3m2"},
      {R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4","group_size":16}}})", "of 16"},
      {R"({"quant_method":"mxfp4","modules_to_not_convert":"lm_head"})", "lm_head"},
  };
  for (const auto& [text, message] : cases) {
    const auto config = Read(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_EQ(config.error().code, Code::kUnsupported) << text;
    EXPECT_THAT(config.error().message, HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace trivet::checkpoint
