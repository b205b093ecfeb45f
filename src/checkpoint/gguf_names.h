// SPDX-License-Identifier: Apache-2.0
// Tensors of a GGUF file under the names, shapes and orders that families ask for.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/tensor_info.h"

namespace trivet::checkpoint {

/// What the converter of an architecture does differently.
struct GgufNaming {
  bool branch_norms = false;  // ffn_norm stands before the channel mixer, post_attention_norm behind the mixer
  int64_t rotary_pairs = 0;   // not 0: rows of queries and keys stand in rotary pairs, so many pairs a head
  // Value heads of delta nets: the first of every key head, then the second of every key head, and so on.
  bool tiled_values = false;
  int64_t key_heads = 0, value_heads = 0;
  int64_t key_dim = 0, value_dim = 0;
};

/// What a tensor of the file is: itself under its name in a model directory; the experts of a stack one by one; nothing
/// for factors of rotary frequencies, which are part of the config. A tensor without a known name stays as it is.
std::vector<TensorInfo> GgufParts(const TensorInfo& info, const GgufNaming& naming);

}  // namespace trivet::checkpoint
