// SPDX-License-Identifier: Apache-2.0
// The tokens of one sequence inside a step, as kernels see them.
#pragma once

#include <cstdint>
#include <span>

namespace trivet::kernels {

/// `count` consecutive tokens of one sequence: rows [token_begin, token_begin + count) of the step's activations, at
/// absolute positions from `start`.
struct TokenSpan {
  int32_t token_begin = 0;
  int32_t count = 0;
  int32_t start = 0;               // 0: recurrent state begins as zero, whatever the slot holds
  int32_t state_slot = 0;          // recurrent state of the sequence
  const int32_t* pages = nullptr;  // [ceil((start + count) / 64)] KV pages in order of position
};

/// Index of the span that holds token row `t` of the step: the last one that begins at or before it.
constexpr int64_t SpanIndexOf(std::span<const TokenSpan> spans, int64_t t) {
  int64_t low = -1, high = static_cast<int64_t>(spans.size());  // the span at `low` begins at or before t, `high` later
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (spans.data()[middle].token_begin <= t ? low : high) = middle;
  }
  return low;
}

}  // namespace trivet::kernels
