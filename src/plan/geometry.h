// SPDX-License-Identifier: Apache-2.0
// Geometry: the logical facts of a model, as its config states them. It knows no rank and no padding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trivet::plan {

/// How a layer mixes tokens.
enum class Mixer { kAttention, kLatentAttention, kDeltaNet };
/// How a layer mixes channels.
enum class ChannelMixer { kMlp, kMoe };

/// Whether a mixer keeps keys and values in pages.
constexpr bool HasKv(Mixer mixer) { return mixer != Mixer::kDeltaNet; }

/// One way to rotate: the angle at a position is position * frequency, and cosine and sine are multiplied by `scale`.
struct RopeTable {
  std::vector<float> frequencies;  // [rotary_dim / 2]
  float scale = 1;
};

/// Grouped-query attention. Query head h uses KV head h / (q_heads / kv_heads).
struct AttentionGeometry {
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;    // the first channels of a head that rotate, half-split
  bool output_gate = false;  // q_proj holds per head [query, gate]; the output is multiplied by sigmoid(gate)
  bool qk_norm = false;      // RMS norm over head_dim of every query and key head before rotation
  bool qkv_bias = false;
  bool output_bias = false;
  bool sinks = false;        // a learned logit per query head that takes part in the softmax and has no value
  double scale = 0;          // of scores; 0 means head_dim^-0.5
  double softcap = 0;        // bound of scores; 0: none
};

/// Attention over one latent per token: keys are [latent | rotated channels] for all heads alike, values the latent.
/// Head h's query [nope | rotated] meets keys through its own key projection, its output leaves through its own value
/// projection. Heads, scale and biases are AttentionGeometry's; output_bias then covers the down projections, too.
struct LatentGeometry {
  int64_t query_rank = 0;   // width of the compressed query; 0: queries come from the hidden state
  int64_t rank = 0;         // width of the latent
  int64_t nope_dim = 0;     // channels of a query that meet the latent
  int64_t rope_dim = 0;     // channels of a query that rotate
  int64_t value_dim = 0;    // channels of a head's output
  bool interleaved = true;  // rotated channels are stored as pairs (2i, 2i + 1)
};

/// Gated delta net. Value head h uses key head h / (v_heads / k_heads).
struct DeltaNetGeometry {
  int64_t k_heads = 0;
  int64_t v_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t conv_width = 0;  // taps of the causal depthwise convolution
};

/// How a gated MLP combines gate and up.
enum class Activation { kSilu, kGeluTanh, kClampedSwiglu };

/// Gated MLPs of all kinds.
struct MlpGeometry {
  Activation activation = Activation::kSilu;
  double limit = 0, alpha = 0;  // of the clamped form
  bool bias = false;            // on gate, up and down of dense MLPs
};

/// How a router's logits become weights of the chosen experts.
enum class RouterKind {
  kSoftmaxChosen,  // softmax over the chosen logits, which is softmax over all, renormalised
  kSoftmaxAll,     // softmax over all logits
  kSigmoid,        // sigmoid, chosen with a correction
};

/// The choice of experts.
struct RouterGeometry {
  RouterKind kind = RouterKind::kSoftmaxChosen;
  bool bias = false;            // added to logits
  bool correction = false;      // added to sigmoids for the choice alone
  int64_t groups = 1;           // experts are in groups of which the best
  int64_t groups_kept = 1;      // few are eligible
  bool renormalise = true;      // sigmoids of the chosen are divided by their sum
  double scaling = 1;           // multiplies the weights
};

/// Routed experts, and a shared expert when shared_width > 0.
struct MoeGeometry {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t width = 0;         // channels of one expert
  int64_t shared_width = 0;  // channels of the shared expert; 0 when there is none
  bool shared_gate = true;   // the shared expert is scaled by a sigmoid gate
  bool bias = false;         // on gate, up and down of routed experts
  RouterGeometry router = {};
};

/// What one layer is made of.
struct LayerGeometry {
  Mixer mixer = Mixer::kAttention;
  ChannelMixer channel_mixer = ChannelMixer::kMlp;
  int64_t window = 0;  // keys that a token sees, itself included; 0: all
  int64_t rope = 0;    // index into Geometry::ropes
};

/// A model. Part structs whose counts are zero are not used by any layer.
struct Geometry {
  std::string family;         // the row of the family table
  int64_t hidden = 0;         // H
  int64_t vocab = 0;          // V, rows of the head in the checkpoint
  int64_t max_positions = 0;  // longest context, tokens
  double norm_eps = 0;
  double norm_offset = 0;     // norms multiply by (norm_offset + weight)
  bool branch_norms = false;  // a branch's output is normalised before it joins the residual stream
  bool tied_head = false;     // lm_head is embed_tokens
  double embed_scale = 1;     // multiplies embeddings
  double logit_softcap = 0;   // bound of logits; 0: none
  std::vector<RopeTable> ropes;
  std::vector<LayerGeometry> layers;
  AttentionGeometry attention;
  LatentGeometry latent;
  DeltaNetGeometry delta_net;
  MlpGeometry mlp;
  MoeGeometry moe;
  int64_t mlp_width = 0;  // channels of dense MLPs

  /// Whether any layer uses the part.
  bool Uses(Mixer mixer) const;
  bool Uses(ChannelMixer channel_mixer) const;
  /// Whether any layer keeps keys and values.
  bool UsesKv() const { return Uses(Mixer::kAttention) || Uses(Mixer::kLatentAttention); }
  /// Channels of one cached key and of one cached value.
  int64_t key_dim() const;
  int64_t value_dim() const;
  /// Channels of one head's output, the input side of the output projection.
  int64_t head_out_dim() const;
};

}  // namespace trivet::plan
