// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace trivet::tensor {
namespace {

TEST(DType, HasTheBitsAndNamesOfSafetensors) {
  const std::map<std::string, int> expected = {
      {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
      {"F8_E4M3FNUZ", 8}, {"I16", 16},        {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},
      {"U32", 32},        {"F8_E5M2FNUZ", 8}, {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64},
      {"U64", 64},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSafetensorsDTypeCount));
  for (int i = 0; i < kSafetensorsDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto it = expected.find(DTypeName(dtype));
    ASSERT_NE(it, expected.end()) << DTypeName(dtype);
    EXPECT_EQ(DTypeBits(dtype), it->second) << it->first;
    EXPECT_EQ(ParseDType(it->first), dtype) << it->first;
  }
}

TEST(DType, EnumeratorsMatchTheirNames) {
  EXPECT_STREQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_STREQ(DTypeName(DType::kF8E4M3), "F8_E4M3");
  EXPECT_STREQ(DTypeName(DType::kF8E5M2Fnuz), "F8_E5M2FNUZ");
  EXPECT_STREQ(DTypeName(DType::kF6E3M2), "F6_E3M2");
}

TEST(DType, BlockFormatsHaveTheSizesOfGguf) {
  const std::map<std::string, std::pair<int64_t, int64_t>> expected = {
      {"Q4_0", {32, 18}},   {"Q4_1", {32, 20}},   {"Q5_0", {32, 22}},   {"Q5_1", {32, 24}}, {"Q8_0", {32, 34}},
      {"Q4_K", {256, 144}}, {"Q5_K", {256, 176}}, {"Q6_K", {256, 210}}, {"MXFP4", {32, 17}}};
  ASSERT_EQ(expected.size(), static_cast<size_t>(kDTypeCount - kSafetensorsDTypeCount));
  for (int i = kSafetensorsDTypeCount; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto it = expected.find(DTypeName(dtype));
    ASSERT_NE(it, expected.end()) << DTypeName(dtype);
    EXPECT_EQ(std::pair(UnitOf(dtype).elements, UnitOf(dtype).bytes), it->second) << it->first;
    EXPECT_FALSE(ParseDType(it->first).has_value()) << "not a name of safetensors";
  }
  EXPECT_EQ(UnitOf(DType::kF4).elements, 2);
  EXPECT_EQ(UnitOf(DType::kF6E2M3).bytes, 3);
}

TEST(DType, OtherNamesAreNone) {
  for (const char* name : {"", "bf16", "BF16 ", "F128", "F8"}) EXPECT_FALSE(ParseDType(name).has_value()) << name;
}

}  // namespace
}  // namespace trivet::tensor
