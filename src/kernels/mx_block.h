// SPDX-License-Identifier: Apache-2.0
// Products with MXFP4 weights in integers: what a block of 32 activations and a block of 32 weights become, for
// processors and devices alike (docs/numerics.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/weight_format.h"

namespace trivet::kernels {

/// Columns of a block.
inline constexpr int64_t kMxColumns = 32;

/// Magnitudes of a block's activations lie below 2^E and become multiples of 2^(E - 22), of which one leaves 22 bits.
inline constexpr int kMxBits = 22;
/// E is never less: what it would add lies far below the grid of sums, and 2^(E - 23) stays a normal number.
inline constexpr int kMxLeastExponent = -100;

/// Whether products with `w` are made of these integers and not by chains. It depends on the model alone: cuts lie on
/// borders of leaves, so that their phase is one of whole blocks too.
constexpr bool MxServes(const PackedMatrix& w) {
  return BlocksOf(w.format) == quant::BlockFormat::kMxfp4 && w.leaf % kMxColumns == 0 && w.phase % kMxColumns == 0;
}

/// A magnitude's bits; those of a larger magnitude are larger, an infinity's and a NaN's largest.
constexpr uint32_t MxMagnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFFU; }

/// E of a block from the bits of its largest magnitude m: 2^(E - 1) <= m < 2^E, or the least.
constexpr int MxExponent(uint32_t largest) {
  return std::max(+kMxLeastExponent, static_cast<int>(largest >> 23) - 126);
}

/// Whether a block with this largest magnitude has numbers only.
constexpr bool MxFinite(uint32_t largest) { return largest < 0x7F800000U; }

/// 2^power, of a normal number.
constexpr float MxPower(int power) { return std::bit_cast<float>(static_cast<uint32_t>(power + 127) << 23); }

/// What brings activations of a block to integers, of at most 2^22.
constexpr float MxToInteger(int exponent) { return MxPower(kMxBits - exponent); }

/// What brings a block's products back: 2^(E - 23), half a step, since weights are counted twice (MxCode). No number
/// where an activation is none.
constexpr float MxFactor(uint32_t largest) {
  return MxFinite(largest) ? MxPower(MxExponent(largest) - kMxBits - 1) : std::numeric_limits<float>::quiet_NaN();
}

/// 1.5 * 2^23: sums with it have steps of 1.
inline constexpr float kMxMagic = 12582912.0F;
/// To the nearest whole number, ties to even; |x| <= 2^22.
constexpr float MxWhole(float x) { return (x + kMxMagic) - kMxMagic; }
constexpr int32_t MxRound(float x) { return static_cast<int32_t>(MxWhole(x)); }

/// A block of activations.
struct MxBlock {
  int32_t q[kMxColumns] = {};
  float factor = 0;
};

/// The block of `count` activations, zeros behind them. Where one is no finite number, all integers are zero.
constexpr MxBlock MxBlockOf(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t k = 0; k < count; ++k) largest = std::max(largest, MxMagnitude(x[k]));
  MxBlock block;
  block.factor = MxFactor(largest);
  if (!MxFinite(largest)) return block;
  const float to_integer = MxToInteger(MxExponent(largest));
  for (int64_t k = 0; k < count; ++k) block.q[k] = MxRound(x[k] * to_integer);
  return block;
}

/// Twice the value of an E2M1 code.
constexpr int32_t MxCode(uint8_t code) {
  constexpr int8_t kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  return kTwice[code & 15];
}

/// The value of a weight block's E8M0 scale, whose byte 0 counts as zero, since products with it lie below the grid,
/// and 255 as infinity, which is an error in every sum.
constexpr float MxWeightScale(uint8_t byte) { return std::bit_cast<float>(static_cast<uint32_t>(byte) << 23); }

}  // namespace trivet::kernels
