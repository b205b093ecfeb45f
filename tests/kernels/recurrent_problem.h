// SPDX-License-Identifier: Apache-2.0
// How the tests of kernels with state cut sequences into steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/token_span.h"

namespace trivet::kernels {

/// Steps that feed `count` tokens of one sequence: chunk lengths in turn, the last cut short.
inline std::vector<TokenSpan> Chunks(int32_t count, std::vector<int32_t> lengths, int32_t slot) {
  std::vector<TokenSpan> spans;
  for (int32_t start = 0, i = 0; start < count; ++i) {
    const int32_t length = std::min(lengths[static_cast<size_t>(i) % lengths.size()], count - start);
    spans.push_back({start, length, start, slot, nullptr});
    start += length;
  }
  return spans;
}

/// Ways to cut a sequence; the first is whole.
inline std::vector<std::vector<int32_t>> Chunkings() { return {{1000}, {1}, {2}, {7}, {1, 2, 3, 30}, {64}, {36, 1}}; }

}  // namespace trivet::kernels
