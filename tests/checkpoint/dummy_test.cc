// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dummy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/stored_weight.h"
#include "quant/convert.h"

namespace trivet::checkpoint {
namespace {

const std::vector<DummyWeight> kWeights = {{"a.weight", {256, 192}, true}, {"norm.weight", {192}, false}};

// The first bytes of a tensor.
std::vector<std::byte> Bytes(const Checkpoint& checkpoint, const std::string& name, int64_t count, int64_t offset = 0) {
  const TensorInfo* info = checkpoint.Find(name);
  CHECK_MSG(info != nullptr, name);
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  CHECK(checkpoint.Read(*info, offset, bytes).ok());
  return bytes;
}

TEST(Dummy, WeightsAreFoundInEveryFormat) {
  for (const auto& [name, storage] :
       {std::pair{"bf16", Storage::kPlain}, {"fp8", Storage::kFp8}, {"mxfp4", Storage::kMxfp4}}) {
    const Result<Checkpoint> checkpoint = MakeDummy(kWeights, ParseDummyFormat(name).value());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const Result<StoredWeight> weight = FindWeight(*checkpoint, {}, "a.weight", kWeights[0].shape);
    ASSERT_TRUE(weight.ok()) << weight.error().message;
    EXPECT_EQ(weight->storage, storage);
    EXPECT_EQ(checkpoint->Find("norm.weight")->dtype, tensor::DType::kBF16);
  }
}

TEST(Dummy, ElementsAreSmallAndDiffer) {
  const Result<Checkpoint> checkpoint = MakeDummy(kWeights, DummyFormat::kBF16);
  ASSERT_TRUE(checkpoint.ok());
  std::vector<float> values(256 * 192);
  ASSERT_TRUE(quant::DecodeToFloat(tensor::DType::kBF16, Bytes(*checkpoint, "a.weight", 256 * 192 * 2), values).ok());
  double squares = 0;
  for (const float value : values) {
    EXPECT_LE(std::fabs(value), 1.0F / 16);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  // A uniform distribution's deviation is its bound over the root of 3.
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(values.size())), 1 / 16.0 / std::sqrt(3.0), 1e-3);
}

TEST(Dummy, CodesAreNumbersAndScalesSmall) {
  const Result<Checkpoint> fp8 = MakeDummy(kWeights, DummyFormat::kFp8), mx = MakeDummy(kWeights, DummyFormat::kMxfp4);
  ASSERT_TRUE(fp8.ok() && mx.ok());
  for (const std::byte code : Bytes(*fp8, "a.weight", 256 * 192)) {
    EXPECT_NE(code & std::byte{0x7F}, std::byte{0x7F});
  }
  for (const std::byte scale : Bytes(*mx, "a.weight_scale", 256 * 6)) {
    EXPECT_THAT(std::to_integer<int>(scale), testing::AllOf(testing::Ge(117), testing::Le(120)));
  }
}

// A part read alone is that part of the whole, and a name has bytes of its own.
TEST(Dummy, BytesAreAFunctionOfNameAndPlace) {
  const std::vector<DummyWeight> weights = {{"a.weight", {4096, 512}, true}, {"b.weight", {4096, 512}, true}};
  const Result<Checkpoint> checkpoint = MakeDummy(weights, DummyFormat::kBF16);
  ASSERT_TRUE(checkpoint.ok());
  const std::vector<std::byte> whole = Bytes(*checkpoint, "a.weight", 4096 * 512 * 2);
  const std::vector<std::byte> part = Bytes(*checkpoint, "a.weight", 1000, 1048000);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1048000));
  EXPECT_NE(whole, Bytes(*checkpoint, "b.weight", 4096 * 512 * 2));
}

TEST(Dummy, BadRequestsAreNamed) {
  EXPECT_EQ(ParseDummyFormat("int4").error().code, Code::kUsage);
  const Result<Checkpoint> odd = MakeDummy(std::vector<DummyWeight>{{"a.weight", {4, 40}, true}}, DummyFormat::kMxfp4);
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(odd.error().message, testing::HasSubstr("multiple of 32 for mxfp4, found 40"));
}

}  // namespace
}  // namespace trivet::checkpoint
