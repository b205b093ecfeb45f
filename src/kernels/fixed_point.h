// SPDX-License-Identifier: Apache-2.0
// The grid on which leaf sums are added: 64-bit integers in steps of 2^-30 (docs/numerics.md).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/backend.h"

namespace trivet::kernels {

/// How sums over K and over ranks are made.
enum class Numerics {
  kExact,  // leaves on the integer grid: the same bits for every layout
  kFast,   // float32, leaves and ranks in ascending order: the same bits for the same layout
};

/// How one rank adds leaves. On a GPU blocks share the leaves of a sum, which integers alone allow in any order: there
/// floats are what ranks add up.
constexpr Numerics WithinRank(Numerics numerics, Backend backend) {
  return backend == Backend::kCpu ? numerics : Numerics::kExact;
}

/// Grid exponent g: one step is 2^-30, so rounding a leaf costs at most 2^-31 = 4.7e-10.
inline constexpr int kGridBits = 30;

/// Largest magnitude of one leaf's contribution; beyond it the contribution saturates and the step reports it.
/// 2^20 * 2^30 = 2^50 leaves room for 2^13 saturated leaves in an int64, and keeps the conversion below inside the
/// 52 bits of a double's mantissa.
inline constexpr float kLeafLimit = 1048576.0F;

/// 1.5 * 2^52: added to a double below 2^51 in magnitude, it leaves the nearest integer (ties to even) in the low
/// mantissa bits.
inline constexpr double kRoundingMagic = 6755399441055744.0;
inline constexpr double kGridScale = 1073741824.0;       // 2^30
inline constexpr double kGridStep = 1.0 / 1073741824.0;  // 2^-30

/// What a step met that the grid cannot hold; bits of one word.
enum RangeFlags : uint32_t {
  kInRange = 0,
  kSaturated = 1,  // a finite part over the limit
  kNonFinite = 2,  // an infinity or a NaN
};

/// The flags of one part.
constexpr uint32_t RangeOf(float part) {
  if (std::fabs(part) <= kLeafLimit) return kInRange;
  return std::isfinite(part) ? kSaturated : kNonFinite;
}

/// A leaf's contribution on the grid, round to nearest even. Magnitudes over the limit and infinities saturate with
/// their sign, NaN (whose sign depends on operand order and machine) to the positive limit; each raises its flag.
constexpr int64_t ToGrid(float leaf, uint32_t* flags) {
  if (!(std::fabs(leaf) <= kLeafLimit)) {
    *flags |= RangeOf(leaf);
    leaf = leaf < 0 ? -kLeafLimit : kLeafLimit;
  }
  // The product is exact (a power of two), so the sum below is the only rounding.
  const double shifted = static_cast<double>(leaf) * kGridScale + kRoundingMagic;
  return std::bit_cast<int64_t>(shifted) - std::bit_cast<int64_t>(kRoundingMagic);
}

/// The value of a grid sum: rounded to double, then to float, both to nearest even.
constexpr float FromGrid(int64_t sum) { return static_cast<float>(static_cast<double>(sum) * kGridStep); }

}  // namespace trivet::kernels
