// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/gguf_bytes.h"
#include "tests/io/temp_dir.h"

namespace trivet::checkpoint {
namespace {

using testing::HasSubstr;

std::vector<std::string> Pairs(const std::string& architecture) {
  const std::string at = architecture + ".";
  return {PairText("general.architecture", architecture),
          PairU32(at + "embedding_length", 64),
          PairU32(at + "block_count", 1),
          PairU32(at + "attention.head_count", 2),
          PairU32(at + "attention.key_length", 32),
          PairU32("tokenizer.ggml.eos_token_id", 7)};
}

// F32 tensors of shape [rows, 4], one behind the other.
struct Model {
  Model(const std::vector<std::string>& pairs, const std::vector<std::string>& names, uint64_t rows = 4) {
    std::vector<std::string> entries;
    for (const std::string& name : names) {
      const bool stack = name.find("_exps") != std::string::npos;
      entries.push_back(
          Entry(name, stack ? std::vector<uint64_t>{4, 2, 2} : std::vector<uint64_t>{4, rows}, 0, entries.size() * 64));
    }
    dir.Write("m.gguf", GgufBytes(pairs, entries, std::string(entries.size() * 64, '\0')));
    auto opened = Checkpoint::Open(dir.Path("m.gguf"), &notices);
    CHECK(opened.ok());
    checkpoint.emplace(std::move(opened).value());
    files.emplace(BindGguf("FILE", &*checkpoint));
  }
  TempDir dir;
  std::vector<std::string> notices;
  std::optional<Checkpoint> checkpoint;
  std::optional<Result<ModelFiles>> files;
};

TEST(GgufModel, Gemma3BecomesAConfigAndNames) {
  const Model model(Pairs("gemma3"), {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight",
                                      "blk.0.ffn_norm.weight", "blk.0.post_attention_norm.weight",
                                      "blk.0.post_ffw_norm.weight", "blk.0.attn_q.weight", "blk.0.ffn_down.weight"});
  ASSERT_TRUE(model.files->ok()) << model.files->error().message;
  const ModelFiles& files = model.files->value();
  EXPECT_EQ(*Find(files.text_config, "model_type"), "gemma3_text");
  EXPECT_EQ(*Find(files.text_config, "hidden_size"), 64);
  EXPECT_EQ(*Find(files.text_config, "vocab_size"), 4);
  EXPECT_EQ(*Find(files.text_config, "query_pre_attn_scalar"), 32);
  EXPECT_EQ(*Find(files.text_config, "rope_local_base_freq"), 10000.0);
  EXPECT_EQ(*Find(files.text_config, "tie_word_embeddings"), true);
  EXPECT_EQ(files.stop_tokens, std::vector<int64_t>{7});
  EXPECT_TRUE(files.whole_norms);
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.0.pre_feedforward_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.post_feedforward_layernorm.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.mlp.down_proj.weight"}) {
    ASSERT_NE(model.checkpoint->Find(name), nullptr) << name;
  }
  EXPECT_EQ(model.checkpoint->Find("model.layers.0.self_attn.q_proj.weight")->row_order.outer, 1);
  EXPECT_EQ(model.checkpoint->Find("model.norm.weight")->stored_name, "output_norm.weight");
}

TEST(GgufModel, MetadataHoldsAGenerationConfig) {
  std::vector<std::string> pairs = Pairs("gemma3");
  for (std::string& pair : PairsOf({{"tokenizer.ggml.eot_token_id", 3},
                                    {"tokenizer.ggml.eom_token_id", 7},
                                    {"tokenizer.ggml.bos_token_id", 2},
                                    {"general.sampling.temp", 0.5},
                                    {"general.sampling.top_k", 40}})) {
    pairs.push_back(std::move(pair));
  }
  const Model model(pairs, {"token_embd.weight"});
  ASSERT_TRUE(model.files->ok()) << model.files->error().message;
  const ModelFiles& files = model.files->value();
  EXPECT_EQ(files.stop_tokens, (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(files.generation_config,
            Json({{"eos_token_id", {7, 3, 7}}, {"bos_token_id", 2}, {"temperature", 0.5}, {"top_k", 40}}));
}

TEST(GgufModel, LlamaRowsAreInterleaved) {
  const Model model(Pairs("llama"), {"token_embd.weight", "output.weight", "blk.0.attn_q.weight", "blk.0.attn_v.weight",
                                     "blk.0.ffn_norm.weight"});
  ASSERT_TRUE(model.files->ok()) << model.files->error().message;
  EXPECT_EQ(*Find(model.files->value().text_config, "tie_word_embeddings"), false);
  ASSERT_NE(model.checkpoint->Find("lm_head.weight"), nullptr);
  ASSERT_NE(model.checkpoint->Find("model.layers.0.post_attention_layernorm.weight"), nullptr);
  const StoredOrder& order = model.checkpoint->Find("model.layers.0.self_attn.q_proj.weight")->row_order;
  EXPECT_EQ(order.Stored(1), 2);
  EXPECT_EQ(order.Stored(16), 1);
  EXPECT_EQ(model.checkpoint->Find("model.layers.0.self_attn.v_proj.weight")->row_order.outer, 1);
}

TEST(GgufModel, StacksOfExpertsComeApart) {
  const Model model(Pairs("qwen3moe"),
                    {"token_embd.weight", "blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate_inp.weight"});
  ASSERT_TRUE(model.files->ok()) << model.files->error().message;
  const TensorInfo* first = model.checkpoint->Find("model.layers.0.mlp.experts.0.gate_proj.weight");
  const TensorInfo* second = model.checkpoint->Find("model.layers.0.mlp.experts.1.gate_proj.weight");
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->shape, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(second->offset, first->offset + 32);
  EXPECT_NE(model.checkpoint->Find("model.layers.0.mlp.gate.weight"), nullptr);
}

// Pairs of an architecture, with others under its name in addition or instead.
std::vector<std::string> With(const std::string& architecture, const Json& more) {
  std::vector<std::string> pairs = Pairs(architecture);
  for (const auto& [key, value] : more.items()) {
    const std::string name = fmt::format("{}.{}", architecture, key);
    std::erase_if(pairs, [&](const std::string& pair) { return pair.rfind(LengthAndText(name), 0) == 0; });
    const auto [type, bytes] = ValueOf(value);
    pairs.push_back(Pair(name, type, bytes));
  }
  return pairs;
}

// The config that an architecture's metadata become.
Json ConfigOf(const std::string& architecture, const Json& more, const std::vector<std::string>& tensors = {}) {
  std::vector<std::string> names = {"token_embd.weight"};
  names.insert(names.end(), tensors.begin(), tensors.end());
  const Model model(With(architecture, more), names);
  return model.files->ok() ? model.files->value().text_config : Json(model.files->error().message);
}

void ExpectMembers(const Json& config, const Json& expected) {
  for (const auto& [key, value] : expected.items()) {
    ASSERT_TRUE(config.is_object() && config.contains(key)) << key << DumpJson(config);
    EXPECT_EQ(config[key], value) << key;
  }
}

TEST(GgufModel, WindowsAreWhereTheFileSays) {
  const Json sliding = "sliding_attention", full = "full_attention";
  const auto config = [](const char* architecture, const Json& pattern) {
    return ConfigOf(
        architecture,
        {{"block_count", 4}, {"attention.sliding_window", 8}, {"attention.sliding_window_pattern", pattern}});
  };
  for (const char* architecture : {"gemma3", "gpt-oss"}) {
    ExpectMembers(config(architecture, 3), {{"sliding_window_pattern", 3}});
    for (const Json& flags : {Json({true, false, false, true}), Json({1, 0, 0, 1})}) {
      ExpectMembers(config(architecture, flags), {{"layer_types", {sliding, full, full, sliding}}});
    }
  }
  EXPECT_FALSE(config("llama", 3).contains("sliding_window_pattern"));
  for (const Json& wrong : {Json(0), Json(-1), Json("often"), Json({true, false}), Json({1.5, 1.5, 1.5, 1.5})}) {
    EXPECT_THAT(DumpJson(config("gemma3", wrong)), HasSubstr("gemma3.attention.sliding_window_pattern"));
  }
}

TEST(GgufModel, Gemma3WithoutAWindowHasNoSlidingLayers) {
  ExpectMembers(ConfigOf("gemma3", Json::object()), {{"sliding_window_pattern", 1}});
  ExpectMembers(ConfigOf("gemma3", {{"attention.sliding_window", 0}}), {{"sliding_window_pattern", 1}});
  EXPECT_FALSE(ConfigOf("gemma3", {{"attention.sliding_window", 8}}).contains("sliding_window_pattern"));
}

TEST(GgufModel, KvHeadsThatAreNotStatedAreTheQueryHeads) {
  ExpectMembers(ConfigOf("qwen3moe", Json::object()), {{"num_key_value_heads", 2}});
}

TEST(GgufModel, Qwen35BecomesAHybrid) {
  const Json more = {{"nextn_predict_layers", 0},
                     {"rope.dimension_count", 8},
                     {"full_attention_interval", 4},
                     {"ssm.conv_kernel", 4},
                     {"ssm.state_size", 2},
                     {"ssm.group_count", 2},
                     {"ssm.time_step_rank", 4},
                     {"ssm.inner_size", 12},
                     {"expert_count", 2},
                     {"expert_used_count", 1},
                     {"expert_feed_forward_length", 7},
                     {"expert_shared_feed_forward_length", 5},
                     {"attention.recurrent_layers", {true}}};
  const Json expected = {{"num_hidden_layers", 1},
                         {"partial_rotary_factor", 0.25},
                         {"linear_conv_kernel_dim", 4},
                         {"linear_key_head_dim", 2},
                         {"linear_num_key_heads", 2},
                         {"linear_num_value_heads", 4},
                         {"linear_value_head_dim", 3},
                         {"shared_expert_intermediate_size", 5},
                         {"layer_types", {"linear_attention"}}};
  ExpectMembers(ConfigOf("qwen35", more), expected);
  ExpectMembers(ConfigOf("qwen35", more), {{"model_type", "qwen3_5_text"}});
  ExpectMembers(ConfigOf("qwen35moe", more), {{"model_type", "qwen3_5_moe_text"}, {"moe_intermediate_size", 7}});
  ExpectMembers(ConfigOf("qwen3next", more), {{"model_type", "qwen3_next"}, {"num_experts", 2}});
  // Only qwen3next keeps the order of value heads.
  for (const char* architecture : {"qwen3next", "qwen35", "qwen35moe"}) {
    const Model model(With(architecture, more), {"token_embd.weight", "blk.0.ssm_out.weight"});
    const TensorInfo* out = model.checkpoint->Find("model.layers.0.linear_attn.out_proj.weight");
    ASSERT_NE(out, nullptr);
    EXPECT_EQ(out->col_order.outer, std::string(architecture) == "qwen3next" ? 1 : 2) << architecture;
  }
}

TEST(GgufModel, BlocksThatPredictFurtherTokensAreNoLayers) {
  Json more = {{"nextn_predict_layers", 1}};
  const Model model(With("qwen3next", more), {"token_embd.weight", "blk.0.nextn.eh_proj.weight"});
  ASSERT_TRUE(model.files->ok());
  EXPECT_EQ(*Find(model.files->value().text_config, "num_hidden_layers"), 0);
  EXPECT_NE(model.checkpoint->Find("model.layers.0.nextn.eh_proj.weight"), nullptr);
}

TEST(GgufModel, GptOssStretchesWithoutRounding) {
  const Json config = ConfigOf("gpt-oss", {{"rope.scaling.type", "yarn"},
                                           {"rope.scaling.factor", 32.0},
                                           {"rope.scaling.original_context_length", 4096},
                                           {"attention.sliding_window", 128}});
  ExpectMembers(config, {{"model_type", "gpt_oss"}, {"sliding_window", 128}});
  ExpectMembers(config["rope_scaling"], {{"truncate", false}, {"factor", 32.0}});
}

TEST(GgufModel, Deepseek2HasWidthsOfHeadsAndDefaults) {
  Json more = {{"attention.kv_lora_rank", 512},   {"attention.value_length", 512},
               {"attention.key_length_mla", 192}, {"attention.value_length_mla", 128},
               {"rope.dimension_count", 64},      {"expert_count", 256},
               {"expert_used_count", 8},          {"leading_dense_block_count", 3},
               {"expert_weights_scale", 2.5},     {"expert_weights_norm", true},
               {"expert_shared_count", 1},        {"expert_gating_func", 2}};
  const Json expected = {{"model_type", "deepseek_v3"},
                         {"qk_nope_head_dim", 128},
                         {"qk_rope_head_dim", 64},
                         {"v_head_dim", 128},
                         {"q_lora_rank", 0},
                         {"n_routed_experts", 256},
                         {"n_group", 8},
                         {"topk_group", 4},
                         {"norm_topk_prob", true},
                         {"n_shared_experts", 1},
                         {"routed_scaling_factor", 2.5},
                         {"first_k_dense_replace", 3}};
  ExpectMembers(ConfigOf("deepseek2", more), expected);
  more["expert_count"] = 64;
  for (const char* key : {"leading_dense_block_count", "expert_weights_scale", "expert_weights_norm",
                          "expert_shared_count", "expert_gating_func"}) {
    more.erase(key);
  }
  ExpectMembers(ConfigOf("deepseek2", more, {"blk.0.exp_probs_b.bias"}), {{"n_group", 1},
                                                                          {"topk_group", 1},
                                                                          {"norm_topk_prob", false},
                                                                          {"n_shared_experts", 0},
                                                                          {"routed_scaling_factor", 1.0},
                                                                          {"first_k_dense_replace", 0}});
  EXPECT_THAT(DumpJson(ConfigOf("deepseek2", more)), HasSubstr("2, for sigmoid"));
  more["expert_gating_func"] = 1;
  EXPECT_THAT(DumpJson(ConfigOf("deepseek2", more, {"blk.0.exp_probs_b.bias"})), HasSubstr("2, for sigmoid"));
}

TEST(GgufModel, WhatIsNotSupportedIsNamed) {
  const auto message = [](std::vector<std::string> pairs, const std::string& extra, const std::string& tensor) {
    if (!extra.empty()) pairs.push_back(extra);
    const Model model(pairs, {"token_embd.weight", tensor});
    return model.files->ok() ? std::string() : model.files->error().message;
  };
  EXPECT_THAT(message({PairText("general.architecture", "mamba")}, "", "a"), HasSubstr("found mamba"));
  EXPECT_THAT(message({PairU32("x", 1)}, "", "a"), HasSubstr("found none"));
  EXPECT_THAT(message(Pairs("llama"), PairText("llama.rope.scaling.type", "ntk"), "a"), HasSubstr("found ntk"));
  EXPECT_THAT(message(Pairs("llama"), PairU32("llama.expert_count", 8), "a"), HasSubstr("expert_count"));
  EXPECT_THAT(message(Pairs("llama"), PairU32("llama.rope.dimension_count", 16), "a"), HasSubstr("32, the head's"));
  EXPECT_THAT(message(Pairs("qwen35"), PairU32("qwen35.nextn_predict_layers", 2), "a"), HasSubstr("0 to 1"));
  EXPECT_THAT(message(Pairs("qwen35"), PairU32("qwen35.attention.recurrent_layers", 1), "a"),
              HasSubstr("a list of all layers"));
  EXPECT_THAT(message(Pairs("qwen35"), Pair("qwen35.nextn_predict_layers", 10, Number(1ULL << 60, 8)), "a"),
              HasSubstr("0 to 1099511627776"));
  EXPECT_THAT(message(Pairs("llama"), PairU32("llama.attention.value_length", 64), "a"), HasSubstr("as of keys"));
  EXPECT_THAT(message(Pairs("llama"), Pair("llama.attention.head_count_kv", 9, Number(4, 4) + Number(0, 8)), "a"),
              HasSubstr("one number for all layers"));
}

}  // namespace
}  // namespace trivet::checkpoint
