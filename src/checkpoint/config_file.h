// SPDX-License-Identifier: Apache-2.0
// config.json and generation_config.json in one form, whatever release of transformers wrote them. What a family makes
// of the keys is the plan's business; nothing here knows a model by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace trivet::checkpoint {

/// The configuration files of a model directory.
struct ModelFiles {
  std::string dir;
  Json config;                       // config.json as it is
  Json generation_config;            // generation_config.json as it is, an empty object when there is none
  Json text_config;                  // the text model's part of config.json; see TextConfig
  Json rope;                         // in the new form; see RopeParameters
  std::string dtype;                 // such as "bfloat16"; empty when the config does not say
  std::vector<int64_t> stop_tokens;  // eos_token_id of both files, sorted, each once
  bool whole_norms = false;          // norm weights hold the constant that the family would add to them
};

/// Reads config.json and, if present, generation_config.json.
///   path     the model's directory
/// Errors:  kNotFound says what a model is; kInvalid names the file and the key.
Result<ModelFiles> OpenModelDir(const std::string& path);

/// The text model's config: `text_config` if the config wraps one, with the few keys that may stand at either level
/// (quantization, tied embeddings, special tokens, dtype) taken from outside where it has none; else the config itself.
///   what     the file's name for messages
/// Errors:  kInvalid.
Result<Json> TextConfig(const Json& config, std::string_view what);

/// Rope parameters as one object {rope_type, rope_theta, partial_rotary_factor, factor, ...}, or one such object per
/// kind of layer where the config has that. Keys that the config does not state are absent, save rope_type. Second
/// bases under keys of their own (rope_local_base_freq, compress_rope_theta) stay in the text config.
///   what     the file's name for messages
/// Errors:  kInvalid.
Result<Json> RopeParameters(const Json& text_config, std::string_view what);

/// Appends `eos_token_id`, a number or a list, of a config to `stop_tokens` and makes that sorted and unique.
///   what     the file's name for messages
/// Errors:  kInvalid for what is no token id.
Status AddStopTokens(const Json& config, std::string_view what, std::vector<int64_t>* stop_tokens);

}  // namespace trivet::checkpoint
