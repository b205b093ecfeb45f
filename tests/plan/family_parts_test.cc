// SPDX-License-Identifier: Apache-2.0
#include "plan/family_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The config of a small model of a family, with changes.
Json Config(const char* family, const char* patch = "{}") {
  Json config = Json::parse(R"({"hidden_size": 64, "vocab_size": 100, "num_hidden_layers": 4, "intermediate_size": 96,
                                "max_position_embeddings": 128, "num_attention_heads": 4, "num_key_value_heads": 2})");
  config["model_type"] = family;
  config.merge_patch(Json::parse(patch));
  return config;
}

Geometry Read(const Json& config) {
  Result<Geometry> geometry = ReadTextConfig(config);
  CHECK_MSG(geometry.ok(), geometry.error().message);
  return std::move(geometry).value();
}

std::vector<int64_t> Windows(const Geometry& geometry) {
  std::vector<int64_t> windows;
  for (const LayerGeometry& layer : geometry.layers) windows.push_back(layer.window);
  return windows;
}

std::vector<bool> Sparse(const Geometry& geometry) {
  std::vector<bool> sparse;
  for (const LayerGeometry& layer : geometry.layers) sparse.push_back(layer.channel_mixer == ChannelMixer::kMoe);
  return sparse;
}

TEST(FamilyParts, LlamaBiases) {
  const Geometry plain = Read(Config("llama"));
  EXPECT_FALSE(plain.attention.qkv_bias || plain.attention.output_bias || plain.attention.qk_norm || plain.mlp.bias);
  EXPECT_EQ(plain.attention.head_dim, 16);
  EXPECT_EQ(plain.norm_offset, 0);
  EXPECT_EQ(plain.ropes[0].frequencies[1], static_cast<float>(std::pow(10000.0, -0.125)));
  const Geometry biased = Read(Config("llama", R"({"attention_bias": true, "mlp_bias": true})"));
  EXPECT_TRUE(biased.attention.qkv_bias && biased.attention.output_bias && biased.mlp.bias);
}

TEST(FamilyParts, Qwen2HasBiasesOnQueriesKeysAndValuesAlone) {
  const Geometry qwen2 = Read(Config("qwen2", R"({"attention_bias": true})"));
  EXPECT_TRUE(qwen2.attention.qkv_bias);
  EXPECT_FALSE(qwen2.attention.output_bias);
}

TEST(FamilyParts, WindowsOnlyWhereTheyAreUsed) {
  const char* off = R"({"sliding_window": 7, "max_window_layers": 2})";
  const char* on = R"({"sliding_window": 7, "max_window_layers": 2, "use_sliding_window": true})";
  EXPECT_THAT(Windows(Read(Config("qwen3", off))), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Windows(Read(Config("qwen3", on))), ElementsAre(0, 0, 7, 7));
  EXPECT_THAT(Windows(Read(Config("qwen2", on))), ElementsAre(0, 0, 7, 7));
  Json listed = Config("qwen3", R"({"sliding_window": 7, "layer_types":
      ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]})");
  EXPECT_THAT(Windows(Read(listed)), ElementsAre(7, 0, 0, 7));
  listed["sliding_window"] = nullptr;
  EXPECT_THAT(ReadTextConfig(listed).error().message, HasSubstr("sliding_window"));
}

TEST(FamilyParts, Qwen3MoeLayersAndRouter) {
  const char* patch = R"({"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                          "decoder_sparse_step": 2, "mlp_only_layers": [3]})";
  const Geometry moe = Read(Config("qwen3_moe", patch));
  EXPECT_THAT(Sparse(moe), ElementsAre(false, true, false, false));
  EXPECT_EQ(moe.mlp_width, 96);
  EXPECT_EQ(moe.moe.router.kind, RouterKind::kSoftmaxAll);
  EXPECT_EQ(moe.moe.shared_width, 0);
  Json renamed = Config("qwen3_moe", patch);
  renamed["num_local_experts"] = renamed["num_experts"];
  renamed.erase("num_experts");
  renamed["norm_topk_prob"] = true;
  renamed["num_attention_heads"] = 8;
  renamed.erase("num_key_value_heads");
  EXPECT_EQ(Read(renamed).attention.kv_heads, 4);
  EXPECT_EQ(Read(renamed).moe.experts, 6);
  EXPECT_EQ(Read(renamed).moe.router.kind, RouterKind::kSoftmaxChosen);
}

