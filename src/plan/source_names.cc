// SPDX-License-Identifier: Apache-2.0
#include "plan/source_names.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace trivet::plan {
namespace {

// Collects what one layer after the other needs.
class Requirements {
 public:
  Requirements(const Geometry& geometry, const SourceNames& names) : geometry_(geometry), names_(names) {}

  std::vector<SourceTensor> All() {
    part_ = StepPart::kEmbed;
    Need("embed_tokens.weight", {geometry_.vocab, geometry_.hidden});
    for (size_t i = 0; i < geometry_.layers.size(); ++i) Layer(i);
    at_.clear();
    part_ = StepPart::kEnds;
    Need("norm.weight", {geometry_.hidden});
    if (!geometry_.tied_head) {
      out_.push_back({names_.head, {geometry_.vocab, geometry_.hidden}, TensorKind::kOther, StepPart::kHead});
    }
    return std::move(out_);
  }

 private:
  void Need(const std::string& name, std::vector<int64_t> shape, TensorKind kind = TensorKind::kOther) {
    out_.push_back({names_.prefix + at_ + name, std::move(shape), kind, part_});
  }
  // A projection, and its bias where there is one.
  void Linear(const std::string& name, int64_t rows, int64_t cols, bool bias) {
    Need(name + ".weight", {rows, cols}, TensorKind::kLinear);
    if (bias) Need(name + ".bias", {rows});
  }
  // A projection of few rows.
  void Gate(const std::string& name, int64_t rows) { Need(name + ".weight", {rows, geometry_.hidden}); }

  void Layer(size_t index) {
    at_ = fmt::format("layers.{}.", index);
    const LayerGeometry& layer = geometry_.layers[index];
    part_ = StepPart::kEnds;
    Need("input_layernorm.weight", {geometry_.hidden});
    part_ = layer.mixer == Mixer::kDeltaNet ? StepPart::kDeltaNet : StepPart::kAttention;
    switch (layer.mixer) {
      case Mixer::kAttention:
        Attention();
        break;
      case Mixer::kLatentAttention:
        LatentAttention();
        break;
      case Mixer::kDeltaNet:
        DeltaNet();
        break;
    }
    part_ = StepPart::kEnds;
    Need("post_attention_layernorm.weight", {geometry_.hidden});
    if (geometry_.branch_norms) {
      Need("pre_feedforward_layernorm.weight", {geometry_.hidden});
      Need("post_feedforward_layernorm.weight", {geometry_.hidden});
    }
    if (layer.channel_mixer == ChannelMixer::kMoe) return Moe();
    part_ = StepPart::kMlp;
    GatedMlp("mlp.", geometry_.mlp_width, geometry_.mlp.bias);
  }

  void Attention() {
    const AttentionGeometry& attention = geometry_.attention;
    const int64_t hidden = geometry_.hidden, dim = attention.head_dim;
    const int64_t queries = attention.q_heads * dim, keys = attention.kv_heads * dim;
    Linear("self_attn.q_proj", queries * (attention.output_gate ? 2 : 1), hidden, attention.qkv_bias);
    Linear("self_attn.k_proj", keys, hidden, attention.qkv_bias);
    Linear("self_attn.v_proj", keys, hidden, attention.qkv_bias);
    Linear("self_attn.o_proj", hidden, queries, attention.output_bias);
    if (attention.qk_norm) {
      Need("self_attn.q_norm.weight", {dim});
      Need("self_attn.k_norm.weight", {dim});
    }
    if (attention.sinks) Need("self_attn.sinks", {attention.q_heads});
  }

