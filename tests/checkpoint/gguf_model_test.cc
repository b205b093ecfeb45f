// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_model.h"

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
  EXPECT_EQ(model.checkpoint->Find("model.layers.0.self_attn.q_proj.weight")->interleaved_rows, 0);
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
  EXPECT_EQ(model.checkpoint->Find("model.layers.0.self_attn.q_proj.weight")->interleaved_rows, 32);
  EXPECT_EQ(model.checkpoint->Find("model.layers.0.self_attn.v_proj.weight")->interleaved_rows, 0);
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

TEST(GgufModel, WhatIsNotSupportedIsNamed) {
  const auto message = [](std::vector<std::string> pairs, const std::string& extra, const std::string& tensor) {
    if (!extra.empty()) pairs.push_back(extra);
    const Model model(pairs, {"token_embd.weight", tensor});
    return model.files->ok() ? std::string() : model.files->error().message;
  };
  EXPECT_THAT(message({PairText("general.architecture", "mamba")}, "", "a"), HasSubstr("found mamba"));
  EXPECT_THAT(message({PairU32("x", 1)}, "", "a"), HasSubstr("found none"));
  EXPECT_THAT(message(Pairs("llama"), "", "rope_freqs.weight"), HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(message(Pairs("llama"), PairText("llama.rope.scaling.type", "yarn"), "a"), HasSubstr("found yarn"));
  EXPECT_THAT(message(Pairs("llama"), PairU32("llama.attention.value_length", 64), "a"), HasSubstr("as of keys"));
  EXPECT_THAT(message(Pairs("llama"), Pair("llama.attention.head_count_kv", 9, Number(4, 4) + Number(0, 8)), "a"),
              HasSubstr("one number for all layers"));
}

}  // namespace
}  // namespace trivet::checkpoint
