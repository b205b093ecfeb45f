// SPDX-License-Identifier: Apache-2.0
// Elementary functions in float32, made of IEEE additions, multiplications, divisions and comparisons alone, so that
// scalar code, vector code and devices give the same bits. `Ops` supplies the arithmetic: ScalarOps here, VectorOps in
// ops-inl.h. No fused operation: a machine without one must give the same result.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace trivet::kernels {

/// float32 arithmetic on one value.
struct ScalarOps {
  using F = float;
  using I = int32_t;
  static constexpr F Set(float x) { return x; }
  static constexpr F Add(F a, F b) { return a + b; }
  static constexpr F Sub(F a, F b) { return a - b; }
  static constexpr F Mul(F a, F b) { return a * b; }
  static constexpr F Div(F a, F b) { return a / b; }
  static constexpr F Min(F a, F b) { return a < b ? a : b; }         // b when a is NaN
  static constexpr F Max(F a, F b) { return a > b ? a : b; }         // b when a is NaN
  static constexpr I ToInt(F a) { return static_cast<int32_t>(a); }  // a holds an integer
  static constexpr I AddInt(I a, int32_t b) { return a + b; }
  static constexpr I SubInt(I a, I b) { return a - b; }
  static constexpr I Half(I a) { return a >> 1; }
  /// 2^n for n in [-126, 127].
  static constexpr F PowerOfTwo(I n) { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }
};

#include "kernels/elementary.inc"

/// The least argument of ExpInRange.
inline constexpr float kLeastExp = -80;

/// Exp<ScalarOps>(x) for x in [kLeastExp, 0], in two thirds of the instructions: the result is normal, so 2^n goes into
/// its exponent.
constexpr float ExpInRange(float x) {
  const ExpParts<ScalarOps> parts = PartsOfExp<ScalarOps>(x);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(parts.value) + (std::bit_cast<uint32_t>(parts.shifted) << 23));
}

/// log(1 + exp(x)), computed in double and rounded once; above 20 it is x, as the common definition has it.
/// Source: log1p(y) = 2 artanh(y / (2 + y)); y is in (0, 1], so the argument is at most 1/3 and nine odd terms leave
/// less than 1e-10.
constexpr float Softplus(float x) {
  if (x > 20.0F) return x;
  const double y = static_cast<double>(Exp<ScalarOps>(-std::fabs(x)));
  const double s = y / (2.0 + y);
  const double s2 = s * s;
  double p = 0;
  for (const double odd : {17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0}) p = p * s2 + 1.0 / odd;
  return static_cast<float>(2.0 * s * p + static_cast<double>(std::max(x, 0.0F)));
}

}  // namespace trivet::kernels
