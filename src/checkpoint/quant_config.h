// SPDX-License-Identifier: Apache-2.0
// What a config says about quantised weights. It is only asked what the tensors cannot tell: which method, which block
// size, which modules were left alone. What a tensor is, its dtype and its companions decide (stored_weight.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config_file.h"

namespace trivet::checkpoint {

/// The quantisation of a checkpoint. Weight-only: activations are never quantised.
struct QuantConfig {
  std::string method;               // such as "fp8"; empty when the config names none
  int64_t block_rows = 128;         // of an FP8 weight's scale grid
  int64_t block_cols = 128;         // likewise
  std::vector<std::string> ignore;  // names, globs and "re:" patterns of modules that are not quantised

  /// Whether the config says that `module` is not quantised.
  ///   module   "model.layers.0.mlp.gate_proj", without ".weight"
  bool Ignores(std::string_view module) const;
};

/// Reads quantization_config or compression_config of a model.
/// Errors:  kUnsupported names the method, format or element type that is not supported; kInvalid the ill-typed key.
Result<QuantConfig> ReadQuantConfig(const ModelFiles& files);

}  // namespace trivet::checkpoint
