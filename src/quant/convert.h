// SPDX-License-Identifier: Apache-2.0
// Element formats to and from float, one element at a time, written for reading; models.md's number formats as code.
// Every conversion to float is exact, except the integers of 32 bits and more and F64, which round to nearest even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "tensor/dtype.h"

namespace trivet::quant {

/// BF16 is the upper half of an F32.
constexpr float FromBF16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

/// Rounds to nearest even; a NaN stays a NaN with its sign.
constexpr uint16_t ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// IEEE binary16; a NaN keeps its payload.
constexpr float FromF16(uint16_t bits) {
  const uint32_t sign = (uint32_t{bits} & 0x8000u) << 16;
  const uint32_t exponent = (uint32_t{bits} >> 10) & 0x1fu;
  const uint32_t mantissa = uint32_t{bits} & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  // 112 is the difference of the exponent biases, 127 - 15.
  const uint32_t wide = exponent == 0x1fu ? 0xffu : exponent + 112u;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

/// Rounds to nearest even, to infinity from 65520 up; a NaN stays a NaN with its sign.
constexpr uint16_t ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and more
  if (magnitude >= 0x38800000u) {                                              // 2^-14 and more: normal
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
  }
  // Subnormal, in units of 2^-24: the 24-bit significand times 2^(exponent - 126).
  const uint32_t shift = 126u - (magnitude >> 23);
  if (shift > 24u) return static_cast<uint16_t>(sign);
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t half = 1u << (shift - 1);
  const uint32_t odd = (significand >> shift) & 1u;
  return static_cast<uint16_t>(sign | ((significand + half - 1u + odd) >> shift));
}

/// F8_E4M3 (fn): bias 7, no infinity, 0x7F and 0xFF are NaN.
constexpr float FromE4M3(uint8_t bits) {
  const uint32_t sign = (uint32_t{bits} & 0x80u) << 24;
  const uint32_t exponent = (uint32_t{bits} >> 3) & 0xfu;
  const uint32_t mantissa = uint32_t{bits} & 0x7u;
  if ((bits & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-9f));
  }
  return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

/// Rounds to nearest even; what exceeds 448, infinities included, becomes 448 with its sign, a NaN stays one.
constexpr uint8_t ToE4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448 and more
  if (magnitude >= 0x3c800000u) {                                           // 2^-6 and more: normal
    const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
    return static_cast<uint8_t>(sign | ((rounded - (120u << 23)) >> 20));
  }
  // Subnormal, in units of 2^-9: adding 2^23 units leaves no room for fractions, so the sum is rounded to whole ones.
  const float units = std::bit_cast<float>(magnitude) * 0x1p9f + 0x1p23f;
  return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(units) & 0xfu));
}

/// Rounds to nearest even; what exceeds 6 becomes 6 with its sign. Not for NaN.
constexpr uint8_t ToE2M1(float value) {
  const float magnitude = value < 0 ? -value : value;
  // Halfway points between 0, 0.5, 1, 1.5, 2, 3, 4 and 6; one belongs to its even neighbour.
  constexpr float kHalfway[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
  uint8_t code = 0;
  for (int i = 0; i < 7; ++i) {
    if (i % 2 == 0 ? magnitude > kHalfway[i] : magnitude >= kHalfway[i]) code = static_cast<uint8_t>(i + 1);
  }
  return static_cast<uint8_t>(code | (std::bit_cast<uint32_t>(value) >> 28 & 8u));
}

/// An E2M1 code's value.
constexpr float FromE2M1(uint32_t code) {
  constexpr float kMagnitudes[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const float magnitude = kMagnitudes[code & 7U];
  return (code & 8U) != 0 ? -magnitude : magnitude;
}

/// F8_E5M2: the upper byte of an F16.
constexpr float FromE5M2(uint8_t bits) { return FromF16(static_cast<uint16_t>(uint32_t{bits} << 8)); }

/// F8_E4M3FNUZ: bias 8, no infinity, no negative zero; 0x80 is NaN. Half of what E4M3 (fn) means, save the NaNs.
constexpr float FromE4M3Fnuz(uint8_t bits) {
  if (bits == 0x80u) return std::bit_cast<float>(0x7fc00000u);
  // fn has no number here, so it is spelled out: 1.875 * 2^(15 - 8).
  if ((bits & 0x7fu) == 0x7fu) return bits == 0x7fu ? 240.0f : -240.0f;
  return FromE4M3(bits) * 0.5f;
}

/// F8_E5M2FNUZ: bias 16, no infinity, no negative zero; 0x80 is NaN.
constexpr float FromE5M2Fnuz(uint8_t bits) {
  if (bits == 0x80u) return std::bit_cast<float>(0x7fc00000u);
  const uint32_t sign = (uint32_t{bits} & 0x80u) << 24;
  const uint32_t exponent = (uint32_t{bits} >> 2) & 0x1fu;
  const uint32_t mantissa = uint32_t{bits} & 0x3u;
  if (exponent == 0) {
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-17f));
  }
  return std::bit_cast<float>(sign | ((exponent + 111u) << 23) | (mantissa << 21));
}

/// F8_E8M0: 2^(bits - 127), 0xFF is NaN. Byte 0 is 2^-127, an F32 subnormal.
constexpr float FromE8M0(uint8_t bits) {
  if (bits == 0xffu) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : uint32_t{bits} << 23);
}

/// Decodes elements to float; BOOL gives 0 or 1. Of a block format, whole blocks.
///   src      dst.size() elements, little-endian, any alignment
/// Errors:  kUnsupported names a dtype that has no decoding (C64 and safetensors' sub-byte formats).
Status DecodeToFloat(tensor::DType dtype, std::span<const std::byte> src, std::span<float> dst);

}  // namespace trivet::quant
