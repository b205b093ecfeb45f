// SPDX-License-Identifier: Apache-2.0
#include "plan/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "plan/config_keys.h"
#include "plan/family_parts.h"

namespace trivet::plan {
namespace {

constexpr double kMaxParameters = 281474976710656.0;  // 2^48

constexpr std::array<std::string_view, 1> kFull = {"full_attention"};
constexpr std::array<std::string_view, 2> kFullOrSliding = {"full_attention", "sliding_attention"};
constexpr std::array<std::string_view, 2> kFullOrLinear = {"full_attention", "linear_attention"};

constexpr MoeKeys kQwenExperts = {"num_experts", "num_local_experts", "num_experts_per_tok", "num_experts_per_tok",
                                  "moe_intermediate_size"};
constexpr MoeKeys kGptOssExperts = {"num_local_experts", "num_experts", "num_experts_per_tok", "experts_per_token",
                                    "intermediate_size"};
constexpr MoeKeys kDeepseekExperts = {"n_routed_experts", "num_local_experts", "num_experts_per_tok",
                                      "num_experts_per_tok", "moe_intermediate_size"};

std::string_view AlwaysFull(int64_t) { return "full_attention"; }

// Sliding windows where use_sliding_window says so, from layer max_window_layers on.
Result<LayerRule> LateWindows(const Json& text) {
  TRY_ASSIGN(const bool used, GetBool(text, "use_sliding_window", false, kConfig));
  TRY_ASSIGN(const int64_t from, GetExtent(text, "max_window_layers"));
  return LayerRule{kFullOrSliding,
                   [used, from](int64_t i) { return used && i >= from ? "sliding_attention" : "full_attention"; },
                   {}};
}

// Sliding windows in all layers but the last of every so many: the config's number, or `period`.
Result<LayerRule> PeriodicWindows(const Json& text, int64_t period) {
  const std::string_view key = EitherKey(text, "sliding_window_pattern", "_sliding_window_pattern");
  TRY_ASSIGN(const int64_t given, GetInt(text, key, period, kConfig));
  TRY_ASSIGN(const int64_t pattern, InRange(key, given, 1, kMaxLayers));
  return LayerRule{kFullOrSliding,
                   [pattern](int64_t i) { return (i + 1) % pattern == 0 ? "full_attention" : "sliding_attention"; },
                   {}};
}

// Experts in every decoder_sparse_step-th layer, save those of mlp_only_layers.
Result<std::function<bool(int64_t)>> SparseLayers(const Json& text) {
  TRY_ASSIGN(const int64_t given, GetInt(text, "decoder_sparse_step", 1, kConfig));
  TRY_ASSIGN(const int64_t step, InRange("decoder_sparse_step", given, 1, kMaxLayers));
  TRY_ASSIGN(const int64_t experts, GetInt(text, EitherKey(text, "num_experts", "num_local_experts"), 1, kConfig));
  std::vector<int64_t> dense;
  if (Present(text, "mlp_only_layers")) {
    const Json& list = *Find(text, "mlp_only_layers");
    if (!list.is_array()) return InvalidKey("mlp_only_layers", "a list of layers", Quote(DumpJson(list)));
    for (const Json& layer : list) {
      if (!layer.is_number_integer()) return InvalidKey("mlp_only_layers", "layers", Quote(DumpJson(layer)));
      dense.push_back(layer.get<int64_t>());
    }
  }
  return std::function<bool(int64_t)>([step, experts, dense](int64_t i) {
    return experts > 0 && (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
  });
}

// Full attention in the last layer of every full_attention_interval.
Result<LayerRule> Hybrid(const Json& text) {
  TRY_ASSIGN(const int64_t given, GetInt(text, "full_attention_interval", 4, kConfig));
  TRY_ASSIGN(const int64_t interval, InRange("full_attention_interval", given, 1, kMaxLayers));
  return LayerRule{kFullOrLinear,
                   [interval](int64_t i) { return (i + 1) % interval == 0 ? "full_attention" : "linear_attention"; },
                   {}};
}

Status ReadQwenRouter(const Json& text, bool renormalise, Geometry* geometry) {
  TRY(ReadExperts(text, kQwenExperts, geometry));
  if (!geometry->Uses(ChannelMixer::kMoe)) return {};
  TRY_ASSIGN(geometry->moe.shared_width, GetExtent(text, "shared_expert_intermediate_size"));
  geometry->moe.router.kind = renormalise ? RouterKind::kSoftmaxChosen : RouterKind::kSoftmaxAll;
  return {};
}

Result<Geometry> ReadLlama(const FamilyConfig& config) {
  TRY_ASSIGN(Geometry geometry, ReadCommon(config.text));
  TRY(ReadLayers(config.text, {kFull, AlwaysFull, {}}, &geometry));
  TRY(ReadAttention(config, &geometry));
  TRY(ReadMlp(config.text, "hidden_act", &geometry));
  return geometry;
}

Result<Geometry> ReadQwen2(const FamilyConfig& config) {
  TRY_ASSIGN(Geometry geometry, ReadCommon(config.text));
  TRY_ASSIGN(const LayerRule rule, LateWindows(config.text));
  TRY(ReadLayers(config.text, rule, &geometry));
  TRY(ReadAttention(config, &geometry));
  geometry.attention.qkv_bias = true;
  geometry.attention.output_bias = false;
  TRY(ReadMlp(config.text, "hidden_act", &geometry));
  return geometry;
}

Result<Geometry> ReadQwen3(const FamilyConfig& config) {
  TRY_ASSIGN(Geometry geometry, ReadCommon(config.text));
  TRY_ASSIGN(const LayerRule rule, LateWindows(config.text));
  TRY(ReadLayers(config.text, rule, &geometry));
  TRY(ReadAttention(config, &geometry));
  geometry.attention.qk_norm = true;
  TRY(ReadMlp(config.text, "hidden_act", &geometry));
  return geometry;
}

Result<Geometry> ReadQwen3Moe(const FamilyConfig& config) {
  TRY_ASSIGN(Geometry geometry, ReadCommon(config.text));
  // A window, where one is used, is on every layer.
  TRY_ASSIGN(const bool windows, GetBool(config.text, "use_sliding_window", false, kConfig));
  LayerRule rule{kFullOrSliding, [windows](int64_t) { return windows ? "sliding_attention" : "full_attention"; }, {}};
  TRY_ASSIGN(rule.sparse, SparseLayers(config.text));
  TRY(ReadLayers(config.text, rule, &geometry));
  TRY(ReadAttention(config, &geometry));
  geometry.attention.qk_norm = true;
  TRY(ReadMlp(config.text, "hidden_act", &geometry));
  TRY_ASSIGN(const bool renormalise, GetBool(config.text, "norm_topk_prob", false, kConfig));
  TRY(ReadQwenRouter(config.text, renormalise, &geometry));
  geometry.moe.shared_width = 0;
  return geometry;
}

// Delta-net and gated attention layers; `rule` has decided which layers have experts.
Result<Geometry> ReadHybrid(const FamilyConfig& config, const LayerRule& rule, bool renormalise) {
  TRY_ASSIGN(Geometry geometry, ReadCommon(config.text));
  geometry.norm_offset = 1;
  TRY(ReadLayers(config.text, rule, &geometry));
  TRY(ReadAttention(config, &geometry));
  TRY_ASSIGN(geometry.attention.output_gate, GetBool(config.text, "attn_output_gate", true, kConfig));
  geometry.attention.qk_norm = true;
  TRY(ReadDeltaNet(config.text, &geometry));
  TRY(ReadMlp(config.text, "hidden_act", &geometry));
  TRY(ReadQwenRouter(config.text, renormalise, &geometry));
  return geometry;
}

Result<Geometry> ReadQwen3Next(const FamilyConfig& config) {
  TRY_ASSIGN(LayerRule rule, Hybrid(config.text));
  TRY_ASSIGN(rule.sparse, SparseLayers(config.text));
  TRY_ASSIGN(const bool renormalise, GetBool(config.text, "norm_topk_prob", true, kConfig));
  return ReadHybrid(config, rule, renormalise);
}

Result<Geometry> ReadQwen35(const FamilyConfig& config) {
  TRY_ASSIGN(const LayerRule rule, Hybrid(config.text));
  return ReadHybrid(config, rule, true);
}

Result<Geometry> ReadQwen35Moe(const FamilyConfig& config) {
  TRY_ASSIGN(LayerRule rule, Hybrid(config.text));
  rule.sparse = [](int64_t) { return true; };
  return ReadHybrid(config, rule, true);
}

// Ropes of both kinds of layers. Older files have the full layers' alone, and the sliding layers' base under a key of
// its own.
Json Gemma3Ropes(const FamilyConfig& config) {
  const bool nested =
      Find(config.rope, "full_attention") != nullptr || Find(config.rope, "sliding_attention") != nullptr;
  Json ropes = nested ? config.rope : Json{{"full_attention", config.rope}};
  for (const auto& [word, base] :
       {std::pair{"full_attention", "rope_theta"}, std::pair{"sliding_attention", "rope_local_base_freq"}}) {
    Json& rope = ropes[word];
    if (!rope.is_object()) rope = Json{{"rope_type", "default"}};
    if (!Present(rope, "rope_theta")) rope["rope_theta"] = *Find(config.text, base);
  }
  return ropes;
}

Status ReadGemma3Scales(const Json& text, Geometry* geometry) {
  TRY_ASSIGN(const double scalar, PositiveDouble(text, "query_pre_attn_scalar", 0));
  geometry->attention.scale = 1 / std::sqrt(scalar);
  // Configs may state attn_logit_softcapping, a leftover of the family before: references leave scores as they are.
  if (Present(text, "final_logit_softcapping")) {
    TRY_ASSIGN(geometry->logit_softcap, PositiveDouble(text, "final_logit_softcapping", 0));
  }
  // Activations are float32, and so is the product that references round to the type of the activations.
  geometry->embed_scale = std::sqrt(static_cast<double>(geometry->hidden));
  return {};
}

Result<Geometry> ReadGemma3(const FamilyConfig& config) {
  TRY_ASSIGN(Geometry geometry, ReadCommon(config.text));
  TRY_ASSIGN(const bool both_ways, GetBool(config.text, "use_bidirectional_attention", false, kConfig));
  if (both_ways) return UnsupportedKey("use_bidirectional_attention", "false", "true");
  geometry.norm_offset = 1;
  geometry.branch_norms = true;
  TRY_ASSIGN(const LayerRule rule, PeriodicWindows(config.text, 6));
  TRY(ReadLayers(config.text, rule, &geometry));
  const Json ropes = Gemma3Ropes(config);
  TRY(ReadAttention({config.text, ropes}, &geometry));
  geometry.attention.qk_norm = true;
  TRY(ReadGemma3Scales(config.text, &geometry));
  TRY(ReadMlp(config.text, EitherKey(config.text, "hidden_activation", "hidden_act"), &geometry));
  return geometry;
}

// The rope, which is that of the published models where a config says nothing about it.
Json GptOssRope(const FamilyConfig& config) {
  if (Present(config.text, "rope_parameters") || Present(config.text, "rope_scaling")) return config.rope;
  return Json{{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
              {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
}

Result<Geometry> ReadGptOss(const FamilyConfig& config) {
  TRY_ASSIGN(Geometry geometry, ReadCommon(config.text));
  TRY_ASSIGN(LayerRule rule, PeriodicWindows(config.text, 2));
  rule.sparse = [](int64_t) { return true; };
  TRY(ReadLayers(config.text, rule, &geometry));
  const Json rope = GptOssRope(config);
  TRY(ReadAttention({config.text, rope}, &geometry));
  geometry.attention.sinks = true;
  TRY(ReadMlp(config.text, "hidden_act", &geometry));
  geometry.mlp.activation = Activation::kClampedSwiglu;
  TRY_ASSIGN(geometry.mlp.limit, PositiveDouble(config.text, "swiglu_limit", 0));
  TRY_ASSIGN(geometry.mlp.alpha, PositiveDouble(config.text, "swiglu_alpha", 0));
  TRY(ReadExperts(config.text, kGptOssExperts, &geometry));
  geometry.moe.bias = true;
  geometry.moe.router.bias = true;
  return geometry;
}

// Scores are scaled by the query's width, and by the stretch of the context once more.
Result<double> LatentScale(const FamilyConfig& config, int64_t query_dim) {
  const double scale = 1 / std::sqrt(static_cast<double>(query_dim));
  TRY_ASSIGN(const std::string type, GetString(config.rope, "rope_type", "default", kConfig));
  TRY_ASSIGN(const double mscale, GetDouble(config.rope, "mscale_all_dim", 0, kConfig));
  if (type == "default" || mscale == 0) return scale;
  TRY_ASSIGN(const double factor, PositiveDouble(config.rope, "factor", 0));
  const double stretch = factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
  return scale * stretch * stretch;
}

Status ReadLatent(const FamilyConfig& config, Geometry* geometry) {
  const Json& text = config.text;
  for (LayerGeometry& layer : geometry->layers) layer.mixer = Mixer::kLatentAttention;
  LatentGeometry& latent = geometry->latent;
  AttentionGeometry& attention = geometry->attention;
  TRY_ASSIGN(attention.q_heads, NeedExtent(text, "num_attention_heads", kMaxHeads));
  attention.kv_heads = 1;
  TRY_ASSIGN(latent.query_rank, GetExtent(text, "q_lora_rank"));
  TRY_ASSIGN(latent.rank, NeedExtent(text, "kv_lora_rank"));
  TRY_ASSIGN(latent.nope_dim, NeedExtent(text, "qk_nope_head_dim", kMaxHeadDim));
  TRY_ASSIGN(latent.rope_dim, NeedExtent(text, "qk_rope_head_dim", kMaxHeadDim));
  TRY_ASSIGN(latent.value_dim, NeedExtent(text, "v_head_dim", kMaxHeadDim));
  TRY_ASSIGN(latent.interleaved, GetBool(text, "rope_interleave", true, kConfig));
  TRY(CheckHeadLeaf("v_head_dim", latent.value_dim));
  if (latent.rope_dim % 2 != 0) {
    return InvalidKey("qk_rope_head_dim", "an even number", fmt::format("{}", latent.rope_dim));
  }
  attention.head_dim = latent.nope_dim + latent.rope_dim;
  TRY_ASSIGN(attention.scale, LatentScale(config, attention.head_dim));
  TRY_ASSIGN(attention.output_bias, GetBool(text, "attention_bias", false, kConfig));
  return ReadRopes(config, latent.rope_dim, geometry);
}

Status ReadDeepseekMoe(const Json& text, Geometry* geometry) {
  TRY(ReadExperts(text, kDeepseekExperts, geometry));
  if (!geometry->Uses(ChannelMixer::kMoe)) return {};
  MoeGeometry& moe = geometry->moe;
  TRY_ASSIGN(const int64_t shared, GetExtent(text, "n_shared_experts", kMaxExtent));
  TRY_ASSIGN(moe.shared_width, InRange("n_shared_experts", shared * moe.width, 0, kMaxExtent));
  moe.shared_gate = false;
  TRY_ASSIGN(const std::string scores, GetString(text, "scoring_func", "sigmoid", kConfig));
  if (scores != "sigmoid") return UnsupportedKey("scoring_func", "sigmoid", Quote(scores));
  TRY_ASSIGN(const std::string method, GetString(text, "topk_method", "noaux_tc", kConfig));
  if (method != "noaux_tc") return UnsupportedKey("topk_method", "noaux_tc", Quote(method));
  RouterGeometry& router = moe.router;
  router.kind = RouterKind::kSigmoid;
  router.correction = true;
  TRY_ASSIGN(router.renormalise, GetBool(text, "norm_topk_prob", true, kConfig));
  TRY_ASSIGN(router.scaling, PositiveDouble(text, "routed_scaling_factor", 1));
  TRY_ASSIGN(const int64_t groups, GetInt(text, "n_group", 1, kConfig));
  TRY_ASSIGN(router.groups, InRange("n_group", groups, 1, moe.experts));
  TRY_ASSIGN(const int64_t kept, GetInt(text, "topk_group", 1, kConfig));
  TRY_ASSIGN(router.groups_kept, InRange("topk_group", kept, 1, router.groups));
  if (moe.experts % router.groups != 0) {
    return InvalidKey("n_group", fmt::format("a divisor of n_routed_experts {}", moe.experts),
                      fmt::format("{}", groups));
  }
  if (moe.experts / router.groups * router.groups_kept < moe.top_k) {
    return InvalidKey("topk_group", "groups that hold num_experts_per_tok experts", fmt::format("{}", kept));
  }
  return {};
}

Result<Geometry> ReadDeepseekV3(const FamilyConfig& config) {
  TRY_ASSIGN(Geometry geometry, ReadCommon(config.text));
  TRY_ASSIGN(const int64_t dense, GetExtent(config.text, "first_k_dense_replace"));
  TRY_ASSIGN(const int64_t frequency, GetInt(config.text, "moe_layer_freq", 1, kConfig));
  if (frequency != 1) return UnsupportedKey("moe_layer_freq", "1", fmt::format("{}", frequency));
  TRY(ReadLayers(config.text, {kFull, AlwaysFull, [dense](int64_t i) { return i >= dense; }}, &geometry));
  TRY(ReadLatent(config, &geometry));
  TRY(ReadMlp(config.text, "hidden_act", &geometry));
  TRY(ReadDeepseekMoe(config.text, &geometry));
  return geometry;
}

constexpr std::array<std::string_view, 1> kLlamaTypes = {"llama"};
constexpr std::array<std::string_view, 1> kQwen2Types = {"qwen2"};
constexpr std::array<std::string_view, 1> kQwen3Types = {"qwen3"};
constexpr std::array<std::string_view, 1> kQwen3MoeTypes = {"qwen3_moe"};
constexpr std::array<std::string_view, 1> kQwen3NextTypes = {"qwen3_next"};
constexpr std::array<std::string_view, 2> kQwen35MoeTypes = {"qwen3_5_moe", "qwen3_5_moe_text"};
constexpr std::array<std::string_view, 2> kQwen35Types = {"qwen3_5", "qwen3_5_text"};
constexpr std::array<std::string_view, 2> kGemma3Types = {"gemma3", "gemma3_text"};
constexpr std::array<std::string_view, 1> kGptOssTypes = {"gpt_oss"};
constexpr std::array<std::string_view, 1> kDeepseekV3Types = {"deepseek_v3"};

constexpr const char* kLlamaDefaults = R"({"rope_theta": 10000.0, "max_position_embeddings": 2048})";
constexpr const char* kQwen2Defaults =
    R"({"rope_theta": 10000.0, "max_window_layers": 28, "sliding_window": 4096, "max_position_embeddings": 32768})";
constexpr const char* kQwen3Defaults =
    R"({"rope_theta": 10000.0, "max_window_layers": 28, "sliding_window": 4096, "max_position_embeddings": 32768,
        "head_dim": 128})";
constexpr const char* kQwen3MoeDefaults =
    R"({"rope_theta": 10000.0, "sliding_window": 4096, "max_position_embeddings": 32768, "num_key_value_heads": 4})";
constexpr const char* kQwen35Defaults =
    R"({"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "max_position_embeddings": 32768, "head_dim": 256,
        "num_key_value_heads": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32})";
// intermediate_size is that of layers without experts, which qwen3_next alone may have.
constexpr const char* kSparseHybridDefaults =
    R"({"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "max_position_embeddings": 32768, "head_dim": 256,
        "num_key_value_heads": 2, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "intermediate_size": 5632})";
