// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stored_weight.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet::checkpoint {
namespace {

using tensor::DType;
using Shape = std::vector<int64_t>;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// "X" of "X.weight"; any other name as it is.
std::string ModuleOf(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

// The first of `names` that the checkpoint has.
const TensorInfo* FindAny(const Checkpoint& checkpoint, std::initializer_list<std::string> names) {
  for (const std::string& name : names) {
    if (const TensorInfo* info = checkpoint.Find(name)) return info;
  }
  return nullptr;
}

Error WrongShape(const Checkpoint& checkpoint, const TensorInfo& info, const Shape& expected) {
  return MakeError(
      Code::kInvalid,
      fmt::format("{}: expected shape {}, found {} in {}; config.json and checkpoint do not belong together", info.name,
                  ShapeText(expected), ShapeText(info.shape), checkpoint.FileName(info.file)));
}

Error WrongDType(const Checkpoint& checkpoint, const TensorInfo& info, std::string_view expected) {
  return MakeError(Code::kUnsupported,
                   fmt::format("{}: expected {}, found {} in {}; convert the checkpoint", info.name, expected,
                               tensor::DTypeName(info.dtype), checkpoint.FileName(info.file)));
}

bool IsPlain(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32 || tensor::UnitOf(dtype).elements >= 32;
}

// The shape with its last extent replaced.
Shape WithLast(std::span<const int64_t> shape, std::initializer_list<int64_t> last) {
  Shape result(shape.begin(), shape.end() - 1);
  result.insert(result.end(), last);
  return result;
}

// Scales of an FP8 weight: one, one a row, or a grid.
Status BindFp8Scale(const Checkpoint& checkpoint, const QuantConfig& config, std::span<const int64_t> shape,
                    StoredWeight* found) {
  const TensorInfo& scale = *found->scale;
  if (scale.dtype != DType::kF32 && scale.dtype != DType::kBF16 && scale.dtype != DType::kF16 &&
      scale.dtype != DType::kF8E8M0) {
    return WrongDType(checkpoint, scale, "F32, BF16, F16 or F8_E8M0 scales");
  }
  int64_t count = 1;
  for (const int64_t extent : scale.shape) count *= extent;
  Shape rows(shape.begin(), shape.end() - 1);
  Shape grid = rows;
  grid.back() = CeilDiv(grid.back(), config.block_rows);
  grid.push_back(CeilDiv(shape.back(), config.block_cols));
  if (count == 1) {
    found->matrix_rows = found->scale_rows = std::max<int64_t>(found->rows, 1);
    found->scale_cols = std::max<int64_t>(found->cols, 1);
  } else if (scale.shape == rows || scale.shape == WithLast(shape, {1})) {
    found->scale_rows = 1;
    found->scale_cols = std::max<int64_t>(found->cols, 1);
  } else if (scale.shape == grid) {
    found->scale_rows = config.block_rows;
    found->scale_cols = config.block_cols;
  } else {
    return WrongShape(checkpoint, scale, grid);
  }
  return {};
}

// Two codes a byte: `weight` has the shape `packed`, its scales one byte for 32 columns.
Status BindMxfp4(const Checkpoint& checkpoint, std::span<const int64_t> shape, const Shape& packed,
                 StoredWeight* found) {
  found->storage = Storage::kMxfp4;
  if (shape.back() % kMxColumns != 0) {
    return MakeError(Code::kUnsupported,
                     fmt::format("{}: expected a width that is a multiple of 32, found {}; convert the "
                                 "checkpoint",
                                 found->weight->name, shape.back()));
  }
  if (found->weight->shape != packed) return WrongShape(checkpoint, *found->weight, packed);
  if (found->scale == nullptr) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected a tensor of scales beside packed codes, found none; the "
                                                 "checkpoint is incomplete",
                                                 found->weight->name));
  }
  if (found->scale->dtype != DType::kU8 && found->scale->dtype != DType::kF8E8M0) {
    return WrongDType(checkpoint, *found->scale, "U8 or F8_E8M0 scales (MXFP4)");
  }
  const Shape scales = WithLast(shape, {shape.back() / kMxColumns});
  if (found->scale->shape != scales) return WrongShape(checkpoint, *found->scale, scales);
  found->scale_rows = 1;
  found->scale_cols = kMxColumns;
  return {};
}

