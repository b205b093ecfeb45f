// SPDX-License-Identifier: Apache-2.0
// Scaling of rotary frequencies as the metadata and tensors of a GGUF file have it.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace trivet::checkpoint {

/// What an architecture says about its scaling besides the metadata.
struct GgufRope {
  std::string prefix;             // of its keys: "llama."
  bool latent = false;            // one latent per token: scores are stretched with the context, too
  Json implied = Json::object();  // keys of the rule that the program knows
};

/// The rule as a config's rope_scaling has it; null when there is none. Factors in a tensor, which files have in place
/// of the rule that gave them, become a rule that names them.
///   path     the file's, for messages
/// Errors:  kUnsupported names the rule, the key or the tensor that is not supported; kInvalid an ill-typed value.
Result<Json> GgufScaling(const Checkpoint& checkpoint, const GgufRope& rope, const std::string& path);

}  // namespace trivet::checkpoint
