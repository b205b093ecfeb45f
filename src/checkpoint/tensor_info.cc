// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trivet::checkpoint {

Result<int64_t> TensorBytes(tensor::DType dtype, std::span<const int64_t> shape, std::string_view what) {
  if (shape.size() > static_cast<size_t>(kMaxRank)) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected at most {} dimensions, found {}; the tensor is refused",
                                                 what, kMaxRank, shape.size()));
  }
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    CHECK_MSG(extent >= 0, ShapeText(shape));
    if (__builtin_mul_overflow(elements, extent, &elements)) {
      return MakeError(Code::kInvalid, fmt::format("{}: expected a shape whose element count fits 63 bits, found {}; "
                                                   "the tensor is refused",
                                                   what, ShapeText(shape)));
    }
  }
  const tensor::DTypeUnit unit = tensor::UnitOf(dtype);
  if (elements % unit.elements != 0) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected a whole number of bytes, found {} elements of {}, whose "
                                                 "unit is {}; the tensor is refused",
                                                 what, elements, tensor::DTypeName(dtype), unit.elements));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / unit.elements, unit.bytes, &bytes) || bytes > INT64_MAX / 8) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected a size in bits that fits 63 bits, found {} elements of "
                                                 "{}; the tensor is refused",
                                                 what, elements, tensor::DTypeName(dtype)));
  }
  return bytes;
}

std::string ShapeText(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace trivet::checkpoint
