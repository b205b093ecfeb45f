// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/str.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_names.h"
#include "checkpoint/gguf_rope.h"

namespace trivet::checkpoint {
namespace {

// What the rows of the table need to look at.
struct Source {
  const Checkpoint& checkpoint;
  std::string prefix;  // "llama."
  const std::string& path;

  const Json& metadata() const { return checkpoint.metadata(); }
  std::string Key(std::string_view key) const { return prefix + std::string(key); }
};

// One architecture: the model_type whose config it becomes, and what its converter does differently.
struct Architecture {
  std::string_view name;
  std::string_view model_type;
  bool branch_norms = false;                                       // see GgufNaming
  bool interleaved = false;                                        // rows of queries and keys stand in rotary pairs
  bool tiled_values = false;                                       // see GgufNaming
  bool latent = false;                                             // attention over one latent per token
  bool windows = false;                                            // some layers have a sliding window
  const char* implied = "{}";                                      // JSON: config keys that the program knows
  Status (*derive)(const Source& source, Json* config) = nullptr;  // what takes more than another name
};

Status DeriveLlama(const Source& source, Json* config);
Status DeriveGemma3(const Source& source, Json* config);
Status DeriveDeepseek2(const Source& source, Json* config);

constexpr std::array<Architecture, 10> kArchitectures = {{
    {.name = "llama", .model_type = "llama", .interleaved = true, .derive = DeriveLlama},
    {.name = "qwen2", .model_type = "qwen2"},
    {.name = "qwen3", .model_type = "qwen3"},
    {.name = "qwen3moe", .model_type = "qwen3_moe", .implied = R"({"norm_topk_prob": true})"},
    {.name = "qwen3next", .model_type = "qwen3_next"},
    {.name = "qwen35", .model_type = "qwen3_5_text", .tiled_values = true},
    {.name = "qwen35moe", .model_type = "qwen3_5_moe_text", .tiled_values = true},
    {.name = "gemma3", .model_type = "gemma3_text", .branch_norms = true, .windows = true, .derive = DeriveGemma3},
    {.name = "gpt-oss",
     .model_type = "gpt_oss",
     .windows = true,
     .implied = R"({"rope_scaling": {"truncate": false}})"},
    {.name = "deepseek2", .model_type = "deepseek_v3", .latent = true, .derive = DeriveDeepseek2},
}};

struct KeyPair {
  std::string_view from, to;
};

// Metadata keys under the architecture's name, and the config's. Absent ones stay absent.
constexpr std::array<KeyPair, 30> kKeys = {{{"context_length", "max_position_embeddings"},
                                            {"embedding_length", "hidden_size"},
                                            {"block_count", "num_hidden_layers"},
                                            {"feed_forward_length", "intermediate_size"},
                                            {"attention.head_count", "num_attention_heads"},
                                            {"attention.head_count_kv", "num_key_value_heads"},
                                            {"attention.key_length", "head_dim"},
                                            {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                            {"attention.sliding_window", "sliding_window"},
                                            {"attention.kv_lora_rank", "kv_lora_rank"},
                                            {"attention.q_lora_rank", "q_lora_rank"},
                                            {"final_logit_softcapping", "final_logit_softcapping"},
                                            {"full_attention_interval", "full_attention_interval"},
                                            {"rope.freq_base", "rope_theta"},
                                            {"expert_count", "num_experts"},
                                            {"expert_count", "n_routed_experts"},
                                            {"expert_used_count", "num_experts_per_tok"},
                                            {"expert_feed_forward_length", "moe_intermediate_size"},
                                            {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
                                            {"expert_shared_count", "n_shared_experts"},
                                            {"expert_group_count", "n_group"},
                                            {"expert_group_used_count", "topk_group"},
                                            {"expert_weights_scale", "routed_scaling_factor"},
                                            {"expert_weights_norm", "norm_topk_prob"},
                                            {"leading_dense_block_count", "first_k_dense_replace"},
                                            {"ssm.conv_kernel", "linear_conv_kernel_dim"},
                                            {"ssm.state_size", "linear_key_head_dim"},
                                            {"ssm.group_count", "linear_num_key_heads"},
                                            {"ssm.time_step_rank", "linear_num_value_heads"},
                                            {"ssm.inner_size", "linear_value_head_dim"}}};  // of all heads

// Metadata keys about tokens and sampling, and those of generation_config.json.
constexpr std::array<KeyPair, 7> kGenerationKeys = {{{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                                     {"tokenizer.ggml.padding_token_id", "pad_token_id"},
                                                     {"general.sampling.temp", "temperature"},
                                                     {"general.sampling.top_k", "top_k"},
                                                     {"general.sampling.top_p", "top_p"},
                                                     {"general.sampling.min_p", "min_p"},
                                                     {"general.sampling.penalty_repeat", "repetition_penalty"}}};

constexpr int64_t kMaxExtent = int64_t{1} << 40;  // beyond any, and small enough to be multiplied

// An extent that may be absent.
Result<int64_t> Extent(const Source& source, std::string_view key, int64_t fallback) {
  TRY_ASSIGN(const int64_t value, GetInt(source.metadata(), source.Key(key), fallback, source.path));
  if (value >= 0 && value <= kMaxExtent) return value;
  return GgufUnsupported(source.path, source.Key(key), fmt::format("0 to {}", kMaxExtent), fmt::format("{}", value));
}

// Options that would change the arithmetic.
Status CheckSupported(const Source& source, const Architecture& architecture) {
  const Json& metadata = source.metadata();
  TRY_ASSIGN(const int64_t key, Extent(source, "attention.key_length", 0));
  TRY_ASSIGN(const int64_t value, Extent(source, "attention.value_length", key));
  if (key != value && !architecture.latent) {
    return GgufUnsupported(source.path, source.Key("attention.value_length"), fmt::format("{}, as of keys", key),
                           fmt::format("{}", value));
  }
  for (const KeyPair& pair : kKeys) {
    const Json* found = Find(metadata, source.Key(pair.from));
    if (found == nullptr) continue;
    if (!found->is_number() && !found->is_boolean()) {
      return GgufUnsupported(source.path, source.Key(pair.from), "one number for all layers",
                             Quote(DumpJson(*found), 80));
    }
    if (found->is_number_integer()) TRY(Extent(source, pair.from, 0));
  }
  return {};
}

// Rotary channels where only some of a head's rotate.
Status AddPartialRotary(const Source& source, const Architecture& architecture, Json* config) {
  TRY_ASSIGN(const int64_t head_dim, NeedInt(*config, "head_dim", source.path));
  TRY_ASSIGN(const int64_t rotary, Extent(source, "rope.dimension_count", head_dim));
  if (rotary == head_dim || architecture.latent) return {};
  if (architecture.interleaved || rotary <= 0 || rotary > head_dim) {
    return GgufUnsupported(source.path, source.Key("rope.dimension_count"), fmt::format("{}, the head's", head_dim),
                           fmt::format("{}", rotary));
  }
  (*config)["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(head_dim);
  return {};
}

// The kind of every layer, where the file lists which of them have a recurrent state.
Status AddLayerTypes(const Source& source, int64_t layers, Json* config) {
  const std::string key = source.Key("attention.recurrent_layers");
  const Json* recurrent = Find(source.metadata(), key);
  if (recurrent == nullptr) return {};
  if (!recurrent->is_array() || static_cast<int64_t>(recurrent->size()) < layers) {
    return GgufUnsupported(source.path, key, "a list of all layers", Quote(DumpJson(*recurrent), 80));
  }
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    types.push_back((*recurrent)[static_cast<size_t>(i)] == true ? "linear_attention" : "full_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return {};
}

// Which layers have the sliding window, where the file says so: a period whose last layer has none, or a list.
Status AddWindows(const Source& source, int64_t layers, Json* config) {
  const std::string key = source.Key("attention.sliding_window_pattern");
  const Json* pattern = Find(source.metadata(), key);
  if (pattern == nullptr) return {};
  if (pattern->is_number_integer() && *pattern > 0) {
    (*config)["sliding_window_pattern"] = *pattern;
    return {};
  }
  const auto on = [](const Json& flag) { return flag == true || flag == 1; };
  const bool flags = pattern->is_array() && std::all_of(pattern->begin(), pattern->end(), [&](const Json& flag) {
                       return on(flag) || flag == false || flag == 0;
                     });
  if (!flags || static_cast<int64_t>(pattern->size()) < layers) {
    return GgufUnsupported(source.path, key, "a period, or a list of all layers", Quote(DumpJson(*pattern), 80));
  }
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    types.push_back(on((*pattern)[static_cast<size_t>(i)]) ? "sliding_attention" : "full_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return {};
}

// What the metadata say in other terms, or leave to the program.
Status AddImplied(const Source& source, const Architecture& architecture, Json* config) {
  TRY_ASSIGN(const int64_t hidden, NeedInt(*config, "hidden_size", source.path));
  TRY_ASSIGN(const int64_t heads, NeedInt(*config, "num_attention_heads", source.path));
  TRY_ASSIGN(const int64_t blocks, NeedInt(*config, "num_hidden_layers", source.path));
  if (heads <= 0) {
    return GgufUnsupported(source.path, source.Key("attention.head_count"), "at least 1", fmt::format("{}", heads));
  }
  TRY_ASSIGN(const int64_t head_dim, GetInt(*config, "head_dim", hidden / heads, source.path));
  (*config)["head_dim"] = head_dim;
  if (!config->contains("num_key_value_heads")) (*config)["num_key_value_heads"] = heads;
  // Blocks that predict further tokens are counted, too.
  TRY_ASSIGN(const int64_t extra, Extent(source, "nextn_predict_layers", 0));
  if (extra > blocks) {
    return GgufUnsupported(source.path, source.Key("nextn_predict_layers"), fmt::format("0 to {}", blocks),
                           fmt::format("{}", extra));
  }
  (*config)["num_hidden_layers"] = blocks - extra;
  TRY(AddLayerTypes(source, blocks - extra, config));
  if (architecture.windows) TRY(AddWindows(source, blocks - extra, config));
  TRY(AddPartialRotary(source, architecture, config));
  TRY_ASSIGN(const int64_t value_heads, GetInt(*config, "linear_num_value_heads", 0, source.path));
  if (value_heads > 0) {
    TRY_ASSIGN(const int64_t channels, NeedInt(*config, "linear_value_head_dim", source.path));
    if (channels % value_heads != 0) {
      return GgufUnsupported(source.path, source.Key("ssm.inner_size"), fmt::format("a multiple of {}", value_heads),
                             fmt::format("{}", channels));
    }
    (*config)["linear_value_head_dim"] = channels / value_heads;
  }
  return architecture.derive == nullptr ? Status() : architecture.derive(source, config);
}

// Mixtures of experts go by the same name.
Status DeriveLlama(const Source& source, Json*) {
  TRY_ASSIGN(const int64_t experts, Extent(source, "expert_count", 0));
  return experts == 0 ? Status()
                      : GgufUnsupported(source.path, source.Key("expert_count"), "0", fmt::format("{}", experts));
}

Status DeriveGemma3(const Source& source, Json* config) {
  TRY_ASSIGN(const int64_t hidden, NeedInt(*config, "hidden_size", source.path));
  TRY_ASSIGN(const int64_t heads, NeedInt(*config, "num_attention_heads", source.path));
  // The largest model, known by its depth, scales scores by the width a head would have without a key length.
  (*config)["query_pre_attn_scalar"] =
      (*config)["num_hidden_layers"] == 62 ? Json(hidden / heads) : (*config)["head_dim"];
  const Json* local = Find(source.metadata(), source.Key("rope.freq_base_swa"));
  (*config)["rope_local_base_freq"] = local != nullptr ? *local : Json(10000.0);
  TRY_ASSIGN(const int64_t window, Extent(source, "attention.sliding_window", 0));
  if (window == 0) (*config)["sliding_window_pattern"] = 1;  // full attention everywhere
  return {};
}

// Experts are chosen by corrected sigmoids. Files from before groups of experts were stated have them all the same if
// they have as many experts as the model that came with groups.
Status DeriveDeepseek2Experts(const Source& source, Json* config) {
  constexpr int64_t kSigmoid = 2, kExpertsInGroups = 256;
  TRY_ASSIGN(const int64_t experts, GetInt(*config, "n_routed_experts", 0, source.path));
  TRY_ASSIGN(const int64_t first, GetInt(*config, "first_k_dense_replace", 0, source.path));
  const bool corrected = source.checkpoint.Find(fmt::format("blk.{}.exp_probs_b.bias", first)) != nullptr;
  TRY_ASSIGN(const int64_t gating, Extent(source, "expert_gating_func", corrected ? kSigmoid : 1));
  if (experts > 0 && gating != kSigmoid) {
    return GgufUnsupported(source.path, source.Key("expert_gating_func"), "2, for sigmoid", fmt::format("{}", gating));
  }
  const bool grouped = experts == kExpertsInGroups;
  if (!config->contains("n_group")) (*config)["n_group"] = grouped ? 8 : 1;
  if (!config->contains("topk_group")) (*config)["topk_group"] = grouped ? 4 : 1;
  TRY_ASSIGN(const double scale, GetDouble(*config, "routed_scaling_factor", 0, source.path));
  if (scale == 0) (*config)["routed_scaling_factor"] = 1.0;
  return {};
}

// A head's widths are those of the mla keys, where the others are of the latent that all heads share.
Status DeriveDeepseek2(const Source& source, Json* config) {
  TRY_ASSIGN(const int64_t rotary, Extent(source, "rope.dimension_count", 0));
  TRY_ASSIGN(const int64_t key_length, Extent(source, "attention.key_length", 0));
  TRY_ASSIGN(const int64_t value_length, Extent(source, "attention.value_length", 0));
  TRY_ASSIGN(const int64_t key, Extent(source, "attention.key_length_mla", key_length));
  TRY_ASSIGN(const int64_t value, Extent(source, "attention.value_length_mla", value_length));
  (*config)["qk_rope_head_dim"] = rotary;
  (*config)["qk_nope_head_dim"] = key - rotary;
  (*config)["v_head_dim"] = value;
  for (const char* absent : {"q_lora_rank", "first_k_dense_replace", "n_shared_experts"}) {
    if (!config->contains(absent)) (*config)[absent] = 0;
  }
  if (!config->contains("norm_topk_prob")) (*config)["norm_topk_prob"] = false;
  return DeriveDeepseek2Experts(source, config);
}

Result<Json> ConfigOf(const Architecture& architecture, const Source& source) {
  TRY(CheckSupported(source, architecture));
  TRY_ASSIGN(Json config, ParseJson(architecture.implied, architecture.name));
  config["model_type"] = architecture.model_type;
  for (const KeyPair& pair : kKeys) {
    if (const Json* value = Find(source.metadata(), source.Key(pair.from))) config[std::string(pair.to)] = *value;
  }
  const TensorInfo* embedding = source.checkpoint.Find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected token_embd.weight with two dimensions, found none; the file "
                                 "holds no language model",
                                 source.path));
  }
  config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = source.checkpoint.Find("output.weight") == nullptr;
  const Json implied_rope = config.value("rope_scaling", Json::object());
  TRY_ASSIGN(config["rope_scaling"],
             GgufScaling(source.checkpoint, {source.prefix, architecture.latent, implied_rope}, source.path));
  TRY(AddImplied(source, architecture, &config));
  return config;
}

// What the names, shapes and orders of tensors depend on.
Result<GgufNaming> NamingOf(const Architecture& architecture, const Json& config, const std::string& path) {
  GgufNaming naming;
  naming.branch_norms = architecture.branch_norms;
  TRY_ASSIGN(const int64_t head_dim, NeedInt(config, "head_dim", path));
  if (architecture.interleaved) naming.rotary_pairs = head_dim / 2;
  if (!architecture.tiled_values) return naming;
  TRY_ASSIGN(naming.key_heads, NeedInt(config, "linear_num_key_heads", path));
  TRY_ASSIGN(naming.value_heads, NeedInt(config, "linear_num_value_heads", path));
  TRY_ASSIGN(naming.key_dim, NeedInt(config, "linear_key_head_dim", path));
  TRY_ASSIGN(naming.value_dim, NeedInt(config, "linear_value_head_dim", path));
  naming.tiled_values = naming.key_heads > 0 && naming.value_heads % naming.key_heads == 0;
  return naming;
}

// generation_config.json as the metadata has it: tokens that end a text, and defaults of sampling.
Json GenerationConfig(const Json& metadata) {
  Json config = Json::object();
  Json stops = Json::array();
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const Json* id = Find(metadata, key)) stops.push_back(*id);
  }
  if (!stops.empty()) config["eos_token_id"] = stops;
  for (const KeyPair& pair : kGenerationKeys) {
    if (const Json* value = Find(metadata, pair.from)) config[std::string(pair.to)] = *value;
  }
  return config;
}

}  // namespace

Result<ModelFiles> BindGguf(const std::string& path, Checkpoint* checkpoint) {
  TRY_ASSIGN(const std::string name, GetString(checkpoint->metadata(), "general.architecture", "", path));
  const Architecture* architecture = nullptr;
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (row.name == name) architecture = &row;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  if (architecture == nullptr)
    return GgufUnsupported(path, "general.architecture", "one of " + known, name.empty() ? "none" : name);
  ModelFiles files;
  files.dir = path;
  TRY_ASSIGN(files.config, ConfigOf(*architecture, {*checkpoint, fmt::format("{}.", name), path}));
  files.generation_config = GenerationConfig(checkpoint->metadata());
  files.text_config = files.config;
  TRY_ASSIGN(files.rope, RopeParameters(files.text_config, path));
  TRY(AddStopTokens(files.generation_config, path, &files.stop_tokens));
  files.whole_norms = true;
  TRY_ASSIGN(const GgufNaming naming, NamingOf(*architecture, files.config, path));
  TRY(checkpoint->Remap([&](const TensorInfo& info) { return GgufParts(info, naming); }));
  return files;
}

}  // namespace trivet::checkpoint
