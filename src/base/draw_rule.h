// SPDX-License-Identifier: Apache-2.0
// How a token is drawn from a row of logits, as integers that mean the same everywhere: made of a request's parameters
// by the sampler (sampling/sampler.h: RuleOf), carried by step plans, followed by kernels (kernels/draw.h, which says
// what it does).
#pragma once

#include <cstdint>
#include <type_traits>

namespace trivet {

/// A probability of 1, in the steps of a rule's fractions.
inline constexpr uint64_t kDrawOne = uint64_t{1} << 53;

/// How one token is drawn. The default takes the best one.
struct DrawRule {
  uint64_t uniform = 0;       // the random number in [0, 1), in steps of 2^-53
  uint64_t top_p = kDrawOne;  // the part of the mass that is kept, best first, in (0, 1], in steps of 2^-53
  float scale = 1;            // logits are multiplied by it: 1 / temperature
  uint32_t min_weight = 0;    // tokens of less weight have none
  int32_t top_k = 1;          // how many are kept, best first; 0: all
  int32_t unused = 0;         // 0; the bytes of a rule have no gap

  /// Whether that is the best token, whatever the rest says.
  constexpr bool TakesBest() const { return top_k == 1; }
  bool operator==(const DrawRule&) const = default;
};
static_assert(sizeof(DrawRule) == 32 && std::is_trivially_copyable_v<DrawRule>);

}  // namespace trivet
