// SPDX-License-Identifier: Apache-2.0
#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <array>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "quant/blocks.h"
#include "quant/convert.h"

namespace trivet::quant {
namespace {

using Codes = std::array<std::byte, kMxfp4Block / 2>;

// What codes and scale mean, by the decoder.
std::vector<float> Decoded(uint8_t scale, const Codes& codes) {
  std::vector<std::byte> block = {std::byte{scale}};
  block.insert(block.end(), codes.begin(), codes.end());
  std::vector<float> values(kMxfp4Block);
  DecodeBlocks(BlockFormat::kMxfp4, block, values);
  return values;
}

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

TEST(Quantize, LargestMagnitudeSeesSignsAndWhatIsNotFinite) {
  EXPECT_EQ(LargestMagnitude({}), 0);
  EXPECT_EQ(LargestMagnitude(std::array{1.0F, -3.0F, 2.0F}), 3);
  EXPECT_TRUE(std::isinf(LargestMagnitude(std::array{1.0F, -INFINITY})));
  EXPECT_TRUE(std::isnan(LargestMagnitude(std::array{INFINITY, NAN})));
}

TEST(Quantize, Fp8ScaleMapsTheLargestTo448) {
  EXPECT_EQ(Fp8Scale(448), 1);
  EXPECT_EQ(Fp8Scale(1), 1.0F / 448);
  EXPECT_EQ(Fp8Scale(0), 1);
  EXPECT_EQ(Fp8Scale(std::numeric_limits<float>::denorm_min()), FLT_MIN);
  // The largest comes back as it was, and nothing becomes a NaN, whatever the division rounds to.
  std::mt19937 random(1);
  std::uniform_int_distribution<uint32_t> bits(0x00800000, 0x7f7fffff);
  for (int i = 0; i < 20000; ++i) {
    const auto largest = std::bit_cast<float>(bits(random));
    std::array<std::byte, 2> codes;
    EncodeFp8(std::array{largest, -largest}, Fp8Scale(largest), codes);
    if (Fp8Scale(largest) == FLT_MIN) continue;
    EXPECT_EQ(codes[0], std::byte{0x7e}) << largest;
    EXPECT_EQ(codes[1], std::byte{0xfe}) << largest;
  }
}

TEST(Quantize, Fp8ExponentIsThatOfTheSmallestPowerThatFits) {
  for (const float largest : {448.0F, 448.1F, 1.0F, 1.75F, 1.76F, 3e38F, 1e-30F, 224.0F, 0.3F}) {
    const float scale = FromE8M0(Fp8Exponent(largest));
    EXPECT_LE(largest / scale, 448) << largest;
    EXPECT_GT(largest / (scale / 2), 448) << largest;
  }
  EXPECT_EQ(FromE8M0(Fp8Exponent(1e-40F)), 0x1p-126F) << "no subnormal scale";
  EXPECT_EQ(Fp8Exponent(0), 0);
  for (const float none : {INFINITY, NAN}) EXPECT_TRUE(std::isnan(FromE8M0(Fp8Exponent(none))));
}

TEST(Quantize, OcpScalePutsTheLargestBetweenFourAndEight) {
  EXPECT_EQ(OcpScale(0), 0);
  EXPECT_EQ(OcpScale(4), 127);
  EXPECT_EQ(OcpScale(7.9F), 127);
  EXPECT_EQ(OcpScale(8), 128);
  EXPECT_EQ(OcpScale(3.99F), 126);
  EXPECT_EQ(OcpScale(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(OcpScale(FLT_MAX), 252);
}

TEST(Quantize, Mxfp4KeepsWhatItCanHold) {
  std::vector<float> values(kMxfp4Block, 0.0F);
  constexpr float kValues[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (size_t i = 0; i < 16; ++i) values[i] = (i < 8 ? kValues[i] : -kValues[i - 8]) * 0x1p-9F;
  Codes codes;
  const uint8_t scale = QuantizeMxfp4(values, codes);
  EXPECT_EQ(scale, 127 - 9);
  EXPECT_EQ(Decoded(scale, codes), values);
  EXPECT_EQ(codes[0], std::byte{0x10});  // the first element is in the low nibble
}

TEST(Quantize, Mxfp4OfZerosIsZeroUnderTheSmallestScale) {
  Codes codes;
  EXPECT_EQ(QuantizeMxfp4(std::vector<float>(kMxfp4Block, 0.0F), codes), 0);
  for (const std::byte code : codes) EXPECT_EQ(code, std::byte{0});
}

TEST(Quantize, Mxfp4SaturatesOrDoublesTheScaleByTheError) {
  // 7.5 alone: 6 is off by 1.5, and under twice the scale 4 means 8, off by 0.5.
  std::vector<float> values(kMxfp4Block, 0.0F);
  values[0] = 7.5F;
  Codes codes;
  EXPECT_EQ(QuantizeMxfp4(values, codes), 128);
  EXPECT_EQ(Decoded(128, codes)[0], 8);
  // With neighbours that the wider steps would lose, it is clipped.
  for (size_t i = 1; i < values.size(); ++i) values[i] = 0.5F;
  EXPECT_EQ(QuantizeMxfp4(values, codes), 127);
  EXPECT_EQ(Decoded(127, codes)[0], 6);
  EXPECT_EQ(Decoded(127, codes)[1], 0.5F);
}

TEST(Quantize, Mxfp4ErrorIsThatOfTheDecoderAndNeverAboveTheOcpRule) {
  std::mt19937 random(2);
  double ocp = 0, chosen = 0, square = 0;
  for (int i = 0; i < 4000; ++i) {
    std::normal_distribution<float> normal(0, std::ldexp(1.0F, i % 60 - 40));
    std::vector<float> values(kMxfp4Block);
    for (float& value : values) value = normal(random);
    Codes codes;
    const uint8_t smaller = OcpScale(LargestMagnitude(values));
    const double smaller_error = EncodeMxfp4(values, smaller, codes);
    EXPECT_EQ(smaller_error, SquaredError(values, Decoded(smaller, codes)));
    const uint8_t scale = QuantizeMxfp4(values, codes);
    EXPECT_TRUE(scale == smaller || scale == smaller + 1);
    const double error = SquaredError(values, Decoded(scale, codes));
    EXPECT_LE(error, smaller_error);
    const double norm = SquaredError(values, std::vector<float>(kMxfp4Block, 0.0F));
    ocp += smaller_error / norm, chosen += error / norm, ++square;
  }
  std::printf("relative mean square error of normal values: %.5f by the OCP rule, %.5f as chosen\n", ocp / square,
              chosen / square);
  EXPECT_LT(chosen, 0.95 * ocp);
}

}  // namespace
}  // namespace trivet::quant