  void LatentAttention() {
    const AttentionGeometry& attention = geometry_.attention;
    const LatentGeometry& latent = geometry_.latent;
    const int64_t hidden = geometry_.hidden, queries = attention.q_heads * attention.head_dim;
    if (latent.query_rank > 0) {
      Linear("self_attn.q_a_proj", latent.query_rank, hidden, attention.output_bias);
      Need("self_attn.q_a_layernorm.weight", {latent.query_rank});
      Linear("self_attn.q_b_proj", queries, latent.query_rank, false);
    } else {
      Linear("self_attn.q_proj", queries, hidden, false);
    }
    Linear("self_attn.kv_a_proj_with_mqa", latent.rank + latent.rope_dim, hidden, attention.output_bias);
    Need("self_attn.kv_a_layernorm.weight", {latent.rank});
    if (names_.split_latent_up) {
      Need("self_attn.k_b_proj.weight", {attention.q_heads, latent.rank, latent.nope_dim});
      Need("self_attn.v_b_proj.weight", {attention.q_heads, latent.value_dim, latent.rank});
    } else {
      Linear("self_attn.kv_b_proj", attention.q_heads * (latent.nope_dim + latent.value_dim), latent.rank, false);
    }
    Linear("self_attn.o_proj", hidden, attention.q_heads * latent.value_dim, attention.output_bias);
  }

  void DeltaNet() {
    const DeltaNetGeometry& net = geometry_.delta_net;
    const int64_t hidden = geometry_.hidden, values = net.v_heads * net.v_dim;
    const int64_t mixed = 2 * net.k_heads * net.k_dim + values;
    if (names_.grouped_delta_net) {
      Linear("linear_attn.in_proj_qkvz", mixed + values, hidden, false);
    } else {
      Linear("linear_attn.in_proj_qkv", mixed, hidden, false);
      Linear("linear_attn.in_proj_z", values, hidden, false);
    }
    if (names_.grouped_gates) {
      Gate("linear_attn.in_proj_ba", 2 * net.v_heads);
    } else {
      Gate("linear_attn.in_proj_b", net.v_heads);
      Gate("linear_attn.in_proj_a", net.v_heads);
    }
    Need("linear_attn.conv1d.weight", {mixed, 1, net.conv_width});
    Need("linear_attn.A_log", {net.v_heads});
    Need("linear_attn.dt_bias", {net.v_heads});
    Need("linear_attn.norm.weight", {net.v_dim});
    Linear("linear_attn.out_proj", hidden, values, false);
  }

  void GatedMlp(const std::string& name, int64_t width, bool bias) {
    Linear(name + "gate_proj", width, geometry_.hidden, bias);
    Linear(name + "up_proj", width, geometry_.hidden, bias);
    Linear(name + "down_proj", geometry_.hidden, width, bias);
  }

  void Moe() {
    const MoeGeometry& moe = geometry_.moe;
    const std::string router = "mlp." + names_.router;
    Gate(router, moe.experts);
    if (moe.router.bias) Need(router + ".bias", {moe.experts});
    if (moe.router.correction) Need(router + ".e_score_correction_bias", {moe.experts});
    if (moe.shared_width > 0 && moe.shared_gate) Gate("mlp.shared_expert_gate", 1);
    part_ = StepPart::kExperts;
    if (names_.fused_experts) {
      FusedExperts();
    } else {
      for (int64_t e = 0; e < moe.experts; ++e) GatedMlp(fmt::format("mlp.experts.{}.", e), moe.width, moe.bias);
    }
    if (moe.shared_width == 0) return;
    GatedMlp("mlp." + names_.shared_expert + ".", moe.shared_width, false);
  }

  void FusedExperts() {
    const MoeGeometry& moe = geometry_.moe;
    const int64_t hidden = geometry_.hidden;
    if (names_.input_major_experts) {
      Need("mlp.experts.gate_up_proj", {moe.experts, hidden, 2 * moe.width}, TensorKind::kExperts);
      Need("mlp.experts.down_proj", {moe.experts, moe.width, hidden}, TensorKind::kExperts);
    } else {
      Need("mlp.experts.gate_up_proj", {moe.experts, 2 * moe.width, hidden}, TensorKind::kExperts);
      Need("mlp.experts.down_proj", {moe.experts, hidden, moe.width}, TensorKind::kExperts);
    }
    if (!moe.bias) return;
    Need("mlp.experts.gate_up_proj_bias", {moe.experts, 2 * moe.width});
    Need("mlp.experts.down_proj_bias", {moe.experts, hidden});
  }

