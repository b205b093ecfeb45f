// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a number is a pure function of what it is for, so that it does not depend on batch
// mates, on the order of requests or on the rank that asks.
#pragma once

#include <array>
#include <cstdint>

namespace trivet::sampling {

/// Four random words for a counter and a key.
/// Source:  Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// What a random number is for.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t request = 0;  // tells requests of one seed apart, such as the choice index
  int64_t position = 0;  // position of the token to be drawn, in [0, 2^32)
  uint32_t slot = 0;     // tells several numbers of one position apart
};

/// Uniform in [0, 1), a multiple of 2^-53.
double UniformDouble(const RandomKey& key);

/// Uniform in [0, 1), a multiple of 2^-24.
float UniformFloat(const RandomKey& key);

}  // namespace trivet::sampling
