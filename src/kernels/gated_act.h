// SPDX-License-Identifier: Apache-2.0
// Gates: the MLP's act(gate) * up, and the attention output's sigmoid gate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/kernel.h"

namespace trivet::kernels {

/// How a gated MLP combines gate and up.
enum class Activation {
  kSilu,           // silu(gate) * up
  kGeluTanh,       // gelu, tanh form, (gate) * up
  kClampedSwiglu,  // see elementary.inc; takes limit and alpha
};

/// y = act(gate) * up, or the clamped form of both.
///   x      [M, 2F] float32, dense: F gate values, then F up values
///   y      [M, F] float32, dense
///   range  rows [begin, end)
struct GatedAct {
  struct Args {
    const float* x = nullptr;
    float* y = nullptr;
    int64_t width = 0;  // F
    int64_t begin = 0, end = 0;
    Activation activation = Activation::kSilu;
    float limit = 0, alpha = 0;      // of the clamped form
    const int32_t* count = nullptr;  // rows that there are, where kernels can read it; null: all of the range
  };
  static constexpr std::string_view kName = "gated_act";
  static std::span<const KernelRow<GatedAct>> Rows();
  static std::span<const KernelRow<GatedAct>> CudaRows();
};

/// The end of the rows that there are.
constexpr int64_t EndOf(const GatedAct::Args& args) {
  return args.count == nullptr ? args.end : std::min<int64_t>(args.end, *args.count);
}

/// x = x * sigmoid(gate), in place, head by head.
///   x      [T, heads * n] float32, dense
///   gate   head h of token t is at gate + t * gate_stride + h * gate_head_stride, n values
///   range  tokens [begin, end)
struct SigmoidGate {
  struct Args {
    float* x = nullptr;
    const float* gate = nullptr;
    int64_t gate_stride = 0;
    int64_t gate_head_stride = 0;
    int64_t heads = 0;
    int64_t n = 0;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "sigmoid_gate";
  static std::span<const KernelRow<SigmoidGate>> Rows();
  static std::span<const KernelRow<SigmoidGate>> CudaRows();
};

}  // namespace trivet::kernels
