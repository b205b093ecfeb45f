// SPDX-License-Identifier: Apache-2.0
// From floats to FP8 and MXFP4: the scale of a block and its codes. Everything rounds to nearest even, saturates, and
// is defined to the bit (docs/formats.md).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trivet::quant {

/// Rows and columns that share one FP8 scale.
inline constexpr int64_t kFp8Block = 128;

/// Columns that share one MXFP4 scale.
inline constexpr int64_t kMxfp4Block = 32;

/// The largest magnitude; an infinity or NaN among the values gives one.
float LargestMagnitude(std::span<const float> values);

/// The scale of an FP8 block whose largest magnitude is `largest`: largest / 448, at least the smallest normal float;
/// 1 for a block of zeros, so that it may be divided by.
float Fp8Scale(float largest);

/// The E8M0 byte of the smallest power of two that is at least largest / 448, no less than 2^-126; 0 for zero, 255 for
/// what is not finite.
///   largest  a magnitude
constexpr uint8_t Fp8Exponent(float largest) {
  const auto bits = std::bit_cast<uint32_t>(largest);
  if (bits == 0) return 0;
  if (bits >= 0x7f800000u) return 255;
  // 448 is 1.75 * 2^8.
  const int exponent = static_cast<int>(bits >> 23) - 8 + ((bits & 0x7fffffu) > 0x600000u ? 1 : 0);
  return static_cast<uint8_t>(exponent < 1 ? 1 : exponent);
}

/// Codes of values under a scale: value / scale, rounded.
///   codes   values.size() bytes
void EncodeFp8(std::span<const float> values, float scale, std::span<std::byte> codes);

/// The scale of an MXFP4 block as an E8M0 byte by the rule of the OCP MX specification, 2^(floor(log2(largest)) - 2),
/// within 2^-127 and 2^127; 2^-127 for a block of zeros, which cannot be the largest scale of its row.
uint8_t OcpScale(float largest);

/// Codes of one block under a scale, two a byte, the first in the low nibble.
///   values  kMxfp4Block finite values;  codes  kMxfp4Block / 2 bytes
///   returns the sum of squared errors, in ascending order of the values, in double
double EncodeMxfp4(std::span<const float> values, uint8_t scale, std::span<std::byte> codes);

/// Quantises one block: of OcpScale and twice it the one with less squared error, the smaller when equal.
///   returns the scale
uint8_t QuantizeMxfp4(std::span<const float> values, std::span<std::byte> codes);

}  // namespace trivet::quant
