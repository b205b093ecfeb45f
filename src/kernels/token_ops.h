// SPDX-License-Identifier: Apache-2.0
// What happens to whole token rows: lookup, rotation, routing, residual sums. Memory-bound or tiny, so plain C++ is
// their only row.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/fixed_point.h"
#include "kernels/kernel.h"
#include "kernels/weight_format.h"

namespace trivet::kernels {

/// x[t] = embedding row tokens[t] when this rank holds it, else zeros.
///   table    packed [V_local, H]; its row 0 is vocabulary id first_id; `real` rows exist
///   x        [T, H] float32, dense;  range: tokens [begin, end)
/// Ranks:     exactly one rank writes a non-zero row, so adding the bit patterns as integers over ranks is exact.
struct Embed {
  struct Args {
    const PackedMatrix* table = nullptr;
    int64_t first_id = 0;
    int64_t real = 0;
    const int32_t* tokens = nullptr;
    float* x = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "embed";
  static std::span<const KernelRow<Embed>> Rows();
};

/// Rotates the first 2 * half channels of every head in place: (a, b) = (a cos - b sin, b cos + a sin) for the pairs
/// (i, i + half), products rounded before they are added.
///   x         head h of token t is at x + t * stride + h * head_stride
///   cos, sin  [T, half] float32 of the tokens' angles
///   range     tokens [begin, end)
/// Source:     RoFormer, half-split order.
struct Rope {
  struct Args {
    float* x = nullptr;
    int64_t stride = 0;
    int64_t head_stride = 0;
    int64_t heads = 0;
    int64_t half = 0;
    const float* cos = nullptr;
    const float* sin = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "rope";
  static std::span<const KernelRow<Rope>> Rows();
};

/// The top_k largest router logits of each token (ties: lower expert first), in descending order, and their softmax
/// weights among themselves: w_i = e_i / sum(e), e_i = exp(l_i - l_0), the sum in that order. This equals the softmax
/// over all experts renormalised over the chosen ones.
///   logits   [T, *] float32, row stride logits_stride, the first E columns
///   experts  [T, top_k] logical ids;  weights [T, top_k];  range: tokens [begin, end)
struct Route {
  struct Args {
    const float* logits = nullptr;
    int64_t logits_stride = 0;
    int64_t experts_total = 0;  // E
    int64_t top_k = 0;
    int32_t* experts = nullptr;
    float* weights = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "route";
  static std::span<const KernelRow<Route>> Rows();
};

/// x += the reduced sum: FromGrid(sums_fixed) or sums_fast, whichever is given.
///   x, sums  dense;  range: elements [begin, end)
struct AddSums {
  struct Args {
    float* x = nullptr;
    const int64_t* sums_fixed = nullptr;
    const float* sums_fast = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "add_sums";
  static std::span<const KernelRow<AddSums>> Rows();
};

}  // namespace trivet::kernels
