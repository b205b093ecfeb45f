// SPDX-License-Identifier: Apache-2.0
#include "quant/convert.h"

#include <fmt/format.h>

#include <cstring>

#include "quant/blocks.h"

namespace trivet::quant {
namespace {

using tensor::DType;

static_assert(std::endian::native == std::endian::little,
              "checkpoint bytes are little-endian and are copied as they are");

template <class T, float (*convert)(T)>
Status Decode(std::span<const std::byte> src, std::span<float> dst) {
  CHECK_MSG(src.size() == dst.size() * sizeof(T), fmt::format("{} bytes for {} elements", src.size(), dst.size()));
  for (size_t i = 0; i < dst.size(); ++i) {
    T element;
    std::memcpy(&element, src.data() + i * sizeof(T), sizeof(T));
    dst[i] = convert(element);
  }
  return {};
}

float FromBool(uint8_t value) { return value != 0 ? 1.0f : 0.0f; }

template <class T>
float Cast(T value) {
  return static_cast<float>(value);
}

}  // namespace

Status DecodeToFloat(DType dtype, std::span<const std::byte> src, std::span<float> dst) {
  switch (dtype) {
    case DType::kBool:
      return Decode<uint8_t, FromBool>(src, dst);
    case DType::kU8:
      return Decode<uint8_t, Cast<uint8_t>>(src, dst);
    case DType::kI8:
      return Decode<int8_t, Cast<int8_t>>(src, dst);
    case DType::kF8E5M2:
      return Decode<uint8_t, FromE5M2>(src, dst);
    case DType::kF8E4M3:
      return Decode<uint8_t, FromE4M3>(src, dst);
    case DType::kF8E8M0:
      return Decode<uint8_t, FromE8M0>(src, dst);
    case DType::kF8E4M3Fnuz:
      return Decode<uint8_t, FromE4M3Fnuz>(src, dst);
    case DType::kF8E5M2Fnuz:
      return Decode<uint8_t, FromE5M2Fnuz>(src, dst);
    case DType::kI16:
      return Decode<int16_t, Cast<int16_t>>(src, dst);
    case DType::kU16:
      return Decode<uint16_t, Cast<uint16_t>>(src, dst);
    case DType::kF16:
      return Decode<uint16_t, FromF16>(src, dst);
    case DType::kBF16:
      return Decode<uint16_t, FromBF16>(src, dst);
    case DType::kI32:
      return Decode<int32_t, Cast<int32_t>>(src, dst);
    case DType::kU32:
      return Decode<uint32_t, Cast<uint32_t>>(src, dst);
    case DType::kF32:
      return Decode<float, Cast<float>>(src, dst);
    case DType::kF64:
      return Decode<double, Cast<double>>(src, dst);
    case DType::kI64:
      return Decode<int64_t, Cast<int64_t>>(src, dst);
    case DType::kU64:
      return Decode<uint64_t, Cast<uint64_t>>(src, dst);
    default:
      break;
  }
  if (const std::optional<BlockFormat> format = BlockFormatOf(dtype)) {
    DecodeBlocks(*format, src, dst);
    return {};
  }
  return MakeError(Code::kUnsupported, fmt::format("dtype {}: expected a real format of whole bytes to decode to F32, "
                                                   "found one that is not; convert the checkpoint",
                                                   tensor::DTypeName(dtype)));
}

}  // namespace trivet::quant
