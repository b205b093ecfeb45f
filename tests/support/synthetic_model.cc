// SPDX-License-Identifier: Apache-2.0
#include "tests/support/synthetic_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/str.h"
#include "checkpoint/config_file.h"
#include "checkpoint/writer.h"
#include "plan/families.h"
#include "plan/shard_map.h"
#include "quant/blocks.h"
#include "quant/convert.h"

namespace trivet::support {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 18;
constexpr quant::BlockTraits kMxfp4 = quant::TraitsOf(quant::BlockFormat::kMxfp4);

// A tensor's values are center + spread * [-1, 1).
struct Values {
  float center = 0, spread = 0;
};

Values ValuesOf(const plan::SourceTensor& tensor) {
  const auto ends = [&](const char* suffix) { return tensor.name.ends_with(suffix); };
  if (ends("linear_attn.norm.weight")) return {1, 0.2F};
  if (ends("A_log")) return {1, 1};
  if (ends("dt_bias")) return {0, 1};
  if (ends("conv1d.weight")) return {0, 0.7F};
  if (ends("embed_tokens.weight")) return {0, 1};
  if (tensor.shape.size() == 1) return {0, 0.2F};  // norms, which multiply by one plus their weight
  // Uniform values of this spread keep the variance of what they multiply.
  return {0, std::sqrt(3.0F / static_cast<float>(tensor.shape.back()))};
}

// splitmix64: fast, and every tensor has a stream of its own.
uint64_t NextRandom(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

void StoreValue(tensor::DType dtype, float value, std::vector<std::byte>* out) {
  std::byte bytes[sizeof(float)];
  if (dtype == tensor::DType::kF32) {
    std::memcpy(bytes, &value, 4);
    out->insert(out->end(), bytes, bytes + 4);
  } else {
    const uint16_t half = dtype == tensor::DType::kBF16 ? quant::ToBF16(value) : quant::ToF16(value);
    std::memcpy(bytes, &half, 2);
    out->insert(out->end(), bytes, bytes + 2);
  }
}

Status AppendTensor(const plan::SourceTensor& tensor, tensor::DType dtype, uint64_t seed,
                    checkpoint::SafetensorsWriter* writer) {
  const Values values = ValuesOf(tensor);
  int64_t left = 1;
  for (const int64_t extent : tensor.shape) left *= extent;
  std::vector<std::byte> piece;
  while (left > 0) {
    piece.clear();
    const int64_t count = std::min(left, kPieceElements);
    for (int64_t i = 0; i < count; ++i) {
      const auto signed_bits = static_cast<int32_t>(NextRandom(&seed) >> 32);
      StoreValue(dtype, values.center + values.spread * static_cast<float>(signed_bits) * 0x1p-31F, &piece);
    }
    TRY(writer->Append(piece));
    left -= count;
  }
  return {};
}

// Whether a model in MXFP4 has this tensor in blocks: the projections that are large.
bool InBlocks(const plan::SourceTensor& tensor) {
  constexpr std::string_view kNames[] = {"_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight"};
  return tensor.shape.size() == 2 && tensor.shape[1] % kMxfp4.columns == 0 &&
         std::any_of(std::begin(kNames), std::end(kNames), [&](auto name) { return tensor.name.ends_with(name); });
}

// Random E2M1 codes, whose squares are 7.8 on average, and scales that bring them to the spread of ValuesOf.
Status AppendBlocks(const plan::SourceTensor& tensor, uint64_t seed, checkpoint::SafetensorsWriter* writer) {
  const int64_t blocks = tensor.shape[0] * tensor.shape[1] / kMxfp4.columns;
  std::vector<std::byte> piece(kPieceElements);
  for (int64_t left = blocks * kMxfp4.columns / 2; left > 0;) {
    const auto count = static_cast<size_t>(std::min(left, kPieceElements));
    for (size_t i = 0; i < count; i += 8) {
      const uint64_t bits = NextRandom(&seed);
      std::memcpy(piece.data() + i, &bits, 8);
    }
    TRY(writer->Append(std::span(piece).first(count)));
    left -= static_cast<int64_t>(count);
  }
  const float spread = 1.0F / std::sqrt(7.8F * static_cast<float>(tensor.shape[1]));
  const auto scale = static_cast<std::byte>(127 + std::lround(std::log2(spread)));
  const std::vector<std::byte> scales(static_cast<size_t>(blocks), scale);
  return writer->Append(scales);
}

// What is declared of a tensor: itself, or its codes and scales.
void Declare(const plan::SourceTensor& tensor, tensor::DType dtype, std::vector<checkpoint::TensorDecl>* declared) {
  if (dtype != tensor::DType::kMxfp4) return declared->push_back({tensor.name, dtype, tensor.shape});
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  declared->push_back({tensor.name, tensor::DType::kU8, {rows, cols / 2}});
  declared->push_back({tensor.name + "_scale", tensor::DType::kU8, {rows, cols / kMxfp4.columns}});
}

// The tensors of one file, from `begin` on.
struct FilePart {
  std::string name;
  size_t begin = 0, end = 0;
};

std::vector<FilePart> SplitIntoFiles(size_t tensors, int files) {
  if (files == 1) return {{"model.safetensors", 0, tensors}};
  std::vector<FilePart> parts;
  const auto count = static_cast<size_t>(files);
  for (size_t i = 0; i < count; ++i) {
    parts.push_back({fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files), tensors * i / count,
                     tensors * (i + 1) / count});
  }
  return parts;
}

}  // namespace