// A wrapper's text_config leaves out what has its default value.
constexpr const char* kGemma3Defaults =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256, "sliding_window": 4096,
        "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "tie_word_embeddings": true})";
constexpr const char* kGptOssDefaults =
    R"({"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128, "rms_norm_eps": 1e-5, "attention_bias": true,
        "swiglu_alpha": 1.702, "swiglu_limit": 7.0, "rope_theta": 150000.0, "max_position_embeddings": 131072})";
constexpr const char* kDeepseekV3Defaults =
    R"({"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
        "n_shared_experts": 1, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5,
        "rope_theta": 10000.0, "max_position_embeddings": 4096})";

constexpr std::array<FamilyRow, 10> kFamilies = {
    {{"qwen3_5_moe", kQwen35MoeTypes, kSparseHybridDefaults, ReadQwen35Moe},
     {"qwen3_5", kQwen35Types, kQwen35Defaults, ReadQwen35},
     {"llama", kLlamaTypes, kLlamaDefaults, ReadLlama, true},
     {"qwen2", kQwen2Types, kQwen2Defaults, ReadQwen2},
     {"qwen3", kQwen3Types, kQwen3Defaults, ReadQwen3},
     {"qwen3_moe", kQwen3MoeTypes, kQwen3MoeDefaults, ReadQwen3Moe},
     {"qwen3_next", kQwen3NextTypes, kSparseHybridDefaults, ReadQwen3Next},
     {"gemma3", kGemma3Types, kGemma3Defaults, ReadGemma3, true},
     {"gpt_oss", kGptOssTypes, kGptOssDefaults, ReadGptOss},
     {"deepseek_v3", kDeepseekV3Types, kDeepseekV3Defaults, ReadDeepseekV3}}};

