// SPDX-License-Identifier: Apache-2.0
#include "plan/tensor_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

using testing::ElementsAre;

// Every tensor that is needed has a use, whatever the family's parts.
TEST(TensorUse, EveryRequiredTensorHasOne) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 30; ++i) {
    const Geometry geometry = RandomGeometry(&random);
    SourceNames names;
    names.prefix = "model.";
    names.fused_experts = i % 2 == 0;
    const std::map<std::string, TensorUse> uses = TensorUses(geometry, names);
    for (const SourceTensor& needed : RequiredTensors(geometry, names)) {
      const auto use = uses.find(needed.name);
      ASSERT_NE(use, uses.end()) << needed.name;
      EXPECT_FALSE(use->second.parts.empty());
      EXPECT_EQ(use->second.axis.empty(), use->second.even_ranks.empty()) << needed.name;
    }
  }
}

TEST(TensorUse, AxesUnitsAndEvenRanks) {
  Geometry geometry;
  geometry.hidden = 64;
  geometry.vocab = 96;
  geometry.tied_head = true;
  geometry.attention = {.q_heads = 12, .kv_heads = 4, .head_dim = 16, .output_bias = true};
  geometry.moe.experts = 6;
  geometry.moe.top_k = 2;
  geometry.moe.width = 160;
  geometry.layers = {{Mixer::kAttention, ChannelMixer::kMoe}};
  SourceNames names;
  names.prefix = "model.";
  const std::map<std::string, TensorUse> uses = TensorUses(geometry, names);
  const auto use = [&](const std::string& name) { return uses.at("model.layers.0." + name); };
  EXPECT_THAT(use("self_attn.k_proj.weight").even_ranks, ElementsAre(1, 2, 4));
  EXPECT_EQ(use("self_attn.k_proj.weight").units, "4 x KV group");
  EXPECT_THAT(use("self_attn.k_proj.weight").parts, ElementsAre("layers.0.attn.qkv"));
  EXPECT_THAT(use("self_attn.o_proj.weight").even_ranks, ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_EQ(use("self_attn.o_proj.weight").units, "4 x KV group or 12 x query head");
  EXPECT_EQ(use("self_attn.o_proj.bias").axis, "");
  EXPECT_EQ(use("input_layernorm.weight").axis, "");
  EXPECT_EQ(use("input_layernorm.weight").role, Role::kVector);
  EXPECT_EQ(use("mlp.gate.weight").axis, "");
  EXPECT_THAT(use("mlp.experts.down_proj").parts, ElementsAre("layers.0.moe.expert.*.down"));
  EXPECT_THAT(use("mlp.experts.down_proj").even_ranks, ElementsAre(1, 2, 3, 5, 6));  // 6 experts, or 5 of 32 channels
  EXPECT_THAT(uses.at("model.embed_tokens.weight").even_ranks, ElementsAre(1, 3));
  EXPECT_EQ(uses.at("model.embed_tokens.weight").role, Role::kEmbedding);
}

TEST(TensorUse, RolesHaveNames) {
  EXPECT_STREQ(RoleName(Role::kMatrix), "matrix");
  EXPECT_STREQ(RoleName(Role::kEmbedding), "embedding");
  EXPECT_STREQ(RoleName(Role::kVector), "vector");
}

}  // namespace
}  // namespace trivet::plan
