// SPDX-License-Identifier: Apache-2.0
#include "plan/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/str.h"
#include "plan/leaf.h"

namespace trivet::plan {
namespace {

constexpr std::string_view kConfig = "config.json";

// Bounds that no real model comes near and that keep every product below in 64 bits.
constexpr int64_t kMaxExtent = int64_t{1} << 24;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 8192;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxExperts = int64_t{1} << 16;
constexpr int64_t kMaxExpertsOfAllLayers = int64_t{1} << 18;
constexpr int64_t kMaxTopK = 128;
constexpr int64_t kMaxConvWidth = 64;
constexpr double kMaxParameters = 281474976710656.0;  // 2^48

Error Invalid(std::string_view key, std::string_view expected, std::string_view found) {
  return MakeError(Code::kInvalid,
                   fmt::format("{}: \"{}\": expected {}, found {}; correct the file", kConfig, key, expected, found));
}

Error Unsupported(std::string_view key, std::string_view expected, std::string_view found) {
  return MakeError(Code::kUnsupported, fmt::format("{}: \"{}\": expected {}, found {}; use a model without it", kConfig,
                                                   key, expected, found));
}

bool Present(const Json& object, std::string_view key) {
  const Json* value = Find(object, key);
  return value != nullptr && !value->is_null();
}

Result<int64_t> InRange(std::string_view key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    return Invalid(key, fmt::format("{} to {}", low, high), fmt::format("{}", value));
  }
  return value;
}

// An extent that must be present: 1 to `high`.
Result<int64_t> Extent(const Json& text, std::string_view key, int64_t high = kMaxExtent) {
  TRY_ASSIGN(const int64_t value, NeedInt(text, key, kConfig));
  return InRange(key, value, 1, high);
}

Result<double> PositiveDouble(const Json& object, std::string_view key, double fallback) {
  TRY_ASSIGN(const double value, GetDouble(object, key, fallback, kConfig));
  if (!std::isfinite(value) || value <= 0) return Invalid(key, "a positive number", fmt::format("{}", value));
  return value;
}

// Options that would change the arithmetic and are not supported, whatever the family.
Status CheckSupported(const FamilyConfig& config) {
  TRY_ASSIGN(const std::string act, GetString(config.text, "hidden_act", "silu", kConfig));
  if (act != "silu") return Unsupported("hidden_act", "silu", Quote(act));
  TRY_ASSIGN(const std::string rope, GetString(config.rope, "rope_type", "default", kConfig));
  if (rope != "default") return Unsupported("rope_type", "default", Quote(rope));
  TRY_ASSIGN(const bool bias, GetBool(config.text, "attention_bias", false, kConfig));
  if (bias) return Unsupported("attention_bias", "false", "true");
  TRY_ASSIGN(const std::string gate, GetString(config.text, "output_gate_type", "swish", kConfig));
  if (gate != "swish" && gate != "silu") return Unsupported("output_gate_type", "swish or silu", Quote(gate));
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    if (!Present(config.text, key)) continue;
    const Json* method = Find(*Find(config.text, key), "quant_method");
    const bool named = method != nullptr && method->is_string();
    return Unsupported(
        key, "a checkpoint that is not quantised",
        named ? fmt::format("quant_method {}", Quote(method->get<std::string>())) : "one without a name");
  }
  return Status();
}

// Leaves must not straddle heads: a wide head has to halve evenly.
Status CheckHeadLeaf(std::string_view key, int64_t head_dim) {
  if (head_dim % HeadLeaf(head_dim) == 0) return Status();
  return Unsupported(key, fmt::format("at most {}, or halving evenly to that", kColumnLeaf),
                     fmt::format("{}", head_dim));
}

