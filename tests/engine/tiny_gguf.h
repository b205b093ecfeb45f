// SPDX-License-Identifier: Apache-2.0
// A GGUF file of a whole small model, tokenizer included, for tests that open or run one.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/checkpoint/gguf_bytes.h"
#include "tests/text/gguf_metadata.h"

namespace trivet::engine {

/// The metadata of a llama of one layer with the tokenizer of SentencePieceMetadata.
inline Json TinyMetadata() {
  Json metadata = text::SentencePieceMetadata();
  metadata.update({{"general.architecture", "llama"},
                   {"llama.embedding_length", 32},
                   {"llama.block_count", 1},
                   {"llama.attention.head_count", 2},
                   {"llama.attention.head_count_kv", 1},
                   {"llama.attention.layer_norm_rms_epsilon", 0.00001},
                   {"llama.feed_forward_length", 96},
                   {"llama.context_length", 64},
                   {"tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}"}});
  return metadata;
}

/// A tensor of F32, dims fastest first.
struct TinyTensor {
  std::string name;
  std::vector<uint64_t> dims;
};

/// The tensors of that model.
inline std::vector<TinyTensor> TinyTensors() {
  return {
      {"token_embd.weight", {32, 273}},       {"output_norm.weight", {32}},       {"blk.0.attn_norm.weight", {32}},
      {"blk.0.attn_q.weight", {32, 32}},      {"blk.0.attn_k.weight", {32, 16}},  {"blk.0.attn_v.weight", {32, 16}},
      {"blk.0.attn_output.weight", {32, 32}}, {"blk.0.ffn_norm.weight", {32}},    {"blk.0.ffn_gate.weight", {32, 96}},
      {"blk.0.ffn_up.weight", {32, 96}},      {"blk.0.ffn_down.weight", {96, 32}}};
}

/// The file's bytes; values are spread over -1 to 1. The element `infinite`, counted over all tensors, is infinite.
inline std::string TinyGguf(const Json& metadata, const std::vector<TinyTensor>& tensors, int64_t infinite = -1) {
  std::vector<std::string> entries;
  std::string data;
  uint32_t state = 1;
  for (const TinyTensor& tensor : tensors) {
    entries.push_back(checkpoint::Entry(tensor.name, tensor.dims, 0, data.size()));
    uint64_t elements = 1;
    for (const uint64_t extent : tensor.dims) elements *= extent;
    for (uint64_t i = 0; i < elements; ++i) {
      state = state * 1664525U + 1013904223U;
      uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
      if (static_cast<int64_t>(data.size() / 4) == infinite) bits = 0x7F800000;
      data += checkpoint::Number(bits, 4);
    }
  }
  return checkpoint::GgufBytes(checkpoint::PairsOf(metadata), entries, data);
}

}  // namespace trivet::engine
