// SPDX-License-Identifier: Apache-2.0
#include "quant/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "quant/convert.h"

namespace trivet::quant {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

std::vector<float> Decode(BlockFormat format, std::vector<std::byte> bytes) {
  const BlockTraits traits = TraitsOf(format);
  bytes.resize(static_cast<size_t>(traits.bytes));
  std::vector<float> values(static_cast<size_t>(traits.columns));
  DecodeBlocks(format, bytes, values);
  return values;
}

TEST(Blocks, Q4_0PairsElementsSixteenApartAndSubtractsEight) {
  const std::vector<float> values = Decode(BlockFormat::kQ4_0, Bytes({0x00, 0x40, 0xF1}));  // scale 2
  EXPECT_EQ(values[0], 2.0F * (1 - 8));
  EXPECT_EQ(values[16], 2.0F * (15 - 8));
  EXPECT_EQ(values[1], -16.0F);
}

TEST(Blocks, Q5_1AddsTheFifthBitAndTheOffset) {
  std::vector<std::byte> bytes = Bytes({0x00, 0x3C, 0x00, 0x38, 0x01, 0x00, 0x01, 0x00, 0x21});
  const std::vector<float> values = Decode(BlockFormat::kQ5_1, bytes);
  EXPECT_EQ(values[0], 17.5F);
  EXPECT_EQ(values[16], 18.5F);
  EXPECT_EQ(values[1], 0.5F);
}

TEST(Blocks, Q4KSplitsSixBitFactors) {
  // Scale 1, dmin 1; sub-block 0: factor 63, offset factor 1; sub-block 4: factor 0x35, offset factor 0x1A.
  std::vector<std::byte> bytes = Bytes({0, 0x3C, 0, 0x3C, 63 | 0xC0, 0, 0, 0, 1 | 0x40, 0, 0, 0, 0xA5, 0, 0, 0});
  bytes.resize(144);
  bytes[16] = std::byte{0x02};       // element 0
  bytes[16 + 64] = std::byte{0x03};  // element 128, sub-block 4
  const std::vector<float> values = Decode(BlockFormat::kQ4K, bytes);
  EXPECT_EQ(values[0], 63 * 2 - 1);
  EXPECT_EQ(values[1], -1);
  EXPECT_EQ(values[128], 0x35 * 3 - 0x1A);
}

TEST(Blocks, Q6KHasSignedFactorsOfSixteen) {
  std::vector<std::byte> bytes(210);
  bytes[192] = static_cast<std::byte>(-3);
  bytes[208] = std::byte{0x00};
  bytes[209] = std::byte{0x3C};
  bytes[128] = std::byte{0x02};  // upper bits of element 0
  const std::vector<float> values = Decode(BlockFormat::kQ6K, bytes);
  EXPECT_EQ(values[0], -3.0F * (32 - 32));
  EXPECT_EQ(values[1], -3.0F * -32);
  EXPECT_EQ(values[16], 0.0F);
}

TEST(Blocks, TheTwoOrdersOfMxfp4Differ) {
  const std::vector<std::byte> bytes = Bytes({128, 0x72, 0x0F});  // scale 2
  const std::vector<float> pairs = Decode(BlockFormat::kMxfp4, bytes);
  EXPECT_EQ(pairs[0], 2.0F);
  EXPECT_EQ(pairs[1], 12.0F);
  EXPECT_EQ(pairs[2], -12.0F);
  const std::vector<float> halves = Decode(BlockFormat::kMxfp4Gguf, bytes);
  EXPECT_EQ(halves[0], 2.0F);
  EXPECT_EQ(halves[16], 12.0F);
  EXPECT_EQ(halves[1], -12.0F);
}

TEST(Blocks, GgufBlocksBecomePairs) {
  std::vector<std::byte> block = Bytes({130});
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<std::byte>(i * 17 + 3));
  const std::vector<float> expected = Decode(BlockFormat::kMxfp4Gguf, block);
  GgufToPairs(block);
  EXPECT_EQ(Decode(BlockFormat::kMxfp4, block), expected);
}

TEST(Blocks, SmallestAndLargestMxfp4ScalesAreExact) {
  EXPECT_EQ(Decode(BlockFormat::kMxfp4, Bytes({0, 0x01}))[0], 0x1p-128F);
  EXPECT_EQ(Decode(BlockFormat::kMxfp4, Bytes({254, 0x02}))[0], 0x1p127F);
  EXPECT_TRUE(std::isnan(Decode(BlockFormat::kMxfp4, Bytes({255, 0x02}))[0]));
}

TEST(Blocks, Fp8MultipliesEveryCodeByTheScale) {
  const std::vector<float> values = Decode(BlockFormat::kFp8, Bytes({0, 0, 0xC0, 0x3F, 0x38, 0x7E, 0x01, 0x81}));
  EXPECT_EQ(values[0], 1.5F);
  EXPECT_EQ(values[1], 672.0F);
  EXPECT_EQ(values[2], 1.5F * 0x1p-9F);
  EXPECT_EQ(values[3], -1.5F * 0x1p-9F);
}

TEST(Blocks, TraitsAgreeWithDtypes) {
  for (int i = 0; i < tensor::kDTypeCount; ++i) {
    const auto dtype = static_cast<tensor::DType>(i);
    const std::optional<BlockFormat> format = BlockFormatOf(dtype);
    ASSERT_EQ(format.has_value(), i >= tensor::kSafetensorsDTypeCount);
    if (!format.has_value()) continue;
    EXPECT_EQ(TraitsOf(*format).columns, tensor::UnitOf(dtype).elements);
    EXPECT_EQ(TraitsOf(*format).bytes, tensor::UnitOf(dtype).bytes);
  }
}

TEST(Blocks, DecodeToFloatTakesBlockDtypes) {
  const std::vector<std::byte> bytes = Bytes({0x00, 0x3C, 5});
  std::vector<std::byte> block = bytes;
  block.resize(34);
  std::vector<float> values(32);
  ASSERT_TRUE(DecodeToFloat(tensor::DType::kQ8_0, block, values).ok());
  EXPECT_EQ(values[0], 5.0F);
}

}  // namespace
}  // namespace trivet::quant