Result<AttentionGeometry> ReadAttention(const FamilyConfig& config, int64_t hidden) {
  const Json& text = config.text;
  AttentionGeometry attention;
  TRY_ASSIGN(attention.q_heads, Extent(text, "num_attention_heads", kMaxHeads));
  TRY_ASSIGN(const int64_t kv, GetInt(text, "num_key_value_heads", attention.q_heads, kConfig));
  TRY_ASSIGN(attention.kv_heads, InRange("num_key_value_heads", kv, 1, kMaxHeads));
  if (attention.q_heads % attention.kv_heads != 0) {
    return Invalid("num_attention_heads", fmt::format("a multiple of num_key_value_heads {}", attention.kv_heads),
                   fmt::format("{}", attention.q_heads));
  }
  if (!Present(text, "head_dim") && hidden % attention.q_heads != 0) {
    return Invalid("head_dim", "a value, as hidden_size is not a multiple of num_attention_heads", "none");
  }
  TRY_ASSIGN(const int64_t dim, GetInt(text, "head_dim", hidden / attention.q_heads, kConfig));
  TRY_ASSIGN(attention.head_dim, InRange("head_dim", dim, 1, kMaxHeadDim));
  TRY(CheckHeadLeaf("head_dim", dim));
  if (!Present(config.rope, "rope_theta")) return Invalid("rope_theta", "a positive number", "none");
  TRY_ASSIGN(attention.rope_theta, PositiveDouble(config.rope, "rope_theta", 0));
  return attention;
}

// Rotary channels of a head: head_dim times partial_rotary_factor, cut to an integer.
Result<int64_t> ReadRotaryDim(const FamilyConfig& config, int64_t head_dim, double default_factor) {
  const Json& holder = Present(config.rope, "partial_rotary_factor") ? config.rope : config.text;
  TRY_ASSIGN(const double factor, PositiveDouble(holder, "partial_rotary_factor", default_factor));
  if (factor > 1) return Invalid("partial_rotary_factor", "at most 1", fmt::format("{}", factor));
  const int64_t rotary = static_cast<int64_t>(static_cast<double>(head_dim) * factor);
  if (rotary < 2 || rotary % 2 != 0) {
    return Invalid("partial_rotary_factor", fmt::format("an even number of rotary channels of {}", head_dim),
                   fmt::format("{}", rotary));
  }
  return rotary;
}

Result<DeltaNetGeometry> ReadDeltaNet(const Json& text) {
  DeltaNetGeometry net;
  TRY_ASSIGN(net.k_heads, Extent(text, "linear_num_key_heads", kMaxHeads));
  TRY_ASSIGN(net.v_heads, Extent(text, "linear_num_value_heads", kMaxHeads));
  TRY_ASSIGN(net.k_dim, Extent(text, "linear_key_head_dim", kMaxHeadDim));
  TRY_ASSIGN(net.v_dim, Extent(text, "linear_value_head_dim", kMaxHeadDim));
  TRY_ASSIGN(net.conv_width, Extent(text, "linear_conv_kernel_dim", kMaxConvWidth));
  if (net.v_heads % net.k_heads != 0) {
    return Invalid("linear_num_value_heads", fmt::format("a multiple of linear_num_key_heads {}", net.k_heads),
                   fmt::format("{}", net.v_heads));
  }
  TRY(CheckHeadLeaf("linear_value_head_dim", net.v_dim));
  return net;
}

Result<MoeGeometry> ReadMoe(const Json& text, size_t layers) {
  MoeGeometry moe;
  TRY_ASSIGN(moe.experts, Extent(text, "num_experts", kMaxExperts));
  if (moe.experts * static_cast<int64_t>(layers) > kMaxExpertsOfAllLayers) {
    return Invalid("num_experts", fmt::format("at most {} experts in all layers", kMaxExpertsOfAllLayers),
                   fmt::format("{} in each of {} layers", moe.experts, layers));
  }
  TRY_ASSIGN(moe.top_k, Extent(text, "num_experts_per_tok", std::min(moe.experts, kMaxTopK)));
  TRY_ASSIGN(moe.width, Extent(text, "moe_intermediate_size"));
  TRY_ASSIGN(const int64_t shared, GetInt(text, "shared_expert_intermediate_size", 0, kConfig));
  TRY_ASSIGN(moe.shared_width, InRange("shared_expert_intermediate_size", shared, 0, kMaxExtent));
  return moe;
}

