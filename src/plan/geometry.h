// SPDX-License-Identifier: Apache-2.0
// Geometry: the logical facts of a model, as its config states them. It knows no rank and no padding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trivet::plan {

/// How a layer mixes tokens.
enum class Mixer { kAttention, kDeltaNet };
/// How a layer mixes channels.
enum class ChannelMixer { kMlp, kMoe };

/// Grouped-query attention. Query head h uses KV head h / (q_heads / kv_heads).
struct AttentionGeometry {
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // the first channels of a head that rotate, half-split
  double rope_theta = 0;
  bool output_gate = false;  // q_proj holds per head [query, gate]; the output is multiplied by sigmoid(gate)
  bool qk_norm = false;      // RMS norm over head_dim of every query and key head before rotation
};

/// Gated delta net. Value head h uses key head h / (v_heads / k_heads).
struct DeltaNetGeometry {
  int64_t k_heads = 0;
  int64_t v_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t conv_width = 0;  // taps of the causal depthwise convolution
};

/// Routed experts, and a shared expert scaled by a sigmoid gate when shared_width > 0.
struct MoeGeometry {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t width = 0;         // channels of one expert
  int64_t shared_width = 0;  // channels of the shared expert; 0 when there is none
};

/// What one layer is made of.
struct LayerGeometry {
  Mixer mixer = Mixer::kAttention;
  ChannelMixer channel_mixer = ChannelMixer::kMlp;
};

/// A model. Part structs whose counts are zero are not used by any layer.
struct Geometry {
  std::string family;         // the row of the family table
  int64_t hidden = 0;         // H
  int64_t vocab = 0;          // V, rows of the head in the checkpoint
  int64_t max_positions = 0;  // longest context, tokens
  double norm_eps = 0;
  double norm_offset = 0;  // norms multiply by (norm_offset + weight)
  bool tied_head = false;  // lm_head is embed_tokens
  std::vector<LayerGeometry> layers;
  AttentionGeometry attention;
  DeltaNetGeometry delta_net;
  MoeGeometry moe;
  int64_t mlp_width = 0;

  /// Whether any layer uses the part.
  bool Uses(Mixer mixer) const;
  bool Uses(ChannelMixer channel_mixer) const;
};

}  // namespace trivet::plan