// A weight found under its own name, of the dtype it has.
Status BindNamed(const Checkpoint& checkpoint, const QuantConfig& config, std::span<const int64_t> shape,
                 StoredWeight* found) {
  const TensorInfo& weight = *found->weight;
  const Shape logical(shape.begin(), shape.end());
  if (weight.dtype == DType::kU8 && shape.size() >= 2) {
    return BindMxfp4(checkpoint, shape, WithLast(shape, {shape.back() / 2}), found);
  }
  if (weight.shape != logical) return WrongShape(checkpoint, weight, logical);
  if (weight.dtype == DType::kF8E4M3 && shape.size() >= 2) {
    if (found->scale == nullptr) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}: expected a tensor of scales beside F8_E4M3 codes, found none; the "
                                   "checkpoint is incomplete",
                                   weight.name));
    }
    found->storage = Storage::kFp8;
    return BindFp8Scale(checkpoint, config, shape, found);
  }
  if (!IsPlain(weight.dtype)) {
    return WrongDType(checkpoint, weight, "BF16, F16, F32, a block format of GGUF, or F8_E4M3 or MXFP4 with scales");
  }
  if (found->scale != nullptr) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected no scales beside {} weights, found {}; a scale must not be "
                                 "applied twice, remove one of them",
                                 weight.name, tensor::DTypeName(weight.dtype), found->scale->name));
  }
  return {};
}

}  // namespace

bool HasWeight(const Checkpoint& checkpoint, const std::string& name) {
  return FindAny(checkpoint, {name, ModuleOf(name) + ".weight_packed", name + "_blocks"}) != nullptr;
}

Result<StoredWeight> FindWeight(const Checkpoint& checkpoint, const QuantConfig& config, const std::string& name,
                                std::span<const int64_t> shape) {
  const std::string module = ModuleOf(name);
  StoredWeight found;
  found.cols = shape.size() < 2 ? 1 : shape.back();
  found.rows = 1;
  for (size_t i = 0; i < std::max<size_t>(shape.size(), 2) - 1 && i < shape.size(); ++i) found.rows *= shape[i];
  found.matrix_rows = std::max<int64_t>(shape.size() < 2 ? found.rows : shape[shape.size() - 2], 1);
  found.scale_rows = found.scale_cols = 1;
  found.scale = FindAny(checkpoint, {name + "_scale_inv", name + "_scale", module + ".scale"});
  if ((found.weight = checkpoint.Find(name)) != nullptr) {
    TRY(BindNamed(checkpoint, config, shape, &found));
  } else if ((found.weight = checkpoint.Find(module + ".weight_packed")) != nullptr) {
    if (found.weight->dtype != DType::kU8 || checkpoint.Find(module + ".weight_global_scale") != nullptr) {
      return WrongDType(checkpoint, *found.weight, "MXFP4 codes as U8 without a global scale");
    }
    TRY(BindMxfp4(checkpoint, shape, WithLast(shape, {shape.back() / 2}), &found));
  } else if ((found.weight = checkpoint.Find(name + "_blocks")) != nullptr) {
    found.scale = checkpoint.Find(name + "_scales");
    if (found.weight->dtype != DType::kU8) return WrongDType(checkpoint, *found.weight, "MXFP4 codes as U8");
    TRY(BindMxfp4(checkpoint, shape, WithLast(shape, {shape.back() / kMxColumns, kMxColumns / 2}), &found));
  } else {
    return MakeError(Code::kInvalid, fmt::format("{}: expected a tensor of shape {}, found none; the checkpoint is "
                                                 "incomplete or config.json describes another model",
                                                 name, ShapeText(shape)));
  }
  if (found.storage != Storage::kPlain && !config.method.empty() && config.Ignores(module)) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected an unquantised weight, as config.json lists it as such, found "
                                 "{} with scales; config.json and checkpoint do not belong together",
                                 name, tensor::DTypeName(found.weight->dtype)));
  }
  return found;
}

}  // namespace trivet::checkpoint
