// SPDX-License-Identifier: Apache-2.0
// The order of sums inside one rank over a row: sixteen running sums by index modulo 16, then a halving tree. Sixteen
// covers 8-lane and 16-lane vectors and scalar code with the same additions.
#pragma once

#include <cstdint>

namespace trivet::kernels {

inline constexpr int64_t kLanes = 16;

/// Sum of `count` values (a power of two) by halving: element i takes element i + half, until one is left. In place.
constexpr float HalvingSum(float* values, int64_t count) {
  for (int64_t half = count / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

/// Sum of squares of x[0 .. n) in the order above; products are rounded before they are added.
constexpr float SumOfSquares(const float* x, int64_t n) {
  float sums[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) sums[i % kLanes] += x[i] * x[i];
  return HalvingSum(sums, kLanes);
}

}  // namespace trivet::kernels
