// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::checkpoint {
namespace {

using tensor::DType;
using testing::HasSubstr;
using Shape = std::vector<int64_t>;

TEST(TensorBytes, CountsElements) {
  EXPECT_EQ(TensorBytes(DType::kF32, Shape{}, "t").value(), 4);
  EXPECT_EQ(TensorBytes(DType::kBF16, Shape{3, 5}, "t").value(), 30);
  EXPECT_EQ(TensorBytes(DType::kF64, Shape{7, 0, 9}, "t").value(), 0);
  EXPECT_EQ(TensorBytes(DType::kF4, Shape{3, 2}, "t").value(), 3);
  EXPECT_EQ(TensorBytes(DType::kF6E2M3, Shape{4}, "t").value(), 3);
  EXPECT_EQ(TensorBytes(DType::kU8, Shape(16, 1), "t").value(), 1);
}

TEST(TensorBytes, RefusesWhatDoesNotFit) {
  const auto message = [](DType dtype, const Shape& shape) {
    const auto bytes = TensorBytes(dtype, shape, "the tensor");
    return bytes.ok() ? "accepted" : bytes.error().message;
  };
  EXPECT_THAT(message(DType::kU8, Shape(17, 1)), HasSubstr("the tensor: expected at most 16 dimensions, found 17"));
  EXPECT_THAT(message(DType::kU8, {int64_t{1} << 32, int64_t{1} << 31}), HasSubstr("element count fits 63 bits"));
  EXPECT_THAT(message(DType::kU8, {int64_t{1} << 61}), HasSubstr("size in bits that fits 63 bits"));
  EXPECT_THAT(message(DType::kF4, {3}), HasSubstr("whole number of bytes, found 3 elements of F4"));
}

TEST(ShapeText, ListsExtents) {
  EXPECT_EQ(ShapeText(Shape{}), "[]");
  EXPECT_EQ(ShapeText(Shape{4096, 128}), "[4096, 128]");
}

}  // namespace
}  // namespace trivet::checkpoint
