// SPDX-License-Identifier: Apache-2.0
#include "plan/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

using ::testing::HasSubstr;

Json DenseConfig() {
  Json config = DemoConfig();
  config["model_type"] = "qwen3_5_text";
  config["intermediate_size"] = 352;
  return config;
}

TEST(Families, ReadsTheDemo) {
  const Geometry demo = DemoGeometry();
  EXPECT_EQ(demo.family, "qwen3_5_moe");
  EXPECT_EQ(demo.hidden, 256);
  EXPECT_EQ(demo.vocab, 4096);
  EXPECT_EQ(demo.max_positions, 2048);
  EXPECT_EQ(demo.norm_offset, 1);
  EXPECT_EQ(demo.norm_eps, 1e-6);
  EXPECT_TRUE(demo.tied_head);
  ASSERT_EQ(demo.layers.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(demo.layers[i].mixer, i % 4 == 3 ? Mixer::kAttention : Mixer::kDeltaNet);
    EXPECT_EQ(demo.layers[i].channel_mixer, ChannelMixer::kMoe);
  }
  EXPECT_EQ(demo.attention.q_heads, 8);
  EXPECT_EQ(demo.attention.kv_heads, 2);
  EXPECT_EQ(demo.attention.rotary_dim, 16);
  ASSERT_EQ(demo.ropes.size(), 1u);
  EXPECT_EQ(demo.ropes[0].frequencies.size(), 8u);
  EXPECT_EQ(demo.ropes[0].scale, 1);
  EXPECT_TRUE(demo.attention.output_gate);
  EXPECT_TRUE(demo.attention.qk_norm);
  EXPECT_EQ(demo.delta_net.v_heads, 8);
  EXPECT_EQ(demo.delta_net.conv_width, 4);
  EXPECT_EQ(demo.moe.top_k, 2);
  EXPECT_EQ(demo.moe.shared_width, 160);
  EXPECT_EQ(demo.mlp_width, 0);
}

TEST(Families, ReadsTheDenseVariant) {
  const Result<Geometry> dense = ReadTextConfig(DenseConfig());
  ASSERT_TRUE(dense.ok()) << dense.error().message;
  EXPECT_EQ(dense->family, "qwen3_5");
  EXPECT_EQ(dense->mlp_width, 352);
  EXPECT_EQ(dense->moe.experts, 0);
  EXPECT_TRUE(dense->Uses(ChannelMixer::kMlp));
  EXPECT_FALSE(dense->Uses(ChannelMixer::kMoe));
}

TEST(Families, AbsentKeysTakeTheFamilysDefaults) {
  Json config = DemoConfig();
  for (const char* key :
       {"layer_types", "partial_rotary_factor", "head_dim", "num_key_value_heads", "linear_num_key_heads",
        "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
        "shared_expert_intermediate_size", "moe_intermediate_size", "max_position_embeddings"}) {
    config.erase(key);
  }
  config["rope_parameters"] = Json::object();
  config["num_attention_heads"] = 4;
  const Result<Geometry> geometry = ReadTextConfig(config);
  ASSERT_TRUE(geometry.ok()) << geometry.error().message;
  EXPECT_EQ(geometry->layers[3].mixer, Mixer::kAttention);
  EXPECT_EQ(geometry->layers[4].mixer, Mixer::kDeltaNet);
  EXPECT_EQ(geometry->attention.kv_heads, 2);
  EXPECT_EQ(geometry->attention.head_dim, 256);
  EXPECT_EQ(geometry->attention.rotary_dim, 64);
  EXPECT_EQ(geometry->ropes[0].frequencies[1], static_cast<float>(std::pow(10000.0, -1.0 / 32)));
  EXPECT_EQ(geometry->max_positions, 32768);
  EXPECT_EQ(geometry->delta_net.k_heads, 16);
  EXPECT_EQ(geometry->delta_net.v_heads, 32);
  EXPECT_EQ(geometry->delta_net.k_dim, 128);
  EXPECT_EQ(geometry->delta_net.v_dim, 128);
  EXPECT_EQ(geometry->delta_net.conv_width, 4);
  EXPECT_EQ(geometry->moe.shared_width, 512);
  EXPECT_EQ(geometry->moe.width, 512);
  config["full_attention_interval"] = 2;
  EXPECT_EQ(ReadTextConfig(config)->layers[1].mixer, Mixer::kAttention);
  config["attn_output_gate"] = false;
  EXPECT_FALSE(ReadTextConfig(config)->attention.output_gate);
}

struct BadCase {
  const char* patch;  // JSON merge patch over the demo's config
  Code code;
  const char* text;
};