// `layer_types`, or where it is absent full attention in the last layer of every `full_attention_interval`.
Result<std::vector<LayerGeometry>> ReadHybridLayers(const Json& text, ChannelMixer channel_mixer) {
  TRY_ASSIGN(const int64_t count, Extent(text, "num_hidden_layers", kMaxLayers));
  TRY_ASSIGN(const int64_t given, GetInt(text, "full_attention_interval", 4, kConfig));
  TRY_ASSIGN(const int64_t interval, InRange("full_attention_interval", given, 1, kMaxLayers));
  std::vector<LayerGeometry> layers(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const Mixer mixer = (i + 1) % interval == 0 ? Mixer::kAttention : Mixer::kDeltaNet;
    layers[static_cast<size_t>(i)] = {mixer, channel_mixer};
  }
  if (!Present(text, "layer_types")) return layers;
  const Json& types = *Find(text, "layer_types");
  if (!types.is_array() || types.size() != layers.size()) {
    return Invalid("layer_types", fmt::format("a list of num_hidden_layers {} words", count),
                   types.is_array() ? fmt::format("{}", types.size()) : "no list");
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!types[i].is_string()) return Invalid("layer_types", "words", Quote(DumpJson(types[i])));
    const std::string word = types[i].get<std::string>();
    if (word != "full_attention" && word != "linear_attention") {
      return Unsupported("layer_types", "full_attention or linear_attention", Quote(word));
    }
    layers[i].mixer = word == "full_attention" ? Mixer::kAttention : Mixer::kDeltaNet;
  }
  return layers;
}

// What every family states in the same words.
Result<Geometry> ReadCommon(const Json& text) {
  Geometry geometry;
  TRY_ASSIGN(geometry.hidden, Extent(text, "hidden_size"));
  TRY_ASSIGN(geometry.vocab, Extent(text, "vocab_size"));
  TRY_ASSIGN(geometry.max_positions, Extent(text, "max_position_embeddings"));
  TRY_ASSIGN(geometry.norm_eps, PositiveDouble(text, "rms_norm_eps", 1e-6));
  TRY_ASSIGN(geometry.tied_head, GetBool(text, "tie_word_embeddings", false, kConfig));
  return geometry;
}

// Qwen3.5: delta-net and gated attention layers; the sparse variant has experts in every layer.
Result<Geometry> ReadQwen35(const FamilyConfig& config, ChannelMixer channel_mixer) {
  TRY_ASSIGN(Geometry geometry, ReadCommon(config.text));
  geometry.norm_offset = 1;
  TRY_ASSIGN(geometry.layers, ReadHybridLayers(config.text, channel_mixer));
  if (geometry.Uses(Mixer::kAttention)) {
    TRY_ASSIGN(geometry.attention, ReadAttention(config, geometry.hidden));
    TRY_ASSIGN(geometry.attention.rotary_dim, ReadRotaryDim(config, geometry.attention.head_dim, 0.25));
    TRY_ASSIGN(geometry.attention.output_gate, GetBool(config.text, "attn_output_gate", true, kConfig));
    geometry.attention.qk_norm = true;
  }
  if (geometry.Uses(Mixer::kDeltaNet)) {
    TRY_ASSIGN(geometry.delta_net, ReadDeltaNet(config.text));
  }
  if (channel_mixer == ChannelMixer::kMoe) {
    TRY_ASSIGN(geometry.moe, ReadMoe(config.text, geometry.layers.size()));
  } else {
    TRY_ASSIGN(geometry.mlp_width, Extent(config.text, "intermediate_size"));
  }
  return geometry;
}

Result<Geometry> ReadQwen35Moe(const FamilyConfig& config) { return ReadQwen35(config, ChannelMixer::kMoe); }
Result<Geometry> ReadQwen35Dense(const FamilyConfig& config) { return ReadQwen35(config, ChannelMixer::kMlp); }

constexpr std::array<std::string_view, 2> kQwen35MoeTypes = {"qwen3_5_moe", "qwen3_5_moe_text"};
constexpr std::array<std::string_view, 2> kQwen35Types = {"qwen3_5", "qwen3_5_text"};
constexpr std::array<FamilyRow, 2> kFamilies = {
    {{"qwen3_5_moe", kQwen35MoeTypes, ReadQwen35Moe}, {"qwen3_5", kQwen35Types, ReadQwen35Dense}}};

