// SPDX-License-Identifier: Apache-2.0
#include "plan/source_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

std::function<bool(const std::string&)> With(std::vector<std::string> names) {
  return [names](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
}

TEST(SourceNames, DetectsPrefixAndExpertStorage) {
  const Geometry demo = DemoGeometry();
  const Result<SourceNames> fused = DetectNames(demo, With({"model.language_model.embed_tokens.weight",
                                                            "model.language_model.layers.0.mlp.experts.gate_up_proj"}));
  ASSERT_TRUE(fused.ok());
  EXPECT_EQ(fused->prefix, "model.language_model.");
  EXPECT_TRUE(fused->fused_experts);
  EXPECT_FALSE(fused->alternating_experts);
  const Result<SourceNames> single = DetectNames(demo, With({"model.embed_tokens.weight"}));
  ASSERT_TRUE(single.ok());
  EXPECT_EQ(single->prefix, "model.");
  EXPECT_FALSE(single->fused_experts);
  EXPECT_EQ(single->router, "gate");
  EXPECT_EQ(single->head, "lm_head.weight");
  const Result<SourceNames> none = DetectNames(demo, With({}));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kInvalid);
}

TEST(SourceNames, DetectsWhatOtherFamiliesCallThings) {
  Geometry geometry = DemoGeometry();
  geometry.moe.bias = true;
  const std::string at = "language_model.model.layers.0.";
  const Result<SourceNames> names =
      DetectNames(geometry, With({"language_model.model.embed_tokens.weight", "language_model.lm_head.weight",
                                  at + "linear_attn.in_proj_qkvz.weight", at + "mlp.router.weight",
                                  at + "mlp.experts.gate_up_proj", at + "mlp.shared_experts.gate_proj.weight"}));
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(names->prefix, "language_model.model.");
  EXPECT_EQ(names->head, "language_model.lm_head.weight");
  EXPECT_EQ(names->router, "router");
  EXPECT_EQ(names->shared_expert, "shared_experts");
  EXPECT_TRUE(names->grouped_delta_net);
  EXPECT_FALSE(names->grouped_gates);
  EXPECT_FALSE(names->split_latent_up);
  EXPECT_TRUE(names->input_major_experts && names->alternating_experts);
}

TEST(SourceNames, LargeProductsAreToldFromWhatDecides) {
  Geometry geometry = DemoGeometry();
  const std::vector<SourceTensor> needed = RequiredTensors(geometry, {"model."});
  const auto kind = [&](const std::string& name) {
    const auto found = std::find_if(needed.begin(), needed.end(),
                                    [&](const SourceTensor& tensor) { return tensor.name == "model." + name; });
    CHECK_MSG(found != needed.end(), name);
    return found->kind;
  };
  for (const char* name :
       {"linear_attn.in_proj_qkv.weight", "linear_attn.out_proj.weight", "mlp.shared_expert.down_proj.weight"}) {
    EXPECT_EQ(kind(std::string("layers.0.") + name), TensorKind::kLinear) << name;
  }
  EXPECT_EQ(kind("layers.0.mlp.experts.gate_up_proj"), TensorKind::kExperts);
  for (const char* name : {"linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight", "linear_attn.conv1d.weight",
                           "mlp.gate.weight", "mlp.shared_expert_gate.weight", "input_layernorm.weight"}) {
    EXPECT_EQ(kind(std::string("layers.0.") + name), TensorKind::kOther) << name;
  }
  EXPECT_EQ(kind("embed_tokens.weight"), TensorKind::kOther);
}

// By which bytes are priced.
TEST(SourceNames, TensorsBelongToPartsOfAStep) {
  Geometry geometry = DemoGeometry();
  geometry.tied_head = false;
  const std::vector<SourceTensor> needed = RequiredTensors(geometry, {"model."});
  for (const auto& [name, part] :
       std::map<std::string, StepPart>{{"model.embed_tokens.weight", StepPart::kEmbed},
                                       {"model.layers.0.linear_attn.in_proj_a.weight", StepPart::kDeltaNet},
                                       {"model.layers.3.self_attn.o_proj.weight", StepPart::kAttention},
                                       {"model.layers.3.mlp.experts.down_proj", StepPart::kExperts},
                                       {"model.layers.3.mlp.shared_expert.up_proj.weight", StepPart::kExperts},
                                       {"model.layers.3.mlp.gate.weight", StepPart::kEnds},
                                       {"model.layers.3.mlp.shared_expert_gate.weight", StepPart::kEnds},
                                       {"model.layers.4.input_layernorm.weight", StepPart::kEnds},
                                       {"model.norm.weight", StepPart::kEnds},
                                       {"lm_head.weight", StepPart::kHead}}) {
    const auto found = std::find_if(needed.begin(), needed.end(), [&](const auto& one) { return one.name == name; });
    ASSERT_NE(found, needed.end()) << name;
    EXPECT_EQ(found->part, part) << name;
  }
}

TEST(SourceNames, EveryNeededTensorIsNamedOnce) {
  for (const bool fused : {false, true}) {
    Geometry geometry = DemoGeometry();
    geometry.attention.qkv_bias = geometry.attention.output_bias = geometry.attention.sinks = true;
    geometry.moe.bias = geometry.moe.router.bias = geometry.moe.router.correction = geometry.branch_norms = true;
    SourceNames names{"model.", fused};
    names.grouped_delta_net = names.grouped_gates = fused;
    std::vector<std::string> all;
    for (const SourceTensor& tensor : RequiredTensors(geometry, names)) all.push_back(tensor.name);
    std::vector<std::string> once = all;
    std::sort(once.begin(), once.end());
    once.erase(std::unique(once.begin(), once.end()), once.end());
    EXPECT_EQ(once.size(), all.size());
    EXPECT_THAT(once, ::testing::Contains("model.layers.3.self_attn.sinks"));
    EXPECT_THAT(once, ::testing::Contains("model.layers.0.post_feedforward_layernorm.weight"));
  }
}

TEST(SourceNames, SkipsWhatIsKnownAndNothingElse) {
  EXPECT_EQ(SkippedReason("model.visual.blocks.0.attn.qkv.weight", 8), "vision tower");
  EXPECT_EQ(SkippedReason("multi_modal_projector.mm_input_projection_weight", 8), "vision tower");
  EXPECT_EQ(SkippedReason("mtp.layers.0.mlp.gate.weight", 8), "multi-token-prediction head");
  EXPECT_EQ(SkippedReason("model.layers.8.eh_proj.weight", 8), "multi-token-prediction head");
  EXPECT_EQ(SkippedReason("model.layers.7.eh_proj.weight", 8), "");
  EXPECT_EQ(SkippedReason("model.layers.x.eh_proj.weight", 8), "");
  EXPECT_EQ(SkippedReason("model.layers.3.self_attn.rotary_emb.inv_freq", 8), "rotary buffer");
  EXPECT_EQ(SkippedReason("lm_head.weight", 8), "copy of the tied embedding");
  EXPECT_EQ(SkippedReason("model.layers.3.self_attn.q_proj.bias", 8), "");
  EXPECT_EQ(SkippedReason("", 8), "");
}

}  // namespace
}  // namespace trivet::plan
