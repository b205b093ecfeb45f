// SPDX-License-Identifier: Apache-2.0
// DType: the element formats a checkpoint can hold, under safetensors' names, and GGUF's block formats under GGUF's.
// Sizes and names only; decoding is in quant/.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trivet::tensor {

/// Element format. Sub-byte formats are packed; a tensor of them must fill whole bytes.
enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,  // the "fn" form: no infinity, largest 448
  kF8E8M0,  // a power of two, as a scale
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,  // two F32
  kF64,
  kI64,
  kU64,
  kF4,  // E2M1
  kF6E2M3,
  kF6E3M2,
  // Blocks of consecutive elements of a row with scales among them; GGUF files hold them.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4K,
  kQ5K,
  kQ6K,
  kMxfp4,
};

/// How many formats there are; their enumerators are 0..kDTypeCount-1, safetensors' own first.
inline constexpr int kDTypeCount = 31;
inline constexpr int kSafetensorsDTypeCount = 22;

/// The smallest run of elements that fills whole bytes.
struct DTypeUnit {
  int64_t elements = 1;
  int64_t bytes = 1;
};
/// The storage unit of `dtype`.
DTypeUnit UnitOf(DType dtype);

/// Bits of one element; of a block format the share of the block, rounded down.
int DTypeBits(DType dtype);

/// safetensors' or GGUF's spelling, such as "BF16" or "Q4_K".
const char* DTypeName(DType dtype);

/// The format that safetensors spells `name`, or nothing.
std::optional<DType> ParseDType(std::string_view name);

}  // namespace trivet::tensor
