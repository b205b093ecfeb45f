// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_model.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "base/str.h"

namespace trivet::checkpoint {
namespace {

// One architecture: the model_type whose config it becomes, and what its converter does differently.
struct Architecture {
  std::string_view name;
  std::string_view model_type;
  bool branch_norms = false;  // ffn_norm stands before the channel mixer, post_attention_norm behind the mixer
  bool interleaved = false;   // rows of queries and keys stand in rotary pairs
};

constexpr std::array<Architecture, 5> kArchitectures = {{{"llama", "llama", false, true},
                                                         {"qwen2", "qwen2"},
                                                         {"qwen3", "qwen3"},
                                                         {"qwen3moe", "qwen3_moe"},
                                                         {"gemma3", "gemma3_text", true}}};

struct KeyPair {
  std::string_view from, to;
};

// Metadata keys under the architecture's name, and the config's. Absent ones stay absent.
constexpr std::array<KeyPair, 14> kKeys = {{{"context_length", "max_position_embeddings"},
                                            {"embedding_length", "hidden_size"},
                                            {"block_count", "num_hidden_layers"},
                                            {"feed_forward_length", "intermediate_size"},
                                            {"attention.head_count", "num_attention_heads"},
                                            {"attention.head_count_kv", "num_key_value_heads"},
                                            {"attention.key_length", "head_dim"},
                                            {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                            {"attention.sliding_window", "sliding_window"},
                                            {"final_logit_softcapping", "final_logit_softcapping"},
                                            {"rope.freq_base", "rope_theta"},
                                            {"expert_count", "num_experts"},
                                            {"expert_used_count", "num_experts_per_tok"},
                                            {"expert_feed_forward_length", "moe_intermediate_size"}}};

// Metadata keys about tokens and sampling, and those of generation_config.json.
constexpr std::array<KeyPair, 7> kGenerationKeys = {{{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                                     {"tokenizer.ggml.padding_token_id", "pad_token_id"},
                                                     {"general.sampling.temp", "temperature"},
                                                     {"general.sampling.top_k", "top_k"},
                                                     {"general.sampling.top_p", "top_p"},
                                                     {"general.sampling.min_p", "min_p"},
                                                     {"general.sampling.penalty_repeat", "repetition_penalty"}}};

// Tensors of a block without ".weight" or ".bias".
constexpr std::array<KeyPair, 12> kNames = {{{"attn_norm", "input_layernorm"},
                                             {"attn_q", "self_attn.q_proj"},
                                             {"attn_k", "self_attn.k_proj"},
                                             {"attn_v", "self_attn.v_proj"},
                                             {"attn_output", "self_attn.o_proj"},
                                             {"attn_q_norm", "self_attn.q_norm"},
                                             {"attn_k_norm", "self_attn.k_norm"},
                                             {"post_ffw_norm", "post_feedforward_layernorm"},
                                             {"ffn_gate", "mlp.gate_proj"},
                                             {"ffn_up", "mlp.up_proj"},
                                             {"ffn_down", "mlp.down_proj"},
                                             {"ffn_gate_inp", "mlp.gate"}}};

// Stacks [experts, rows, cols].
constexpr std::array<KeyPair, 3> kStacks = {
    {{"ffn_gate_exps", "gate_proj"}, {"ffn_up_exps", "up_proj"}, {"ffn_down_exps", "down_proj"}}};

Error Unsupported(std::string_view what, std::string_view key, std::string_view expected, std::string_view found) {
  return MakeError(Code::kUnsupported, fmt::format("{}: \"{}\": expected {}, found {}; use a model without it", what,
                                                   key, expected, Quote(found)));
}

std::string_view Renamed(std::span<const KeyPair> pairs, std::string_view name) {
  for (const KeyPair& pair : pairs) {
    if (pair.from == name) return pair.to;
  }
  return {};
}

// Names of a file's tensors as families ask for them.
class Names {
 public:
  Names(const Architecture& architecture, int64_t head_dim) : architecture_(architecture), head_dim_(head_dim) {}

  std::vector<TensorInfo> PartsOf(const TensorInfo& info) const {
    std::vector<TensorInfo> parts(1, info);
    const size_t dot = info.name.rfind('.');
    const std::string_view stem = std::string_view(info.name).substr(0, dot);
    const std::string suffix = dot == std::string::npos ? "" : info.name.substr(dot);
    if (stem == "token_embd") parts[0].name = "model.embed_tokens" + suffix;
    if (stem == "output_norm") parts[0].name = "model.norm" + suffix;
    if (stem == "output") parts[0].name = "lm_head" + suffix;
    constexpr std::string_view kBlock = "blk.";
    if (stem.substr(0, kBlock.size()) != kBlock) return parts;
    const size_t end = stem.find('.', kBlock.size());
    if (end == std::string_view::npos) return parts;
    const std::string layer = fmt::format("model.layers.{}.", stem.substr(kBlock.size(), end - kBlock.size()));
    const std::string_view name = stem.substr(end + 1);
    if (const std::string_view stack = Renamed(kStacks, name); !stack.empty() && info.shape.size() == 3) {
      return Unstacked(info, layer, stack);
    }
    if (const std::string to = BlockName(name); !to.empty()) parts[0].name = layer + to + suffix;
    if (architecture_.interleaved && (name == "attn_q" || name == "attn_k")) parts[0].interleaved_rows = head_dim_;
    return parts;
  }

 private:
  std::string BlockName(std::string_view name) const {
    if (name == "ffn_norm")
      return architecture_.branch_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    if (name == "post_attention_norm") return "post_attention_layernorm";
    return std::string(Renamed(kNames, name));
  }

  static std::vector<TensorInfo> Unstacked(const TensorInfo& info, const std::string& layer, std::string_view name) {
    std::vector<TensorInfo> parts;
    const int64_t experts = info.shape[0];
    for (int64_t e = 0; e < experts; ++e) {
      TensorInfo part = info;
      part.name = fmt::format("{}mlp.experts.{}.{}.weight", layer, e, name);
      part.shape.erase(part.shape.begin());
      part.bytes = info.bytes / experts;
      part.offset = info.offset + e * part.bytes;
      parts.push_back(std::move(part));
    }
    return parts;
  }

  const Architecture& architecture_;
  const int64_t head_dim_;
};

// Options that would change the arithmetic.
Status CheckSupported(const Json& metadata, const std::string& prefix, const Checkpoint& checkpoint,
                      const std::string& path) {
  TRY_ASSIGN(const std::string scaling, GetString(metadata, prefix + "rope.scaling.type", "none", path));
  if (scaling != "none" && scaling != "linear") {
    return Unsupported(path, prefix + "rope.scaling.type", "none or linear", scaling);
  }
  if (checkpoint.Find("rope_freqs.weight") != nullptr) {
    return Unsupported(path, "rope_freqs.weight", "no factors of rotary frequencies", "such a tensor");
  }
  TRY_ASSIGN(const int64_t key, GetInt(metadata, prefix + "attention.key_length", 0, path));
  TRY_ASSIGN(const int64_t value, GetInt(metadata, prefix + "attention.value_length", key, path));
  if (key != value) {
    return Unsupported(path, prefix + "attention.value_length", fmt::format("{}, as of keys", key),
                       fmt::format("{}", value));
  }
  for (const KeyPair& pair : kKeys) {
    const Json* found = Find(metadata, prefix + std::string(pair.from));
    if (found != nullptr && !found->is_number()) {
      return Unsupported(path, prefix + std::string(pair.from), "one number for all layers",
                         DumpJson(*found).substr(0, 80));
    }
  }
  return {};
}

// What the architectures leave to the program.
Status AddImplied(const Json& metadata, const std::string& prefix, const std::string& path, Json* config) {
  TRY_ASSIGN(const int64_t hidden, NeedInt(*config, "hidden_size", path));
  TRY_ASSIGN(const int64_t heads, NeedInt(*config, "num_attention_heads", path));
  TRY_ASSIGN(const int64_t layers, NeedInt(*config, "num_hidden_layers", path));
  if (heads <= 0) return Unsupported(path, prefix + "attention.head_count", "at least 1", fmt::format("{}", heads));
  TRY_ASSIGN(const int64_t head_dim, GetInt(*config, "head_dim", hidden / heads, path));
  (*config)["head_dim"] = head_dim;
  if ((*config)["model_type"] == "gemma3_text") {
    // The largest model, known by its depth, scales scores by the width a head would have without a key length.
    (*config)["query_pre_attn_scalar"] = layers == 62 ? hidden / heads : head_dim;
    const Json* local = Find(metadata, prefix + "rope.freq_base_swa");
    (*config)["rope_local_base_freq"] = local != nullptr ? *local : Json(10000.0);
  }
  if ((*config)["model_type"] == "qwen3_moe") (*config)["norm_topk_prob"] = true;
  TRY_ASSIGN(const std::string scaling, GetString(metadata, prefix + "rope.scaling.type", "none", path));
  if (scaling == "linear") {
    TRY_ASSIGN(const double factor, GetDouble(metadata, prefix + "rope.scaling.factor", 1, path));
    (*config)["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
  }
  return {};
}

Result<Json> ConfigOf(const Architecture& architecture, const Checkpoint& checkpoint, const std::string& path) {
  const Json& metadata = checkpoint.metadata();
  const std::string prefix = fmt::format("{}.", architecture.name);
  TRY(CheckSupported(metadata, prefix, checkpoint, path));
  Json config = {{"model_type", architecture.model_type}};
  for (const KeyPair& pair : kKeys) {
    if (const Json* value = Find(metadata, prefix + std::string(pair.from))) config[std::string(pair.to)] = *value;
  }
  const TensorInfo* embedding = checkpoint.Find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected token_embd.weight with two dimensions, found none; the file "
                                 "holds no language model",
                                 path));
  }
  config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = checkpoint.Find("output.weight") == nullptr;
  TRY(AddImplied(metadata, prefix, path, &config));
  return config;
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
    return Unsupported(path, "general.architecture", "one of " + known, name.empty() ? "none" : name);
  ModelFiles files;
  files.dir = path;
  TRY_ASSIGN(files.config, ConfigOf(*architecture, *checkpoint, path));
  files.generation_config = GenerationConfig(checkpoint->metadata());
  files.text_config = files.config;
  TRY_ASSIGN(files.rope, RopeParameters(files.text_config, path));
  TRY(AddStopTokens(files.generation_config, path, &files.stop_tokens));
  files.whole_norms = true;
  TRY_ASSIGN(const int64_t head_dim, NeedInt(files.config, "head_dim", path));
  const Names names(*architecture, head_dim);
  TRY(checkpoint->Remap([&](const TensorInfo& info) { return names.PartsOf(info); }));
  return files;
}

}  // namespace trivet::checkpoint
