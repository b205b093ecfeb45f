// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quant_config.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "base/str.h"

namespace trivet::checkpoint {
namespace {

constexpr std::string_view kConfig = "config.json";
constexpr std::array<std::string_view, 3> kPrefixes = {"model.language_model.", "language_model.", "model."};

Error Unsupported(std::string_view key, std::string_view expected, std::string_view found) {
  return MakeError(Code::kUnsupported,
                   fmt::format("{}: {}: expected {}, found {}; use a checkpoint that is quantised so, "
                               "or one that is not quantised",
                               kConfig, key, expected, Quote(found)));
}

// A name without the prefixes that lists may leave out.
std::string_view Bare(std::string_view name) {
  for (const std::string_view prefix : kPrefixes) {
    if (name.substr(0, prefix.size()) == prefix) return Bare(name.substr(prefix.size()));
  }
  return name;
}

// Whether `text` matches a pattern in which `*` stands for any run of characters. Greedy with one point of return.
bool GlobMatches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// A regular expression as a glob: ".*" is "*", "\." is ".", and what else has a meaning gives a glob that matches more.
std::string GlobOf(std::string_view regex) {
  std::string glob;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size() && regex[i + 1] == '.') {
      glob += regex[++i];
    } else if (c == '^' || c == '$') {
      continue;
    } else if (std::string_view(".*+?[](){}|\\").find(c) != std::string_view::npos) {
      glob += '*';
      // A group or class is one unknown: skip to its end.
      const char close = c == '[' ? ']' : c == '(' ? ')' : c == '{' ? '}' : '\0';
      while (close != '\0' && i + 1 < regex.size() && regex[i] != close) ++i;
    } else {
      glob += c;
    }
  }
  // Matching starts at the name's begin and may end anywhere.
  if (regex.empty() || regex.back() != '$') glob += '*';
  return glob;
}

Status AddIgnored(const Json& object, std::string_view key, QuantConfig* config) {
  const Json* list = Find(object, key);
  if (list == nullptr || list->is_null()) return {};
  if (!list->is_array()) return Unsupported(key, "a list of module names", DumpJson(*list));
  for (const Json& item : *list) {
    if (!item.is_string()) return Unsupported(key, "a list of module names", DumpJson(item));
    config->ignore.push_back(item.get<std::string>());
  }
  return {};
}

// Two positive extents of a scale block.
Status ReadBlockSize(const Json& object, std::string_view key, QuantConfig* config) {
  const Json* size = Find(object, key);
  if (size == nullptr || size->is_null()) return {};
  bool sound = size->is_array() && size->size() == 2;
  for (size_t i = 0; sound && i < 2; ++i) {
    sound = (*size)[i].is_number_unsigned() && (*size)[i].get<uint64_t>() > 0 && (*size)[i].get<uint64_t>() <= 65536;
  }
  if (!sound || (*size)[1].get<int64_t>() % 128 != 0) {
    return Unsupported(key, "two extents, the second a multiple of 128", DumpJson(*size));
  }
  config->block_rows = (*size)[0].get<int64_t>();
  config->block_cols = (*size)[1].get<int64_t>();
  return {};
}

Status ReadFp8(const Json& object, QuantConfig* config) {
  TRY_ASSIGN(const std::string format, GetString(object, "fmt", "e4m3", kConfig));
  if (format != "e4m3" && format != "float8_e4m3fn") return Unsupported("quantization_config.fmt", "e4m3", format);
  TRY(ReadBlockSize(object, "weight_block_size", config));
  return AddIgnored(object, "modules_to_not_convert", config);
}

// The weights of one group of compressed-tensors: FP8 with scales per tensor, channel or block, or MXFP4.
Status ReadGroup(const Json& group, QuantConfig* config) {
  const Json* weights = Find(group, "weights");
  if (weights == nullptr || !weights->is_object()) {
    return Unsupported("config_groups", "a description of weights in every group", DumpJson(group));
  }
  TRY_ASSIGN(const std::string type, GetString(*weights, "type", "int", kConfig));
  TRY_ASSIGN(const int64_t bits, GetInt(*weights, "num_bits", 8, kConfig));
  TRY_ASSIGN(const std::string strategy, GetString(*weights, "strategy", "tensor", kConfig));
  const std::string found = fmt::format("{} {} bits per {}", type, bits, strategy);
  const bool fp8 = bits == 8 && (strategy == "tensor" || strategy == "channel" || strategy == "block");
  const bool fp4 = bits == 4 && strategy == "group";
  if (type != "float" || (!fp8 && !fp4)) {
    return Unsupported("config_groups.weights", "float 8 bits per tensor, channel or block, or float 4 bits per group",
                       found);
  }
  if (fp4) {
    TRY_ASSIGN(const int64_t size, GetInt(*weights, "group_size", 32, kConfig));
    if (size != 32) return Unsupported("config_groups.weights.group_size", "32", fmt::format("{}", size));
  }
  return ReadBlockSize(*weights, "block_structure", config);
}

