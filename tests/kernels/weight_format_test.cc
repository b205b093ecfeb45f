// SPDX-License-Identifier: Apache-2.0
#include "kernels/weight_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/kernels/packed.h"

namespace trivet::kernels {
namespace {

TEST(WeightFormat, PackedValuesComeBackBitForBit) {
  std::mt19937_64 random(1);
  for (const WeightFormatRow& format : Formats()) {
    for (const int64_t n : {1, 31, 32, 33, 64, 97}) {
      for (const int64_t k : {1, 2, 3, 16, 127, 128, 301}) {
        const Packed packed({format.format, n, k, 64, format.columns / 4 * 2 % format.columns}, &random);
        for (int64_t row = 0; row < n; ++row) {
          for (int64_t column = 0; column < k; ++column) {
            const float value = packed.values()[static_cast<size_t>(row * k + column)];
            ASSERT_EQ(std::bit_cast<uint32_t>(Element(packed.matrix(), row, column)), std::bit_cast<uint32_t>(value))
                << format.name << " " << n << " x " << k << " at " << row << ", " << column;
          }
        }
      }
    }
  }
}

TEST(WeightFormat, EveryBitPatternOfBF16IsKept) {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  Guarded<std::byte> tile(65536 * kTileRows * 2);
  FormatRow(WeightFormat::kBF16).store(reinterpret_cast<const std::byte*>(patterns.data()), 65536, tile.data(), 31, 0);
  for (uint32_t i = 0; i < 65536; ++i) {
    const float value = FormatRow(WeightFormat::kBF16).load(tile.data(), 31, i);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(std::bit_cast<float>(i << 16)));
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(value), i << 16);
    }
  }
  EXPECT_TRUE(tile.Intact());
}

TEST(WeightFormat, ARowMayBeStoredInPiecesAndTouchesNoOtherRow) {
  std::mt19937_64 random(2);
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kF16, WeightFormat::kF32}) {
    constexpr int64_t kColumns = 21;
    const WeightFormatRow& row = FormatRow(format);
    const int64_t element_bytes = row.unit_bytes / (2 * kTileRows);
    const std::vector<float> values = RandomValues(kColumns, &random);
    const auto* source = reinterpret_cast<const std::byte*>(values.data());
    Guarded<std::byte> whole(22 * kTileRows * element_bytes), pieces(22 * kTileRows * element_bytes);
    row.store(source, kColumns, whole.data(), 7, 0);
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 4}, {4, 4}, {4, 21}}) {
      row.store(source + begin * element_bytes, end - begin, pieces.data(), 7, begin);
    }
    EXPECT_TRUE(std::ranges::equal(whole.bytes(), pieces.bytes()));
    const auto changed = std::count_if(whole.bytes().begin(), whole.bytes().end(),
                                       [](std::byte byte) { return byte != std::byte{0xC5}; });
    EXPECT_LE(changed, kColumns * element_bytes);
  }
}

TEST(WeightFormat, SizesRoundUpToTilesAndPairs) {
  const PackedMatrix odd{WeightFormat::kBF16, 33, 5, 64, nullptr};
  EXPECT_EQ(odd.tiles(), 2);
  EXPECT_EQ(odd.tile_bytes(), 6 * 32 * 2);
  EXPECT_EQ(odd.bytes(), 2 * 6 * 32 * 2);
  const PackedMatrix even{WeightFormat::kF32, 32, 4, 64, nullptr};
  EXPECT_EQ(even.bytes(), 4 * 32 * 4);
  EXPECT_EQ((PackedMatrix{WeightFormat::kF32, 0, 4, 64, nullptr}.bytes()), 0);
}

TEST(WeightFormat, BlocksStayNearTheirStoredSize) {
  for (const WeightFormatRow& format : Formats()) {
    const std::optional<quant::BlockFormat> blocks = BlocksOf(format.format);
    if (!blocks.has_value()) continue;
    const quant::BlockTraits traits = quant::TraitsOf(*blocks);
    EXPECT_EQ(format.columns, traits.columns);
    EXPECT_GE(format.unit_bytes, traits.bytes * kTileRows) << format.name;
    EXPECT_LE(static_cast<double>(format.unit_bytes), 1.03 * static_cast<double>(traits.bytes * kTileRows))
        << format.name;
  }
  // A cut inside a block keeps the block.
  EXPECT_EQ((PackedMatrix{WeightFormat::kQ4K, 32, 256, 64, nullptr, 128}.bytes()),
            2 * FormatRow(WeightFormat::kQ4K).unit_bytes);
}

TEST(WeightFormat, HalvesHoldEveryCodeAtEveryPlace) {
  for (int i = 0; i < 8; ++i) {
    for (uint32_t code = 0; code < 16; ++code) {
      for (const uint32_t others : {0U, 0xFFFFFFFFU, 0xA5A5A5A5U, 0x5A5A5A5AU}) {
        const uint32_t codes = (others & ~(15U << (4 * i))) | code << (4 * i);
        const uint32_t word = MxHalves(codes);
        EXPECT_EQ(MxHalvesCode(word, i), code) << i << " of " << std::hex << codes;
        // As F16: the sign, the lowest bits of the exponent, the highest one of the mantissa, and nothing else.
        const uint32_t half = MxPair(word, i % 4) >> (i / 4 * 16) & 0xFFFF;
        EXPECT_EQ(half, (code >> 3 << 15) | (code & 7) << 9) << i << " of " << std::hex << codes;
      }
    }
  }
}

TEST(WeightFormat, BackendsKeepFormatsInAsManyBytes) {
  for (const WeightFormatRow& format : Formats()) {
    for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
      EXPECT_EQ(FormatRow(FormatOn(backend, format.format)).unit_bytes, format.unit_bytes);
    }
  }
  EXPECT_EQ(FormatOn(Backend::kCpu, WeightFormat::kMxfp4), WeightFormat::kMxfp4);
  EXPECT_EQ(FormatOn(Backend::kCuda, WeightFormat::kMxfp4), WeightFormat::kMxfp4Halves);
}

TEST(WeightFormat, FormatsKeepTheirDtypesExactly) {
  EXPECT_EQ(FormatFor(tensor::DType::kBF16)->format, WeightFormat::kBF16);
  EXPECT_EQ(FormatFor(tensor::DType::kF32)->format, WeightFormat::kF32);
  EXPECT_EQ(FormatFor(tensor::DType::kF16)->format, WeightFormat::kF16);
  EXPECT_EQ(FormatFor(tensor::DType::kQ4K)->format, WeightFormat::kQ4K);
  EXPECT_EQ(FormatFor(tensor::DType::kMxfp4)->format, WeightFormat::kMxfp4);
  EXPECT_EQ(FormatFor(tensor::DType::kI64), nullptr);
}

}  // namespace
}  // namespace trivet::kernels