  const Geometry& geometry_;
  const SourceNames& names_;
  std::string at_;  // "layers.3."
  StepPart part_ = StepPart::kEnds;
  std::vector<SourceTensor> out_;
};

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// The number behind the last "layers." of a name; -1 without one.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kWord = "layers.";
  const size_t at = name.find(kWord);
  if (at == std::string_view::npos) return -1;
  int64_t layer = -1;
  std::from_chars(name.data() + at + kWord.size(), name.data() + name.size(), layer);
  return layer;
}

}  // namespace

Result<SourceNames> DetectNames(const Geometry& geometry, const std::function<bool(const std::string&)>& has) {
  SourceNames names;
  bool found = false, fused = false, blocks = false;
  for (const char* prefix : {"", "model.", "language_model.model.", "model.language_model."}) {
    if (!has(std::string(prefix) + "embed_tokens.weight")) continue;
    names.prefix = prefix;
    found = true;
  }
  if (!found) {
    return MakeError(
        Code::kInvalid,
        "checkpoint: expected model.embed_tokens.weight or model.language_model.embed_tokens.weight, found "
        "neither; check that the directory holds all of the model's files");
  }
  if (!has(names.head) && has("language_model.lm_head.weight")) names.head = "language_model.lm_head.weight";
  // The first layer of a kind speaks for the others.
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    const std::string layer = fmt::format("{}layers.{}.", names.prefix, i);
    names.grouped_delta_net |= has(layer + "linear_attn.in_proj_qkvz.weight");
    names.grouped_gates |= has(layer + "linear_attn.in_proj_ba.weight");
    names.split_latent_up |= has(layer + "self_attn.k_b_proj.weight");
    if (geometry.layers[i].channel_mixer != ChannelMixer::kMoe) continue;
    fused |= has(layer + "mlp.experts.gate_up_proj");
    blocks |= has(layer + "mlp.experts.gate_up_proj_blocks");
    if (has(layer + "mlp.router.weight")) names.router = "router";
    if (has(layer + "mlp.shared_experts.gate_proj.weight")) names.shared_expert = "shared_experts";
  }
  names.fused_experts = fused || blocks;
  // Biased experts are stored with gate and up alternating, and input-major unless they come in blocks.
  names.alternating_experts = names.fused_experts && geometry.moe.bias;
  names.input_major_experts = names.alternating_experts && !blocks;
  return names;
}

std::vector<SourceTensor> RequiredTensors(const Geometry& geometry, const SourceNames& names) {
  return Requirements(geometry, names).All();
}

std::string SkippedReason(std::string_view tensor_name, int64_t layers) {
  struct Known {
    std::string_view prefix;
    std::string_view reason;
  };
  constexpr std::array<Known, 9> kKnown = {{{"model.visual.", kVisionTower},
                                            {"visual.", kVisionTower},
                                            {"model.vision_tower.", kVisionTower},
                                            {"vision_tower.", kVisionTower},
                                            {"model.multi_modal_projector.", kVisionTower},
                                            {"multi_modal_projector.", kVisionTower},
                                            {"mtp.", "multi-token-prediction head"},
                                            {"lm_head.weight", "copy of the tied embedding"},
                                            {"language_model.lm_head.weight", "copy of the tied embedding"}}};
  for (const Known& known : kKnown) {
    if (tensor_name.substr(0, known.prefix.size()) == known.prefix) return std::string(known.reason);
  }
  if (EndsWith(tensor_name, "inv_freq")) return "rotary buffer";
  return LayerOf(tensor_name) >= layers ? "multi-token-prediction head" : "";
}

}  // namespace trivet::plan