Json SyntheticConfig(const SyntheticModel& model) {
  Json config = {
      {"model_type", model.experts > 0 ? "qwen3_5_moe_text" : "qwen3_5_text"},
      {"hidden_size", model.hidden},
      {"num_hidden_layers", model.layers},
      {"full_attention_interval", model.attention_interval},
      {"vocab_size", model.vocab},
      {"max_position_embeddings", model.max_positions},
      {"tie_word_embeddings", model.tied_head},
      {"rms_norm_eps", 1e-6},
      {"hidden_act", "silu"},
      {"num_attention_heads", model.q_heads},
      {"num_key_value_heads", model.kv_heads},
      {"head_dim", model.head_dim},
      {"linear_num_key_heads", model.k_heads},
      {"linear_num_value_heads", model.v_heads},
      {"linear_key_head_dim", model.k_dim},
      {"linear_value_head_dim", model.v_dim},
      {"linear_conv_kernel_dim", model.conv_width},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.25}}},
      {"eos_token_id", 2}};
  if (model.experts > 0) {
    config["num_experts"] = model.experts;
    config["num_experts_per_tok"] = model.top_k;
    config["moe_intermediate_size"] = model.expert_width;
    config["shared_expert_intermediate_size"] = model.shared_width;
  } else {
    config["intermediate_size"] = model.mlp_width;
  }
  if (model.dtype == tensor::DType::kMxfp4) {
    const Json weight = {{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 32}, {"scale_format", "e8m0"}};
    config["quantization_config"] = {{"quant_method", "quark"},
                                     {"global_quant_config", {{"weight", weight}}},
                                     {"export", {{"pack_method", "order"}}},
                                     {"exclude", {"lm_head", "*in_proj_a", "*in_proj_b"}}};
  }
  return config;
}

Status WriteSyntheticModel(const SyntheticModel& model, const std::string& dir) {
  const Json config = SyntheticConfig(model);
  TRY(WriteTextFile(dir + "/config.json", DumpJson(config, 1) + "\n"));
  TRY_ASSIGN(const Json rope, checkpoint::RopeParameters(config, "config.json"));
  TRY_ASSIGN(const plan::Geometry geometry, plan::ReadGeometry({config, rope}));
  const std::vector<plan::SourceTensor> tensors = plan::RequiredTensors(geometry, {"model.", model.fused_experts});
  Json weight_map = Json::object();
  for (const FilePart& part : SplitIntoFiles(tensors.size(), model.files)) {
    std::vector<checkpoint::TensorDecl> declared;
    const auto dtype_of = [&](size_t i) {
      if (model.some_f32 && i % 3 == 0) return tensor::DType::kF32;
      if (model.dtype != tensor::DType::kMxfp4) return model.dtype;
      return InBlocks(tensors[i]) ? tensor::DType::kMxfp4 : tensor::DType::kBF16;
    };
    for (size_t i = part.begin; i < part.end; ++i) Declare(tensors[i], dtype_of(i), &declared);
    for (const checkpoint::TensorDecl& tensor : declared) weight_map[tensor.name] = part.name;
    TRY_ASSIGN(checkpoint::SafetensorsWriter writer,
               checkpoint::SafetensorsWriter::Create(dir + "/" + part.name, declared, {}));
    for (size_t i = part.begin; i < part.end; ++i) {
      const uint64_t seed = model.seed * 1000003 + i;
      if (dtype_of(i) == tensor::DType::kMxfp4) {
        TRY(AppendBlocks(tensors[i], seed, &writer));
      } else {
        TRY(AppendTensor(tensors[i], dtype_of(i), seed, &writer));
      }
    }
    TRY(writer.Finish());
  }
  if (model.files == 1) return {};
  return WriteTextFile(dir + "/model.safetensors.index.json", DumpJson({{"weight_map", weight_map}}) + "\n");
}

}  // namespace trivet::support
