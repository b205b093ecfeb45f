// SPDX-License-Identifier: Apache-2.0
// The tokens of one sequence inside a step, as kernels see them.
#pragma once

#include <cstdint>

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

}  // namespace trivet::kernels
