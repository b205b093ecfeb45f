// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/str.h"

namespace trivet::checkpoint {
namespace {

constexpr std::string_view kSharedKeys[] = {"quantization_config", "compression_config", "tie_word_embeddings",
                                            "bos_token_id",        "eos_token_id",       "pad_token_id"};

Error Refuse(std::string_view what, std::string_view key, std::string_view expected, const Json& found) {
  return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected {}, found {}; correct the file", what, key,
                                               expected, Quote(DumpJson(found), 80)));
}

// Member `key`, a JSON null counting as absent.
const Json* Stated(const Json& object, std::string_view key) {
  const Json* value = Find(object, key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// Sets `key` in `to` from `from` where `to` does not state it.
void Inherit(const Json& from, std::string_view key, Json* to) {
  const Json* value = Stated(from, key);
  if (value != nullptr && Stated(*to, key) == nullptr) (*to)[std::string(key)] = *value;
}

Result<Json> ReadObject(const std::string& path) {
  TRY_ASSIGN(Json value, ReadJsonFile(path));
  if (!value.is_object()) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected a JSON object, found {}; correct the file", path, value.type_name()));
  }
  return value;
}

// Gives one flat rope object its rope_type and the keys that older files keep beside it.
Status NormalizeRope(const Json& text_config, std::string_view what, Json* rope) {
  Inherit(text_config, "rope_theta", rope);
  Inherit(text_config, "partial_rotary_factor", rope);
  const Json* type = Stated(*rope, "rope_type");
  if (type == nullptr) type = Stated(*rope, "type");
  if (type != nullptr && !type->is_string()) return Refuse(what, "rope_type", "a string", *type);
  std::string name = type == nullptr ? "default" : type->get<std::string>();
  // For text alone the three position axes are equal, which is the default rotation.
  if (name == "mrope") name = "default";
  rope->erase("type");
  (*rope)["rope_type"] = std::move(name);
  return {};
}

}  // namespace

Result<Json> TextConfig(const Json& config, std::string_view what) {
  const Json* wrapped = Stated(config, "text_config");
  if (wrapped == nullptr) return config;
  if (!wrapped->is_object()) return Refuse(what, "text_config", "an object", *wrapped);
  Json text = *wrapped;
  for (const std::string_view key : kSharedKeys) Inherit(config, key, &text);
  if (Stated(text, "dtype") == nullptr && Stated(text, "torch_dtype") == nullptr) {
    Inherit(config, "dtype", &text);
    Inherit(config, "torch_dtype", &text);
  }
  return text;
}

Result<Json> RopeParameters(const Json& text_config, std::string_view what) {
  const char* key = Stated(text_config, "rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* stated = Stated(text_config, key);
  if (stated != nullptr && !stated->is_object()) return Refuse(what, key, "an object", *stated);
  Json rope = stated == nullptr ? Json::object() : *stated;
  bool per_layer = false;
  for (Json& member : rope) {
    if (!member.is_object()) continue;
    per_layer = true;
    TRY(NormalizeRope(text_config, what, &member));
  }
  if (!per_layer) TRY(NormalizeRope(text_config, what, &rope));
  return rope;
}

Status AddStopTokens(const Json& config, std::string_view what, std::vector<int64_t>* stop_tokens) {
  const Json* stated = Stated(config, "eos_token_id");
  if (stated == nullptr) return {};
  const Json list = stated->is_array() ? *stated : Json::array({*stated});
  for (const Json& token : list) {
    if (!token.is_number_integer() || token < 0 || token > INT32_MAX) {
      return Refuse(what, "eos_token_id", "a token id or a list of them", *stated);
    }
    stop_tokens->push_back(token.get<int64_t>());
  }
  std::sort(stop_tokens->begin(), stop_tokens->end());
  stop_tokens->erase(std::unique(stop_tokens->begin(), stop_tokens->end()), stop_tokens->end());
  return {};
}

Result<ModelFiles> OpenModelDir(const std::string& path) {
  const std::string config_path = std::filesystem::path(path) / "config.json";
  const std::string generation_path = std::filesystem::path(path) / "generation_config.json";
  ModelFiles files;
  files.dir = path;
  std::error_code error;
  if (!std::filesystem::exists(config_path, error)) {
    std::error_code ignored;
    const bool refused = error && error != std::errc::not_a_directory;
    const bool file = std::filesystem::is_regular_file(path, ignored);
    return MakeError(refused ? Code::kIo : Code::kNotFound,
                     fmt::format("{}: expected a MODEL, which is a directory with config.json, tokenizer.json and "
                                 "safetensors weights, or a GGUF file, found {}; check the path",
                                 path,
                                 refused ? fmt::format("a directory that cannot be read ({})", error.message())
                                 : file  ? "a file of another kind"
                                         : "no config.json in it"));
  }
  TRY_ASSIGN(files.config, ReadObject(config_path));
  files.generation_config = Json::object();
  if (std::filesystem::exists(generation_path, error)) {
    TRY_ASSIGN(files.generation_config, ReadObject(generation_path));
  }
  TRY_ASSIGN(files.text_config, TextConfig(files.config, config_path));
  TRY_ASSIGN(files.rope, RopeParameters(files.text_config, config_path));
  const char* dtype_key = Stated(files.text_config, "dtype") != nullptr ? "dtype" : "torch_dtype";
  TRY_ASSIGN(files.dtype, GetString(files.text_config, dtype_key, "", config_path));
  TRY(AddStopTokens(files.text_config, config_path, &files.stop_tokens));
  TRY(AddStopTokens(files.generation_config, generation_path, &files.stop_tokens));
  return files;
}

}  // namespace trivet::checkpoint
