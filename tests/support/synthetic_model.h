// SPDX-License-Identifier: Apache-2.0
// Made-up models of the Qwen3.5 families on disk, of any geometry: for tests of odd extents and for benchmarks of sizes
// that no test model has.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace trivet::support {

/// Extents and storage of a made-up model. The defaults are a model of a few hundred kilobytes.
struct SyntheticModel {
  int64_t hidden = 64;
  int64_t layers = 4;
  int64_t attention_interval = 4;  // every so many layers one has attention, the others a delta net
  int64_t vocab = 300;
  int64_t max_positions = 512;
  bool tied_head = false;

  int64_t q_heads = 4, kv_heads = 2, head_dim = 32;
  int64_t k_heads = 2, v_heads = 4, k_dim = 32, v_dim = 32, conv_width = 4;  // delta net

  int64_t experts = 8;  // 0: a dense model with mlp_width
  int64_t top_k = 2, expert_width = 48, shared_width = 48;
  bool fused_experts = true;  // one tensor for all experts of a layer, or one for each
  int64_t mlp_width = 96;

  tensor::DType dtype = tensor::DType::kBF16;  // BF16, F16 or F32; MXFP4 is for projections, and BF16 for the rest
  bool some_f32 = false;                       // every third tensor in F32, whatever `dtype` says
  int files = 1;                               // safetensors files; more than one come with an index
  uint64_t seed = 1;
};

/// The model's config.json.
Json SyntheticConfig(const SyntheticModel& model);

/// Writes config.json and weights to `dir`, which must exist: random values of a size that keeps activations near one.
/// Errors:  kIo; those of reading a geometry for extents that make no model.
Status WriteSyntheticModel(const SyntheticModel& model, const std::string& dir);

}  // namespace trivet::support
