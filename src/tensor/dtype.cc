// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <array>

namespace trivet::tensor {
namespace {

struct DTypeRow {
  DType dtype;
  DTypeUnit unit;
  const char* name;
};

// In the order of the enumerators.
constexpr std::array<DTypeRow, kDTypeCount> kRows = {{
    {DType::kBool, {1, 1}, "BOOL"},
    {DType::kU8, {1, 1}, "U8"},
    {DType::kI8, {1, 1}, "I8"},
    {DType::kF8E5M2, {1, 1}, "F8_E5M2"},
    {DType::kF8E4M3, {1, 1}, "F8_E4M3"},
    {DType::kF8E8M0, {1, 1}, "F8_E8M0"},
    {DType::kF8E4M3Fnuz, {1, 1}, "F8_E4M3FNUZ"},
    {DType::kF8E5M2Fnuz, {1, 1}, "F8_E5M2FNUZ"},
    {DType::kI16, {1, 2}, "I16"},
    {DType::kU16, {1, 2}, "U16"},
    {DType::kF16, {1, 2}, "F16"},
    {DType::kBF16, {1, 2}, "BF16"},
    {DType::kI32, {1, 4}, "I32"},
    {DType::kU32, {1, 4}, "U32"},
    {DType::kF32, {1, 4}, "F32"},
    {DType::kC64, {1, 8}, "C64"},
    {DType::kF64, {1, 8}, "F64"},
    {DType::kI64, {1, 8}, "I64"},
    {DType::kU64, {1, 8}, "U64"},
    {DType::kF4, {2, 1}, "F4"},
    {DType::kF6E2M3, {4, 3}, "F6_E2M3"},
    {DType::kF6E3M2, {4, 3}, "F6_E3M2"},
    {DType::kQ4_0, {32, 18}, "Q4_0"},
    {DType::kQ4_1, {32, 20}, "Q4_1"},
    {DType::kQ5_0, {32, 22}, "Q5_0"},
    {DType::kQ5_1, {32, 24}, "Q5_1"},
    {DType::kQ8_0, {32, 34}, "Q8_0"},
    {DType::kQ4K, {256, 144}, "Q4_K"},
    {DType::kQ5K, {256, 176}, "Q5_K"},
    {DType::kQ6K, {256, 210}, "Q6_K"},
    {DType::kMxfp4, {32, 17}, "MXFP4"},
}};

constexpr bool RowsFollowEnum() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(RowsFollowEnum());

}  // namespace

DTypeUnit UnitOf(DType dtype) { return kRows[static_cast<size_t>(dtype)].unit; }

int DTypeBits(DType dtype) {
  const DTypeUnit unit = UnitOf(dtype);
  return static_cast<int>(unit.bytes * 8 / unit.elements);
}

const char* DTypeName(DType dtype) { return kRows[static_cast<size_t>(dtype)].name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (size_t i = 0; i < static_cast<size_t>(kSafetensorsDTypeCount); ++i) {
    if (name == kRows[i].name) return kRows[i].dtype;
  }
  return std::nullopt;
}

}  // namespace trivet::tensor
