// SPDX-License-Identifier: Apache-2.0
// Writes a made-up model for benchmarks: make_synthetic_model DIR NAME. Weights are random; only sizes matter.
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tests/support/synthetic_model.h"

namespace {

struct Named {
  const char* name;
  trivet::support::SyntheticModel model;
};

// A model of the demo's family with 300 MB of bf16 weights: large enough that no cache holds what a step reads.
trivet::support::SyntheticModel Moe300m() {
  trivet::support::SyntheticModel model;
  model.hidden = 1024;
  model.layers = 8;
  model.vocab = 16384;
  model.max_positions = 4096;
  model.tied_head = true;
  model.q_heads = 16;
  model.kv_heads = 4;
  model.head_dim = 128;
  model.k_heads = 8;
  model.v_heads = 16;
  model.k_dim = 128;
  model.v_dim = 128;
  model.experts = 8;
  model.top_k = 4;
  model.expert_width = 384;
  model.shared_width = 768;
  model.files = 2;
  return model;
}

// A dense model with attention in every layer, 65 million weights each.
trivet::support::SyntheticModel Dense(int64_t layers, trivet::tensor::DType dtype) {
  trivet::support::SyntheticModel model;
  model.hidden = 2048;
  model.layers = layers;
  model.attention_interval = 1;
  model.vocab = 32768;
  model.max_positions = 4096;
  model.tied_head = true;
  model.q_heads = 16;
  model.kv_heads = 4;
  model.head_dim = 128;
  model.experts = 0;
  model.mlp_width = 8192;
  model.dtype = dtype;
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  const Named kModels[] = {{"moe300m", Moe300m()},
                           {"dense2g", Dense(14, trivet::tensor::DType::kBF16)},
                           {"dense2g-mxfp4", Dense(52, trivet::tensor::DType::kMxfp4)}};
  for (const Named& named : kModels) {
    if (argc != 3 || std::strcmp(argv[2], named.name) != 0) continue;
    std::error_code ignored;
    std::filesystem::create_directories(argv[1], ignored);
    const trivet::Status status = trivet::support::WriteSyntheticModel(named.model, argv[1]);
    if (status.ok()) return 0;
    std::fprintf(stderr, "make_synthetic_model: %s\n", status.error().message.c_str());
    return 1;
  }
  std::fprintf(stderr, "usage: make_synthetic_model DIR NAME, which is one of:");
  for (const Named& named : kModels) std::fprintf(stderr, " %s", named.name);
  std::fprintf(stderr, "\n");
  return 2;
}