// The config with the family's defaults for keys it does not have.
Json WithDefaults(const FamilyRow& row, const Json& text) {
  Result<Json> defaults = ParseJson(row.defaults, row.name);
  CHECK(defaults.ok());
  Json merged = text;
  for (const auto& [key, value] : defaults->items()) {
    if (Find(text, key) == nullptr) merged[key] = value;
  }
  return merged;
}

// Upper bound of the parameters, in floating point so that it cannot overflow.
double Parameters(const Geometry& geometry) {
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const AttentionGeometry& attention = geometry.attention;
  const LatentGeometry& latent = geometry.latent;
  const DeltaNetGeometry& net = geometry.delta_net;
  const MoeGeometry& moe = geometry.moe;
  const double heads = real(3 * attention.q_heads + 2 * attention.kv_heads) * real(attention.head_dim);
  const double down = real(latent.query_rank + latent.rank + latent.rope_dim);
  const double up = real(attention.q_heads) * real(attention.head_dim + latent.value_dim) *
                    real(std::max(latent.query_rank, latent.rank));
  const double net_rows = 2 * real(net.k_heads) * real(net.k_dim) + real(net.v_heads) * real(3 * net.v_dim + 2);
  const double experts = real(moe.experts) * real(3 * moe.width + 1);
  const double channels = 3 * real(moe.shared_width + geometry.mlp_width);
  const double layer = real(geometry.hidden) * (heads + down + net_rows + experts + channels) + up;
  return layer * real(static_cast<int64_t>(geometry.layers.size())) + 2 * real(geometry.hidden) * real(geometry.vocab);
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

const FamilyRow& FamilyOf(const Geometry& geometry) {
  const auto row = std::find_if(kFamilies.begin(), kFamilies.end(),
                                [&](const FamilyRow& family) { return family.name == geometry.family; });
  CHECK_MSG(row != kFamilies.end(), geometry.family);
  return *row;
}

Result<Geometry> ReadGeometry(const FamilyConfig& config) {
  if (!config.text.is_object()) return InvalidKey("text_config", "an object", Quote(DumpJson(config.text)));
  TRY_ASSIGN(const std::string type, GetString(config.text, "model_type", "", kConfig));
  if (type.empty()) return InvalidKey("model_type", fmt::format("one of {}", SupportedTypes()), "none");
  for (const FamilyRow& row : Families()) {
    if (std::find(row.model_types.begin(), row.model_types.end(), type) == row.model_types.end()) continue;
    const Json text = WithDefaults(row, config.text);
    TRY_ASSIGN(Geometry geometry, row.read({text, config.rope}));
    geometry.family = row.name;
    if (const double parameters = Parameters(geometry); parameters > kMaxParameters) {
      return InvalidKey("num_hidden_layers", fmt::format("a model of at most {:.0f} parameters", kMaxParameters),
                        fmt::format("extents that multiply to {:.3g}", parameters));
    }
    return geometry;
  }
  return MakeError(
      Code::kUnsupported,
      fmt::format("{}: \"model_type\": expected one of {}, found {}, a family not supported yet; use one of "
                  "those",
                  kConfig, SupportedTypes(), Quote(type)));
}

}  // namespace trivet::plan