TEST(FamilyParts, Gemma3FromAWrapperThatLeavesDefaultsOut) {
  const Geometry gemma =
      Read(Json::parse(R"({"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
      "num_hidden_layers": 7, "sliding_window": 1024, "rope_parameters": {"rope_type": "linear", "factor": 8.0}})"));
  EXPECT_EQ(gemma.vocab, 262208);
  EXPECT_EQ(gemma.attention.q_heads, 8);
  EXPECT_EQ(gemma.attention.scale, 1.0 / 16);
  EXPECT_TRUE(gemma.tied_head && gemma.branch_norms);
  EXPECT_EQ(gemma.mlp.activation, Activation::kGeluTanh);
  EXPECT_THAT(Windows(gemma), ElementsAre(1024, 1024, 1024, 1024, 1024, 0, 1024));
  ASSERT_EQ(gemma.ropes.size(), 2u);
  const RopeTable& full = gemma.ropes[static_cast<size_t>(gemma.layers[5].rope)];
  const RopeTable& sliding = gemma.ropes[static_cast<size_t>(gemma.layers[0].rope)];
  EXPECT_EQ(full.frequencies[0], 0.125F);
  EXPECT_EQ(sliding.frequencies[0], 1.0F);
  EXPECT_EQ(sliding.frequencies[64], 0.01F);
}

TEST(FamilyParts, Gemma3ScoresAreNotCapped) {
  const Geometry gemma =
      Read(Config("gemma3_text", R"({"attn_logit_softcapping": 50, "final_logit_softcapping": 30})"));
  EXPECT_EQ(gemma.attention.softcap, 0);
  EXPECT_EQ(gemma.logit_softcap, 30);
}

TEST(FamilyParts, GptOssWithoutARopeHasThePublishedOne) {
  const char* absent = R"({"num_experts": 4, "experts_per_token": 2, "rope_theta": 777})";
  const char* yarn = R"({"num_experts": 4, "experts_per_token": 2, "rope_theta": 777,
      "rope_parameters": {"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false,
                       "original_max_position_embeddings": 4096}})";
  const char* none = R"({"num_experts": 4, "experts_per_token": 2, "rope_theta": 777,
      "rope_parameters": {"rope_type": "default"}})";
  const RopeTable published = Read(Config("gpt_oss", absent)).ropes[0];
  EXPECT_EQ(published.frequencies, Read(Config("gpt_oss", yarn)).ropes[0].frequencies);
  EXPECT_EQ(published.scale, static_cast<float>(0.1 * std::log(32.0) + 1));
  EXPECT_EQ(Read(Config("gpt_oss", none)).ropes[0].scale, 1);
}

TEST(FamilyParts, GptOssWindowsSinksAndExperts) {
  const Geometry oss = Read(Config("gpt_oss", R"({"num_experts": 4, "experts_per_token": 2, "head_dim": 32})"));
  EXPECT_THAT(Windows(oss), ElementsAre(128, 0, 128, 0));
  const char* every_third = R"({"num_experts": 4, "experts_per_token": 2, "sliding_window_pattern": 3})";
  EXPECT_THAT(Windows(Read(Config("gpt_oss", every_third))), ElementsAre(128, 128, 0, 128));
  EXPECT_TRUE(oss.attention.sinks && oss.attention.qkv_bias && oss.attention.output_bias);
  EXPECT_TRUE(oss.moe.bias && oss.moe.router.bias);
  EXPECT_EQ(oss.moe.width, 96);
  EXPECT_EQ(oss.moe.top_k, 2);
  EXPECT_EQ(oss.mlp.limit, 7);
  EXPECT_EQ(oss.norm_eps, 1e-5);
}

