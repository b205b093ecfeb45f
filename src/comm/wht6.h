// SPDX-License-Identifier: Apache-2.0
// Parts of a sum in 6.25 bits a value, for links that are slow: groups of 64 floats are turned by a Walsh-Hadamard
// transform, which spreads an outlier over its group, and rounded to 6 bits with one scale. Processors and GPUs take
// the same steps, one definition for both.
//
// The transform is its own inverse and keeps lengths. With t the largest magnitude of a transformed group, the scale s
// is t / 31, rounded up to BF16, so s <= t / 31 * (1 + 2^-7), and no transformed value moves by more than s / 2. So a
// group moves by at most s / 2 a value in the root mean square, and no value by more than 4 s, that of 64 errors of
// s / 2 times 1/8 that all point the same way. Errors of ranks add up.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trivet::comm {

inline constexpr int64_t kWhtGroup = 64;  // values
inline constexpr int kWhtTop = 31;        // codes are -31 to 31
/// Values that one thread of a GPU holds: sixteen codes are three words.
inline constexpr int kWhtHeld = 16, kWhtWords = 3;
/// Of a group's codes.  Units: bytes.
inline constexpr int64_t kWhtCodeBytes = kWhtGroup / kWhtHeld * kWhtWords * 4;

/// Groups that a block of a GPU has at a time.
inline constexpr int64_t kWhtBlockGroups = 128;
/// What the transform's sums are multiplied by, so that it keeps lengths.
inline constexpr float kWhtLength = 0.125F;

/// Bytes of so many groups: all codes, then all scales.
constexpr int64_t WhtBytes(int64_t groups) { return groups * (kWhtCodeBytes + static_cast<int64_t>(sizeof(uint16_t))); }

/// One stage of the transform over values in a row: pairs `half` apart become sum and difference.
constexpr void WhtStage(float* values, int count, int half) {
  for (int i = 0; i < count; ++i) {
    if ((i & half) != 0) continue;
    const float a = values[i], b = values[i + half];
    values[i] = a + b;
    values[i + half] = a - b;
  }
}

/// The scale of a group whose largest transformed magnitude is `top`, as BF16: 0 of zeros, no number of what is none.
constexpr uint16_t WhtScale(float top) {
  const float exact = top / static_cast<float>(kWhtTop);
  const auto bits = std::bit_cast<uint32_t>(exact);
  if (!(exact <= 3e38F)) return 0x7FFF;
  return static_cast<uint16_t>((bits + 0xFFFFU) >> 16);
}

/// What a scale stands for.
constexpr float WhtScaleValue(uint16_t scale) { return std::bit_cast<float>(static_cast<uint32_t>(scale) << 16); }

/// The code of a transformed value, plus 32: rounded to nearest even.
constexpr uint32_t WhtCode(float value, float scale) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: what is added to it is rounded to whole numbers
  const float steps = value / scale;
  if (!(scale > 0) || !(steps >= -32 && steps <= 32)) return 32;
  return static_cast<uint32_t>(static_cast<int32_t>((steps + kMagic) - kMagic) + 32);
}

/// Sixteen values as three words of codes, and the transformed values back, which are exact.
constexpr void WhtPack(const float* values, float scale, uint32_t* words) {
  uint64_t low = 0, high = 0;  // 8 codes each, of which 48 bits are used
  for (int i = 0; i < kWhtHeld / 2; ++i) {
    low |= static_cast<uint64_t>(WhtCode(values[i], scale)) << (6 * i);
    high |= static_cast<uint64_t>(WhtCode(values[i + kWhtHeld / 2], scale)) << (6 * i);
  }
  words[0] = static_cast<uint32_t>(low);
  words[1] = static_cast<uint32_t>(low >> 32 | high << 16);
  words[2] = static_cast<uint32_t>(high >> 16);
}
constexpr float WhtValue(const uint32_t* words, int i, float scale) {
  const uint64_t low = words[0] | static_cast<uint64_t>(words[1] & 0xFFFFU) << 32;
  const uint64_t high = words[1] >> 16 | static_cast<uint64_t>(words[2]) << 16;
  const uint64_t half = i < kWhtHeld / 2 ? low : high;
  const auto code = static_cast<int32_t>(half >> (6 * (i % (kWhtHeld / 2))) & 63U);
  return static_cast<float>(code - 32) * scale;
}

/// Whole groups of values as codes and scales.
///   packed   WhtBytes of them, at a multiple of 4 bytes
void WhtEncode(std::span<const float> values, std::byte* packed);
/// What the groups [begin, end) of packed messages of `groups` sum up to: transformed values are added in float32 in
/// the order of the parts, beginning with the first, and turned back once.
///   sum      of group `begin` and those behind it
void WhtSum(std::span<const std::byte* const> parts, int64_t groups, int64_t begin, int64_t end, float* sum);

}  // namespace trivet::comm
