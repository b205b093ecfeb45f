// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <array>

namespace trivet::tensor {
namespace {

struct DTypeRow {
  DType dtype;
  int bits;
  const char* name;
};

// In the order of the enumerators.
constexpr std::array<DTypeRow, kDTypeCount> kRows = {{
    {DType::kBool, 8, "BOOL"},
    {DType::kU8, 8, "U8"},
    {DType::kI8, 8, "I8"},
    {DType::kF8E5M2, 8, "F8_E5M2"},
    {DType::kF8E4M3, 8, "F8_E4M3"},
    {DType::kF8E8M0, 8, "F8_E8M0"},
    {DType::kF8E4M3Fnuz, 8, "F8_E4M3FNUZ"},
    {DType::kF8E5M2Fnuz, 8, "F8_E5M2FNUZ"},
    {DType::kI16, 16, "I16"},
    {DType::kU16, 16, "U16"},
    {DType::kF16, 16, "F16"},
    {DType::kBF16, 16, "BF16"},
    {DType::kI32, 32, "I32"},
    {DType::kU32, 32, "U32"},
    {DType::kF32, 32, "F32"},
    {DType::kC64, 64, "C64"},
    {DType::kF64, 64, "F64"},
    {DType::kI64, 64, "I64"},
    {DType::kU64, 64, "U64"},
    {DType::kF4, 4, "F4"},
    {DType::kF6E2M3, 6, "F6_E2M3"},
    {DType::kF6E3M2, 6, "F6_E3M2"},
}};

constexpr bool RowsFollowEnum() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(RowsFollowEnum());

}  // namespace

int DTypeBits(DType dtype) { return kRows[static_cast<size_t>(dtype)].bits; }

const char* DTypeName(DType dtype) { return kRows[static_cast<size_t>(dtype)].name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeRow& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace trivet::tensor