// Upper bound of the parameters, in floating point so that it cannot overflow.
double Parameters(const Geometry& geometry) {
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const AttentionGeometry& attention = geometry.attention;
  const DeltaNetGeometry& net = geometry.delta_net;
  const MoeGeometry& moe = geometry.moe;
  const double heads = real(3 * attention.q_heads + 2 * attention.kv_heads) * real(attention.head_dim);
  const double net_rows = 2 * real(net.k_heads) * real(net.k_dim) + real(net.v_heads) * real(3 * net.v_dim + 2);
  const double experts = real(moe.experts) * real(3 * moe.width + 1);
  const double channels = 3 * real(moe.shared_width + geometry.mlp_width);
  const double layer = heads + net_rows + experts + channels;
  return real(geometry.hidden) *
         (layer * real(static_cast<int64_t>(geometry.layers.size())) + 2 * real(geometry.vocab));
}

std::string SupportedTypes() {
  std::string types;
  for (const FamilyRow& row : Families()) {
    for (const std::string_view type : row.model_types) types += fmt::format("{}{}", types.empty() ? "" : ", ", type);
  }
  return types;
}

}  // namespace

std::span<const FamilyRow> Families() { return kFamilies; }

Result<Geometry> ReadGeometry(const FamilyConfig& config) {
  if (!config.text.is_object()) return Invalid("text_config", "an object", Quote(DumpJson(config.text)));
  TRY_ASSIGN(const std::string type, GetString(config.text, "model_type", "", kConfig));
  if (type.empty()) return Invalid("model_type", fmt::format("one of {}", SupportedTypes()), "none");
  for (const FamilyRow& row : Families()) {
    if (std::find(row.model_types.begin(), row.model_types.end(), type) == row.model_types.end()) continue;
    TRY(CheckSupported(config));
    TRY_ASSIGN(Geometry geometry, row.read(config));
    geometry.family = row.name;
    if (const double parameters = Parameters(geometry); parameters > kMaxParameters) {
      return Invalid("num_hidden_layers", fmt::format("a model of at most {:.0f} parameters", kMaxParameters),
                     fmt::format("extents that multiply to {:.3g}", parameters));
    }
    return geometry;
  }
  return MakeError(Code::kUnsupported, fmt::format("{}: \"model_type\": expected one of {}, found {}; use one of those",
                                                   kConfig, SupportedTypes(), Quote(type)));
}

Result<SourceNames> DetectNames(const Geometry& geometry, const std::function<bool(const std::string&)>& has) {
  SourceNames names;
  for (const char* prefix : {"model.", "model.language_model."}) {
    if (has(std::string(prefix) + "embed_tokens.weight")) names.prefix = prefix;
  }
  if (names.prefix.empty()) {
    return MakeError(
        Code::kInvalid,
        "checkpoint: expected model.embed_tokens.weight or model.language_model.embed_tokens.weight, found "
        "neither; check that the directory holds all of the model's files");
  }
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    if (geometry.layers[i].channel_mixer != ChannelMixer::kMoe) continue;
    names.fused_experts = has(fmt::format("{}layers.{}.mlp.experts.gate_up_proj", names.prefix, i));
    break;
  }
  return names;
}

std::string SkippedReason(std::string_view tensor_name) {
  struct Known {
    std::string_view prefix;
    const char* reason;
  };
  constexpr std::array<Known, 6> kKnown = {{{"model.visual.", "vision tower"},
                                            {"visual.", "vision tower"},
                                            {"model.vision_tower.", "vision tower"},
                                            {"vision_tower.", "vision tower"},
                                            {"mtp.", "multi-token-prediction head"},
                                            {"lm_head.weight", "copy of the tied embedding"}}};
  for (const Known& known : kKnown) {
    if (tensor_name.substr(0, known.prefix.size()) == known.prefix) return known.reason;
  }
  const bool rotary = tensor_name.size() >= 8 && tensor_name.substr(tensor_name.size() - 8) == "inv_freq";
  return rotary ? "rotary buffer" : "";
}

}  // namespace trivet::plan
