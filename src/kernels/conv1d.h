// SPDX-License-Identifier: Apache-2.0
// The delta net's causal depthwise convolution.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel.h"
#include "kernels/token_span.h"

namespace trivet::kernels {

/// y[t][c] = silu(fma chain over taps j ascending of taps[j][c] * x[t - W + 1 + j][c]); inputs before a sequence's
/// start are zero, inputs before the span come from the state, which ends up holding the last W - 1 raw inputs.
///   x      [T, *] float32, row stride x_stride, the first C columns
///   taps   [W, C] float32, the newest input meets tap W - 1
///   state  [slots][W - 1, C] float32: slot s of this layer is at state + s * state_stride; oldest first
///   y      [T, C] float32, dense
///   range  channels [begin, end), all spans
struct Conv1d {
  struct Args {
    const float* x = nullptr;
    int64_t x_stride = 0;
    const float* taps = nullptr;
    float* state = nullptr;
    int64_t state_stride = 0;
    float* y = nullptr;
    int64_t channels = 0;
    int64_t width = 0;  // W
    std::span<const TokenSpan> spans;
    int64_t tokens = 0;  // T
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "conv1d";
  static std::span<const KernelRow<Conv1d>> Rows();
  static std::span<const KernelRow<Conv1d>> CudaRows();
};

}  // namespace trivet::kernels
