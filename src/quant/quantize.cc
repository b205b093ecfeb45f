// SPDX-License-Identifier: Apache-2.0
#include "quant/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>

#include "base/check.h"
#include "quant/convert.h"

namespace trivet::quant {
namespace {

constexpr float kLargestE4M3 = 448;
constexpr int kLargestE2M1Exponent = 2;  // 6 is 1.5 * 2^2
constexpr int kE8M0Bias = 127;
constexpr uint8_t kLargestE8M0 = 254;
constexpr float kE2M1[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

}  // namespace

float LargestMagnitude(std::span<const float> values) {
  // Magnitudes order like their bits, NaNs above all.
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  return std::bit_cast<float>(largest);
}

float Fp8Scale(float largest) { return largest == 0 ? 1.0F : std::max(largest / kLargestE4M3, FLT_MIN); }

void EncodeFp8(std::span<const float> values, float scale, std::span<std::byte> codes) {
  CHECK(values.size() == codes.size());
  for (size_t i = 0; i < values.size(); ++i) codes[i] = std::byte{ToE4M3(values[i] / scale)};
}

uint8_t OcpScale(float largest) {
  if (largest == 0) return 0;
  return static_cast<uint8_t>(std::clamp(std::ilogb(largest) - kLargestE2M1Exponent + kE8M0Bias, 0, int{kLargestE8M0}));
}

double EncodeMxfp4(std::span<const float> values, uint8_t scale, std::span<std::byte> codes) {
  CHECK(values.size() == kMxfp4Block && codes.size() == kMxfp4Block / 2);
  // A power of two: dividing by it, and multiplying, is exact in double.
  const double unit = FromE8M0(scale);
  double error = 0;
  std::array<uint8_t, kMxfp4Block> code;
  for (size_t i = 0; i < values.size(); ++i) {
    const double scaled = values[i] / unit;
    // Clamping first keeps the conversion to float in range; 8 is beyond every halfway point.
    code[i] = ToE2M1(static_cast<float>(std::clamp(scaled, -8.0, 8.0)));
    const double magnitude = kE2M1[code[i] & 7U];
    const double difference = values[i] - std::copysign(magnitude, scaled) * unit;
    error += difference * difference;
  }
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(code[2 * i] | code[2 * i + 1] << 4);
  return error;
}

uint8_t QuantizeMxfp4(std::span<const float> values, std::span<std::byte> codes) {
  const uint8_t scale = OcpScale(LargestMagnitude(values));
  const double error = EncodeMxfp4(values, scale, codes);
  if (error == 0 || scale == kLargestE8M0) return scale;
  std::array<std::byte, kMxfp4Block / 2> wider;
  const auto next = static_cast<uint8_t>(scale + 1);
  if (EncodeMxfp4(values, next, wider) >= error) return scale;
  std::copy(wider.begin(), wider.end(), codes.begin());
  return next;
}

}  // namespace trivet::quant