TEST(FamilyParts, DeepseekLatentAndRouter) {
  const char* patch = R"({"n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4,
      "topk_group": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_shared_experts": 2,
      "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                          "original_max_position_embeddings": 64}})";
  Json config = Config("deepseek_v3", patch);
  config["q_lora_rank"] = nullptr;  // a value of its own, other than absence
  const Geometry deepseek = Read(config);
  EXPECT_TRUE(deepseek.Uses(Mixer::kLatentAttention) && deepseek.UsesKv());
  EXPECT_EQ(deepseek.latent.query_rank, 0);
  EXPECT_EQ(deepseek.key_dim(), 512 + 64);
  EXPECT_EQ(deepseek.value_dim(), 512);
  EXPECT_EQ(deepseek.head_out_dim(), 128);
  EXPECT_NEAR(deepseek.attention.scale * std::sqrt(192.0), 1.3689 * 1.3689, 1e-4);
  EXPECT_EQ(deepseek.ropes[0].scale, 1);
  EXPECT_THAT(Sparse(deepseek), ElementsAre(false, true, true, true));
  EXPECT_EQ(deepseek.moe.shared_width, 64);
  EXPECT_FALSE(deepseek.moe.shared_gate);
  EXPECT_EQ(deepseek.moe.router.groups_kept, 2);
  EXPECT_EQ(Read(Config("deepseek_v3", R"({"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
                                           "topk_group": 8})"))
                .latent.query_rank,
            1536);
}

struct BadCase {
  const char* family;
  const char* patch;
  Code code;
  const char* text;
};

class BadPart : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadPart, IsNamed) {
  const Result<Geometry> geometry = ReadTextConfig(Config(GetParam().family, GetParam().patch));
  ASSERT_FALSE(geometry.ok()) << GetParam().patch;
  EXPECT_EQ(geometry.error().code, GetParam().code) << geometry.error().message;
  EXPECT_THAT(geometry.error().message, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    FamilyParts, BadPart,
    ::testing::Values(
        BadCase{"llama", R"({"hidden_act": "relu"})", Code::kUnsupported, "relu"},
        BadCase{"llama", R"({"head_dim": 15})", Code::kUnsupported, "even"},
        BadCase{"llama", R"({"layer_types": ["a", "b", "c", "d"]})", Code::kUnsupported, "full_attention"},
        BadCase{"qwen3_moe", R"({"num_experts": 4, "mlp_only_layers": 3})", Code::kInvalid, "mlp_only_layers"},
        BadCase{"qwen3_moe", R"({"decoder_sparse_step": 0})", Code::kInvalid, "decoder_sparse_step"},
        BadCase{"gemma3", R"({"use_bidirectional_attention": true})", Code::kUnsupported,
                "use_bidirectional_attention"},
        BadCase{"gemma3", R"({"query_pre_attn_scalar": 0})", Code::kInvalid, "query_pre_attn_scalar"},
        BadCase{"gemma3", R"({"rope_parameters": {"sliding_attention": {"rope_theta": 0}}})", Code::kInvalid,
                "rope_theta"},
        BadCase{"llama", R"({"num_attention_heads": 6})", Code::kInvalid, "head_dim"},
        BadCase{"gpt_oss", R"({"num_experts": 4, "experts_per_token": 2, "sliding_window_pattern": 0})", Code::kInvalid,
                "sliding_window_pattern"},
        BadCase{"gpt_oss", R"({"num_experts": 4, "experts_per_token": 2, "swiglu_limit": -1})", Code::kInvalid,
                "swiglu_limit"},
        BadCase{"deepseek_v3", R"({"scoring_func": "softmax", "n_routed_experts": 8, "num_experts_per_tok": 2,
                                   "moe_intermediate_size": 8})",
                Code::kUnsupported, "scoring_func"},
        BadCase{"deepseek_v3", R"({"n_group": 3, "n_routed_experts": 8, "num_experts_per_tok": 2,
                                   "moe_intermediate_size": 8})",
                Code::kInvalid, "topk_group"},
        BadCase{"deepseek_v3", R"({"n_group": 8, "topk_group": 1, "n_routed_experts": 8, "num_experts_per_tok": 2,
                                   "moe_intermediate_size": 8})",
                Code::kInvalid, "topk_group"},
        BadCase{"deepseek_v3", R"({"moe_layer_freq": 2})", Code::kUnsupported, "moe_layer_freq"}));

}  // namespace
}  // namespace trivet::plan