class BadConfig : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadConfig, IsNamed) {
  Json config = DemoConfig();
  config.merge_patch(Json::parse(GetParam().patch));
  const Result<Geometry> geometry = ReadTextConfig(config);
  ASSERT_FALSE(geometry.ok()) << GetParam().patch;
  EXPECT_EQ(geometry.error().code, GetParam().code) << geometry.error().message;
  EXPECT_THAT(geometry.error().message, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Families, BadConfig,
    ::testing::Values(
        BadCase{R"({"model_type": "deepseek_v4"})", Code::kUnsupported, "family not supported yet"},
        BadCase{R"({"model_type": "mamba"})", Code::kUnsupported, "qwen3_5_moe, qwen3_5_moe_text, qwen3_5"},
        BadCase{R"({"model_type": null})", Code::kInvalid, "model_type"},
        BadCase{R"({"model_type": 7})", Code::kInvalid, "model_type"},
        BadCase{R"({"hidden_act": "gelu"})", Code::kUnsupported, "gelu"},
        BadCase{R"({"rope_parameters": {"rope_type": "spiral"}})", Code::kUnsupported, "spiral"},
        BadCase{R"({"output_gate_type": "tanh"})", Code::kUnsupported, "output_gate_type"},
        BadCase{R"({"hidden_size": 0})", Code::kInvalid, "hidden_size"},
        BadCase{R"({"hidden_size": -4})", Code::kInvalid, "hidden_size"},
        BadCase{R"({"hidden_size": 16777217})", Code::kInvalid, "hidden_size"},
        BadCase{R"({"hidden_size": "256"})", Code::kInvalid, "hidden_size"},
        BadCase{R"({"hidden_size": null})", Code::kInvalid, "hidden_size"},
        BadCase{R"({"vocab_size": 99999999999})", Code::kInvalid, "vocab_size"},
        BadCase{R"({"num_hidden_layers": 4097})", Code::kInvalid, "num_hidden_layers"},
        BadCase{R"({"num_hidden_layers": 7})", Code::kInvalid, "layer_types"},
        BadCase{R"({"layer_types": "full_attention"})", Code::kInvalid, "layer_types"},
        BadCase{R"({"layer_types": [1, 2, 3, 4, 5, 6, 7, 8]})", Code::kInvalid, "layer_types"},
        BadCase{R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})", Code::kUnsupported,
                "sliding_attention"},
        BadCase{R"({"layer_types": null, "full_attention_interval": 0})", Code::kInvalid, "full_attention_interval"},
        BadCase{R"({"num_attention_heads": 7})", Code::kInvalid, "num_key_value_heads"},
        BadCase{R"({"num_key_value_heads": 0})", Code::kInvalid, "num_key_value_heads"},
        BadCase{R"({"head_dim": 257})", Code::kUnsupported, "head_dim"},
        BadCase{R"({"head_dim": 4})", Code::kInvalid, "partial_rotary_factor"},
        BadCase{R"({"rope_parameters": {"partial_rotary_factor": 1.5}})", Code::kInvalid, "partial_rotary_factor"},
        BadCase{R"({"rope_parameters": {"partial_rotary_factor": -1}})", Code::kInvalid, "partial_rotary_factor"},
        BadCase{R"({"rope_parameters": {"rope_theta": 0}})", Code::kInvalid, "rope_theta"},
        BadCase{R"({"rms_norm_eps": 0})", Code::kInvalid, "rms_norm_eps"},
        BadCase{R"({"rms_norm_eps": 1e300})", Code::kInvalid, "at most 1"},
        BadCase{R"({"linear_value_head_dim": 63})", Code::kUnsupported, "linear_value_head_dim"},
        BadCase{R"({"linear_num_value_heads": 6})", Code::kInvalid, "linear_num_value_heads"},
        BadCase{R"({"linear_conv_kernel_dim": 65})", Code::kInvalid, "linear_conv_kernel_dim"},
        BadCase{R"({"num_experts": 70000})", Code::kInvalid, "num_experts"},
        BadCase{R"({"num_experts": 60000})", Code::kInvalid, "experts in all layers"},
        BadCase{R"({"num_experts_per_tok": 11})", Code::kInvalid, "num_experts_per_tok"},
        BadCase{R"({"num_experts": null})", Code::kInvalid, "num_experts"},
        BadCase{R"({"shared_expert_intermediate_size": -1})", Code::kInvalid, "shared_expert_intermediate_size"},
        BadCase{R"({"hidden_size": 16777216, "moe_intermediate_size": 16777216})", Code::kInvalid, "parameters"}));

TEST(Families, NoObjectIsAnError) {
  const Json list = Json::array();
  EXPECT_FALSE(ReadGeometry({list, list}).ok());
}

TEST(Families, DefaultsStandInForAbsentKeysOnly) {
  for (const FamilyRow& row : Families()) {
    const Result<Json> defaults = ParseJson(row.defaults, row.name);
    ASSERT_TRUE(defaults.ok()) << row.name;
    EXPECT_TRUE(defaults->is_object()) << row.name;
  }
  Json config = DemoConfig();
  config["rope_parameters"].erase("partial_rotary_factor");
  config["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(ReadTextConfig(config)->attention.rotary_dim, 32);
}

}  // namespace
}  // namespace trivet::plan