Status ReadCompressedTensors(const Json& object, QuantConfig* config) {
  TRY_ASSIGN(const std::string format, GetString(object, "format", "", kConfig));
  if (format != "float-quantized" && format != "mxfp4-pack-quantized" && format != "mixed-precision") {
    return Unsupported("quantization_config.format", "float-quantized or mxfp4-pack-quantized", format);
  }
  const Json* sparsity = Find(object, "sparsity_config");
  if (sparsity != nullptr && sparsity->is_object() && !sparsity->empty()) {
    TRY_ASSIGN(const std::string sparse, GetString(*sparsity, "format", "dense", kConfig));
    if (sparse != "dense") return Unsupported("sparsity_config.format", "dense", sparse);
  }
  const Json* groups = Find(object, "config_groups");
  if (groups != nullptr && groups->is_object()) {
    for (const auto& [name, group] : groups->get_ref<const Json::object_t&>()) {
      if (group.is_object()) TRY(ReadGroup(group, config));
    }
  }
  return AddIgnored(object, "ignore", config);
}

Status ReadQuark(const Json& object, QuantConfig* config) {
  const Json* global = Find(object, "global_quant_config");
  const Json* weight = global == nullptr ? nullptr : Find(*global, "weight");
  if (weight != nullptr && weight->is_object()) {
    TRY_ASSIGN(const std::string dtype, GetString(*weight, "dtype", "", kConfig));
    TRY_ASSIGN(const std::string scale, GetString(*weight, "scale_format", "e8m0", kConfig));
    TRY_ASSIGN(const int64_t group, GetInt(*weight, "group_size", 32, kConfig));
    if (dtype == "fp4" && (group != 32 || scale != "e8m0")) {
      return Unsupported("global_quant_config.weight", "groups of 32 with e8m0 scales",
                         fmt::format("{} of {}", scale, group));
    }
    if (dtype != "fp4" && dtype != "fp8_e4m3")
      return Unsupported("global_quant_config.weight.dtype", "fp4 or fp8_e4m3", dtype);
  }
  return AddIgnored(object, "exclude", config);
}

}  // namespace

bool QuantConfig::Ignores(std::string_view module) const {
  const std::string_view bare = Bare(module);
  for (const std::string& item : ignore) {
    if (item.rfind("re:", 0) == 0) {
      const std::string glob = GlobOf(std::string_view(item).substr(3));
      if (GlobMatches(glob, module) || GlobMatches(glob, bare)) return true;
      continue;
    }
    const std::string_view name = Bare(item);
    if (GlobMatches(name, bare) || GlobMatches(item, module) || GlobMatches(std::string(name) + ".*", bare))
      return true;
  }
  return false;
}

Result<QuantConfig> ReadQuantConfig(const ModelFiles& files) {
  QuantConfig config;
  const Json* object = Find(files.text_config, "quantization_config");
  if (object == nullptr || object->is_null()) object = Find(files.text_config, "compression_config");
  if (object == nullptr || object->is_null()) {
    std::error_code ignored;
    const std::filesystem::path modelopt = std::filesystem::path(files.dir) / "hf_quant_config.json";
    if (!files.dir.empty() && std::filesystem::exists(modelopt, ignored)) {
      return Unsupported("hf_quant_config.json", "fp8, compressed-tensors, quark or mxfp4 in config.json", "modelopt");
    }
    return config;
  }
  if (!object->is_object()) return Unsupported("quantization_config", "an object", DumpJson(*object));
  TRY_ASSIGN(config.method, GetString(*object, "quant_method", "", kConfig));
  if (config.method == "fp8") {
    TRY(ReadFp8(*object, &config));
  } else if (config.method == "compressed-tensors") {
    TRY(ReadCompressedTensors(*object, &config));
  } else if (config.method == "quark") {
    TRY(ReadQuark(*object, &config));
  } else if (config.method == "mxfp4") {
    TRY(AddIgnored(*object, "modules_to_not_convert", &config));
  } else {
    return Unsupported("quantization_config.quant_method", "fp8, compressed-tensors, quark or mxfp4",
                       config.method.empty() ? "none" : config.method);
  }
  return config;
}

}  // namespace trivet::checkpoint
