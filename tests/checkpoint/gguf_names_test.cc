// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::checkpoint {
namespace {

using Shape = std::vector<int64_t>;

TensorInfo Info(const std::string& name, const Shape& shape, int64_t bytes = 0) {
  TensorInfo info;
  info.name = name;
  info.shape = shape;
  info.bytes = bytes;
  info.offset = 100;
  return info;
}

TensorInfo Only(const std::string& name, const Shape& shape, const GgufNaming& naming = {}) {
  const std::vector<TensorInfo> parts = GgufParts(Info(name, shape), naming);
  EXPECT_EQ(parts.size(), 1U) << name;
  return parts[0];
}

TEST(GgufNames, NamesOfEveryKind) {
  const std::pair<const char*, const char*> names[] = {
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"},
      {"blk.3.attn_q.bias", "model.layers.3.self_attn.q_proj.bias"},
      {"blk.3.attn_sinks.weight", "model.layers.3.self_attn.sinks"},
      {"blk.3.attn_kv_a_mqa.weight", "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"},
      {"blk.3.attn_k_b.weight", "model.layers.3.self_attn.k_b_proj.weight"},
      {"blk.3.post_attention_norm.weight", "model.layers.3.post_attention_layernorm.weight"},
      {"blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"},
      {"blk.3.ffn_gate_inp.bias", "model.layers.3.mlp.gate.bias"},
      {"blk.3.exp_probs_b.bias", "model.layers.3.mlp.gate.e_score_correction_bias"},
      {"blk.3.ffn_up_shexp.weight", "model.layers.3.mlp.shared_expert.up_proj.weight"},
      {"blk.3.ssm_a", "model.layers.3.linear_attn.A_log"},
      {"blk.3.ssm_dt.bias", "model.layers.3.linear_attn.dt_bias"},
      {"blk.3.ssm_ba.weight", "model.layers.3.linear_attn.in_proj_ba.weight"},
      {"blk.3.nextn.eh_proj.weight", "model.layers.3.nextn.eh_proj.weight"},
      {"blk.3", "blk.3"},
      {"mystery", "mystery"}};
  for (const auto& [from, to] : names) EXPECT_EQ(Only(from, {4}).name, to);
  EXPECT_TRUE(GgufParts(Info("rope_freqs.weight", {16}), {}).empty());
  GgufNaming branch;
  branch.branch_norms = true;
  EXPECT_EQ(Only("blk.0.ffn_norm.weight", {4}, branch).name, "model.layers.0.pre_feedforward_layernorm.weight");
}

TEST(GgufNames, ShapesThatFilesFlatten) {
  EXPECT_EQ(Only("blk.0.ssm_conv1d.weight", {8, 4}).shape, (Shape{8, 1, 4}));
  EXPECT_EQ(Only("blk.0.ffn_gate_inp_shexp.weight", {8}).shape, (Shape{1, 8}));
  EXPECT_EQ(Only("blk.0.ffn_gate_inp_shexp.weight", {1, 8}).shape, (Shape{1, 8}));
  EXPECT_TRUE(Only("blk.0.ssm_a", {8}).negated_exp);
  EXPECT_FALSE(Only("blk.0.ssm_dt.bias", {8}).negated_exp);
}

TEST(GgufNames, StacksComeApart) {
  const std::vector<TensorInfo> biases = GgufParts(Info("blk.1.ffn_up_exps.bias", {2, 6}, 48), {});
  ASSERT_EQ(biases.size(), 2U);
  EXPECT_EQ(biases[1].name, "model.layers.1.mlp.experts.1.up_proj.bias");
  EXPECT_EQ(biases[1].shape, Shape{6});
  EXPECT_EQ(biases[1].offset, 124);
  const std::vector<TensorInfo> fused = GgufParts(Info("blk.1.ffn_gate_up_exps.weight", {2, 6, 5}, 240), {});
  ASSERT_EQ(fused.size(), 4U);
  EXPECT_EQ(fused[1].name, "model.layers.1.mlp.experts.0.up_proj.weight");
  EXPECT_EQ(fused[2].name, "model.layers.1.mlp.experts.1.gate_proj.weight");
  EXPECT_EQ(fused[2].shape, (Shape{3, 5}));
  EXPECT_EQ(fused[2].offset, 220);
  EXPECT_EQ(fused[2].bytes, 60);
}

// Two key heads of two channels, three value heads of four channels for each.
TEST(GgufNames, TiledValueHeads) {
  GgufNaming tiled;
  tiled.tiled_values = true;
  tiled.key_heads = 2;
  tiled.value_heads = 6;
  tiled.key_dim = 2;
  tiled.value_dim = 4;
  const StoredOrder gates = Only("blk.0.ssm_alpha.weight", {6, 8}, tiled).row_order;
  const Shape stored = {0, 2, 4, 1, 3, 5};
  for (int64_t head = 0; head < 6; ++head) {
    const int64_t at = stored[static_cast<size_t>(head)];
    EXPECT_EQ(gates.Stored(head), at);
    EXPECT_EQ(Only("blk.0.ssm_dt.bias", {6}, tiled).row_order.Stored(head), at);
    EXPECT_EQ(Only("blk.0.attn_gate.weight", {24, 8}, tiled).row_order.Stored(4 * head + 3), 4 * at + 3);
    EXPECT_EQ(Only("blk.0.ssm_out.weight", {8, 24}, tiled).col_order.Stored(4 * head + 3), 4 * at + 3);
    EXPECT_EQ(Only("blk.0.attn_qkv.weight", {32, 8}, tiled).row_order.Stored(8 + 4 * head + 1), 8 + 4 * at + 1);
  }
  EXPECT_EQ(Only("blk.0.attn_qkv.weight", {32, 8}, tiled).row_order.Stored(7), 7);
}

}  // namespace
}  // namespace trivet::checkpoint
