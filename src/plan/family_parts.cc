// SPDX-License-Identifier: Apache-2.0
#include "plan/family_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/str.h"
#include "plan/config_keys.h"
#include "plan/leaf.h"
#include "plan/rope.h"

namespace trivet::plan {
namespace {

constexpr int64_t kMaxExperts = int64_t{1} << 16;
constexpr int64_t kMaxExpertsOfAllLayers = int64_t{1} << 18;
constexpr int64_t kMaxTopK = 128;
constexpr int64_t kMaxConvWidth = 64;
constexpr double kMaxNormEps = 1;  // real ones are 1e-6 to 1e-5; more would drown any hidden state
constexpr int64_t kMaxWindow = int64_t{1} << 31;

// The word of every layer.
Result<std::vector<std::string>> LayerWords(const Json& text, const LayerRule& rule, size_t count) {
  std::vector<std::string> words(count);
  for (size_t i = 0; i < count; ++i) words[i] = rule.word(static_cast<int64_t>(i));
  if (!Present(text, "layer_types")) return words;
  const Json& types = *Find(text, "layer_types");
  if (!types.is_array() || types.size() != count) {
    return InvalidKey("layer_types", fmt::format("a list of num_hidden_layers {} words", count),
                      types.is_array() ? fmt::format("{}", types.size()) : "no list");
  }
  for (size_t i = 0; i < count; ++i) {
    if (!types[i].is_string()) return InvalidKey("layer_types", "words", Quote(DumpJson(types[i])));
    words[i] = types[i].get<std::string>();
    if (std::find(rule.words.begin(), rule.words.end(), words[i]) == rule.words.end()) {
      return UnsupportedKey("layer_types", fmt::format("{}", fmt::join(rule.words, " or ")), Quote(words[i]));
    }
  }
  return words;
}

// Rotary channels of a head: head_dim times partial_rotary_factor, cut to an integer.
Result<int64_t> RotaryDim(const Json& text, const Json& rope, int64_t head_dim) {
  const Json& holder = Present(rope, "partial_rotary_factor") ? rope : text;
  TRY_ASSIGN(const double factor, PositiveDouble(holder, "partial_rotary_factor", 1));
  if (factor > 1) return InvalidKey("partial_rotary_factor", "at most 1", fmt::format("{}", factor));
  const int64_t rotary = static_cast<int64_t>(static_cast<double>(head_dim) * factor);
  if (rotary < 2 || rotary % 2 != 0) {
    return InvalidKey("partial_rotary_factor", fmt::format("an even number of rotary channels of {}", head_dim),
                      fmt::format("{}", rotary));
  }
  return rotary;
}

// Appends the table of one rope object, whose base may stand beside it.
Status AddRope(const Json& text, Json rope, int64_t rotary_dim, Geometry* geometry) {
  if (!Present(rope, "rope_theta") && Present(text, "rope_theta")) rope["rope_theta"] = *Find(text, "rope_theta");
  AttentionGeometry& attention = geometry->attention;
  if (rotary_dim == 0) {
    TRY_ASSIGN(rotary_dim, RotaryDim(text, rope, attention.head_dim));
  }
  if (!geometry->ropes.empty() && attention.rotary_dim != rotary_dim) {
    return UnsupportedKey("partial_rotary_factor", "the same in all kinds of layers",
                          fmt::format("{} and {} channels", attention.rotary_dim, rotary_dim));
  }
  attention.rotary_dim = rotary_dim;
  TRY_ASSIGN(RopeRule rule, MakeRopeTable(rope, {rotary_dim, geometry->max_positions}));
  geometry->max_positions = rule.max_positions;
  geometry->ropes.push_back(std::move(rule.table));
  return {};
}

}  // namespace

Status CheckHeadLeaf(std::string_view key, int64_t head_dim) {
  if (head_dim % 2 != 0) return UnsupportedKey(key, "an even number", fmt::format("{}", head_dim));
  if (head_dim % HeadLeaf(head_dim) == 0) return {};
  return UnsupportedKey(key, fmt::format("at most {}, or halving evenly to that", kColumnLeaf),
                        fmt::format("{}", head_dim));
}

Result<Geometry> ReadCommon(const Json& text) {
  Geometry geometry;
  TRY_ASSIGN(geometry.hidden, NeedExtent(text, "hidden_size"));
  TRY_ASSIGN(geometry.vocab, NeedExtent(text, "vocab_size"));
  TRY_ASSIGN(geometry.max_positions, NeedExtent(text, "max_position_embeddings"));
  TRY_ASSIGN(geometry.norm_eps, PositiveDouble(text, "rms_norm_eps", 1e-6));
  if (geometry.norm_eps > kMaxNormEps) {
    return InvalidKey("rms_norm_eps", fmt::format("at most {}", kMaxNormEps), fmt::format("{}", geometry.norm_eps));
  }
  TRY_ASSIGN(geometry.tied_head, GetBool(text, "tie_word_embeddings", false, kConfig));
  TRY_ASSIGN(const int64_t layers, NeedExtent(text, "num_hidden_layers", kMaxLayers));
  geometry.layers.resize(static_cast<size_t>(layers));
  return geometry;
}

Status ReadLayers(const Json& text, const LayerRule& rule, Geometry* geometry) {
  TRY_ASSIGN(const std::vector<std::string> words, LayerWords(text, rule, geometry->layers.size()));
  for (size_t i = 0; i < words.size(); ++i) {
    LayerGeometry& layer = geometry->layers[i];
    layer.mixer = words[i] == "linear_attention" ? Mixer::kDeltaNet : Mixer::kAttention;
    if (words[i] == "sliding_attention") {
      TRY_ASSIGN(layer.window, NeedExtent(text, "sliding_window", kMaxWindow));
    }
    if (rule.sparse && rule.sparse(static_cast<int64_t>(i))) layer.channel_mixer = ChannelMixer::kMoe;
  }
  return {};
}

Status ReadRopes(const FamilyConfig& config, int64_t rotary_dim, Geometry* geometry) {
  const bool nested =
      std::any_of(config.rope.begin(), config.rope.end(), [](const Json& at) { return at.is_object(); });
  if (!nested) return AddRope(config.text, config.rope, rotary_dim, geometry);
  for (const auto& [word, sliding] : {std::pair{"full_attention", false}, std::pair{"sliding_attention", true}}) {
    const auto uses = [wanted = sliding](const LayerGeometry& at) {
      return HasKv(at.mixer) && (at.window > 0) == wanted;
    };
    if (std::none_of(geometry->layers.begin(), geometry->layers.end(), uses)) continue;
    const Json* rope = Find(config.rope, word);
    if (rope == nullptr || !rope->is_object()) return InvalidKey("rope_parameters", word, "none");
    for (LayerGeometry& layer : geometry->layers) {
      if (uses(layer)) layer.rope = static_cast<int64_t>(geometry->ropes.size());
    }
    TRY(AddRope(config.text, *rope, rotary_dim, geometry));
  }
  return {};
}

Status ReadAttention(const FamilyConfig& config, Geometry* geometry) {
  if (!geometry->Uses(Mixer::kAttention)) return {};
  const Json& text = config.text;
  AttentionGeometry& attention = geometry->attention;
  TRY_ASSIGN(attention.q_heads, NeedExtent(text, "num_attention_heads", kMaxHeads));
  TRY_ASSIGN(const int64_t kv, GetInt(text, "num_key_value_heads", attention.q_heads, kConfig));
  TRY_ASSIGN(attention.kv_heads, InRange("num_key_value_heads", kv, 1, kMaxHeads));
  if (attention.q_heads % attention.kv_heads != 0) {
    return InvalidKey("num_attention_heads", fmt::format("a multiple of num_key_value_heads {}", attention.kv_heads),
                      fmt::format("{}", attention.q_heads));
  }
  if (!Present(text, "head_dim") && geometry->hidden % attention.q_heads != 0) {
    return InvalidKey("head_dim", "a value, as hidden_size is not a multiple of num_attention_heads", "none");
  }
  TRY_ASSIGN(const int64_t dim, GetInt(text, "head_dim", geometry->hidden / attention.q_heads, kConfig));
  TRY_ASSIGN(attention.head_dim, InRange("head_dim", dim, 1, kMaxHeadDim));
  TRY(CheckHeadLeaf("head_dim", dim));
  TRY_ASSIGN(attention.qkv_bias, GetBool(text, "attention_bias", false, kConfig));
  attention.output_bias = attention.qkv_bias;
  return ReadRopes(config, 0, geometry);
}

Status ReadDeltaNet(const Json& text, Geometry* geometry) {
  if (!geometry->Uses(Mixer::kDeltaNet)) return {};
  DeltaNetGeometry& net = geometry->delta_net;
  TRY_ASSIGN(net.k_heads, NeedExtent(text, "linear_num_key_heads", kMaxHeads));
  TRY_ASSIGN(net.v_heads, NeedExtent(text, "linear_num_value_heads", kMaxHeads));
  TRY_ASSIGN(net.k_dim, NeedExtent(text, "linear_key_head_dim", kMaxHeadDim));
  TRY_ASSIGN(net.v_dim, NeedExtent(text, "linear_value_head_dim", kMaxHeadDim));
  TRY_ASSIGN(net.conv_width, NeedExtent(text, "linear_conv_kernel_dim", kMaxConvWidth));
  TRY_ASSIGN(const std::string gate, GetString(text, "output_gate_type", "swish", kConfig));
  if (gate != "swish" && gate != "silu") return UnsupportedKey("output_gate_type", "swish or silu", Quote(gate));
  if (net.v_heads % net.k_heads != 0) {
    return InvalidKey("linear_num_value_heads", fmt::format("a multiple of linear_num_key_heads {}", net.k_heads),
                      fmt::format("{}", net.v_heads));
  }
  return CheckHeadLeaf("linear_value_head_dim", net.v_dim);
}

Status ReadMlp(const Json& text, std::string_view act_key, Geometry* geometry) {
  TRY_ASSIGN(const std::string act, GetString(text, act_key, "silu", kConfig));
  const bool gelu = act == "gelu_pytorch_tanh" || act == "gelu_new";
  if (!gelu && act != "silu" && act != "swish") {
    return UnsupportedKey(act_key, "silu or gelu_pytorch_tanh", Quote(act));
  }
  geometry->mlp.activation = gelu ? Activation::kGeluTanh : Activation::kSilu;
  if (!geometry->Uses(ChannelMixer::kMlp)) return {};
  TRY_ASSIGN(geometry->mlp.bias, GetBool(text, "mlp_bias", false, kConfig));
  TRY_ASSIGN(geometry->mlp_width, NeedExtent(text, "intermediate_size"));
  return {};
}

Status ReadExperts(const Json& text, const MoeKeys& keys, Geometry* geometry) {
  if (!geometry->Uses(ChannelMixer::kMoe)) return {};
  MoeGeometry& moe = geometry->moe;
  const std::string_view experts_key = EitherKey(text, keys.experts, keys.experts_alias);
  TRY_ASSIGN(moe.experts, NeedExtent(text, experts_key, kMaxExperts));
  const size_t layers = geometry->layers.size();
  if (moe.experts * static_cast<int64_t>(layers) > kMaxExpertsOfAllLayers) {
    return InvalidKey(experts_key, fmt::format("at most {} experts in all layers", kMaxExpertsOfAllLayers),
                      fmt::format("{} in each of {} layers", moe.experts, layers));
  }
  const std::string_view top_k_key = EitherKey(text, keys.top_k, keys.top_k_alias);
  TRY_ASSIGN(moe.top_k, NeedExtent(text, top_k_key, std::min(moe.experts, kMaxTopK)));
  TRY_ASSIGN(moe.width, NeedExtent(text, keys.width));
  return {};
}

}  // namespace trivet::plan
