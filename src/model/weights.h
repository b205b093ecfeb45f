// SPDX-License-Identifier: Apache-2.0
// The weights of one rank, bound to the places where the forward pass uses them.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "device/buffer.h"
#include "kernels/weight_format.h"
#include "plan/geometry.h"
#include "plan/layout.h"
#include "plan/shard_map.h"

namespace trivet::model {

/// A run of rows of a packed tensor that share one format. Every part has tiles of its own.
struct LoadedPart {
  kernels::WeightFormat format = kernels::WeightFormat::kBF16;
  int64_t row = 0, rows = 0;
  int64_t phase = 0;   // as in kernels::PackedMatrix
  int64_t offset = 0;  // of its tiles in the buffer: a multiple of 64
};

/// One loaded tensor: packed parts when its role is a matrix or the embedding, else float32 [rows, cols].
struct LoadedTensor {
  plan::Role role = plan::Role::kMatrix;
  int64_t rows = 0, cols = 0, leaf = 0;
  std::vector<LoadedPart> parts;
  device::Buffer buffer;

  /// A part as a matrix.
  kernels::PackedMatrix Packed(const LoadedPart& part) const {
    return {part.format, part.rows, cols, leaf, buffer.data() + part.offset, part.phase};
  }
};

/// Everything a rank loaded, by local name (plan/shard_map.h).
using LoadedTensors = std::unordered_map<std::string, LoadedTensor>;

/// A matrix that may be absent on this rank (n == 0), as packed parts one below the other.
struct Matrix {
  /// Rows [row, row + packed.n).
  struct Part {
    kernels::PackedMatrix packed;
    int64_t row = 0;
  };
  int64_t n = 0, k = 0;
  std::vector<Part> parts;
};

/// Weights of an attention layer.
struct AttentionWeights {
  Matrix qkv;                     // [q_heads * (2) D + 2 kv_heads * D, H]
  Matrix o;                       // [H, q_heads * D]
  const float* q_norm = nullptr;  // [D], or null
  const float* k_norm = nullptr;
  const float* qkv_bias = nullptr;  // [the rows of qkv], or null
  const float* sinks = nullptr;     // [q_heads], or null
  Matrix o_bias;                    // [H, 1], on one rank, or absent
};

/// Weights of a latent attention layer.
struct LatentWeights {
  Matrix down;                         // [query_rank + rank + rope_dim, H]
  const float* down_bias = nullptr;    // [the rows of down], or null
  const float* query_norm = nullptr;   // [query_rank], or null
  const float* latent_norm = nullptr;  // [rank]
  Matrix q;                            // [q_heads * (nope_dim + rope_dim), query_rank or H]
  Matrix key_up;                       // per head [rank, nope_dim] in whole tiles
  Matrix value_up;                     // per head [value_dim, rank] in whole tiles
  Matrix o;                            // [H, q_heads * value_dim]
  Matrix o_bias;                       // [H, 1], on one rank, or absent
};

/// Weights of a delta-net layer.
struct DeltaNetWeights {
  Matrix in;                       // [queries, keys, values, z, b, a; H]
  Matrix out;                      // [H, v_heads * dv]
  const float* taps = nullptr;     // [W, channels]
  const float* a_log = nullptr;    // [v_heads]
  const float* dt_bias = nullptr;  // [v_heads]
  const float* norm = nullptr;     // [dv]
};

/// A gated MLP: also the shared expert.
struct MlpWeights {
  Matrix gate_up;                       // [2F, H]
  Matrix down;                          // [H, F]
  const float* gate_up_bias = nullptr;  // [2F], or null
  Matrix down_bias;                     // [H, 1], on one rank, or absent
};

/// One matrix of every expert slot: those that hold the same rows of the experts' matrices. Formats may differ.
struct ExpertMatrices {
  int64_t row = 0, n = 0, k = 0;                  // rows [row, row + n) of the experts' matrices [.., K]
  std::vector<kernels::PackedMatrix> w;           // [S]; n == 0: the slot has no such rows
  const kernels::PackedMatrix* device = nullptr;  // the same, where kernels read it
};

/// The routed experts that a rank holds. Matrices come in as many tables as it takes for each slot to be once in each.
struct ExpertWeights {
  int64_t slots = 0;                      // S
  int64_t width = 0;                      // F, channels that this rank holds of each
  std::vector<ExpertMatrices> gate_up;    // [2F, H]
  std::vector<ExpertMatrices> down;       // [H, F]
  std::vector<ExpertMatrices> down_bias;  // [H, 1], on one rank, or absent
  const float* gate_up_bias = nullptr;    // [S, 2F], or null
};

/// Weights of a mixture of experts.
struct MoeWeights {
  Matrix router;                       // [E (+ 1 shared gate), H]
  const float* router_bias = nullptr;  // [E], or null
  const float* correction = nullptr;   // [E], or null
  ExpertWeights experts;
  MlpWeights shared;
};

/// Weights of one block; parts that its kind of layer does not have are empty.
struct LayerWeights {
  int64_t index = 0;                    // number among the stage's layers with the same mixer: its place in the caches
  const float* input_norm = nullptr;    // [H]
  const float* post_norm = nullptr;     // [H]
  const float* mixer_norm = nullptr;    // [H] of the mixer's output, or null
  const float* channel_norm = nullptr;  // [H] of the channel mixer's output, or null
  AttentionWeights attention;
  LatentWeights latent;
  DeltaNetWeights delta_net;
  MlpWeights mlp;
  MoeWeights moe;
};

/// All weights of one rank. Views point into `tensors`, which it owns.
struct Weights {
  LoadedTensors tensors;
  Matrix embed;  // [V_local, H], of the first stage
  Matrix head;   // of the last stage; the same as embed when the head is tied
  const float* final_norm = nullptr;
  std::vector<LayerWeights> layers;    // of the rank's stage
  std::vector<device::Buffer> tables;  // what binding adds: arrays of matrices, and biases side by side

  /// Binds every tensor of the rank's shard map, all of them on `device`.  A tensor that is missing here is a bug:
  /// loading has reported it.
  /// Errors:  kCapacity.
  static Result<Weights> Bind(const device::Device& device, const plan::Geometry& geometry,
                              const plan::RankShard& shard, LoadedTensors tensors);

  /// Bytes resident.
  int64_t bytes() const;
};

}  // namespace trivet::model
