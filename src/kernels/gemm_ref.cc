// SPDX-License-Identifier: Apache-2.0
// The specification of Gemm, one output at a time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/reference.h"

namespace trivet::kernels {
namespace {

float Leaf(const float* x, const float* w, int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t k = begin; k < end; ++k) sum = std::fma(x[k], w[k], sum);
  return sum;
}

void One(const Gemm::Args& args, const float* weights, int64_t m, int64_t n) {
  const PackedMatrix& w = *args.w;
  const float* x = args.x + (args.x_rows == nullptr ? m : args.x_rows[m]) * args.x_stride;
  const float scale = args.row_scale == nullptr ? 1.0F : args.row_scale[m];
  const int64_t at = (args.y_rows == nullptr ? m : args.y_rows[m]) * args.y_stride + n;
  int64_t fixed = 0;
  float fast = 0;
  uint32_t flags = kInRange;
  for (int64_t k = 0; k < w.k; k += w.leaf) {
    const float leaf = Leaf(x, weights, k, std::min(k + w.leaf, w.k));
    fixed += ToGrid(scale * leaf, &flags);
    fast += leaf;
  }
  const bool exact = args.numerics == Numerics::kExact;
  if (args.y != nullptr) {
    args.y[at] = exact ? FromGrid(fixed) : fast;
  } else if (exact) {
    args.sums_fixed[at] += fixed;
  } else {
    args.sums_fast[at] += scale * fast;
  }
  if (flags != kInRange && exact) args.flags->fetch_or(flags, std::memory_order_relaxed);
}

}  // namespace

void GemmRef(const Gemm::Args& args) {
  const PackedMatrix& w = *args.w;
  const int64_t n_end = std::min(args.tile_end * kTileRows, w.n);
  std::vector<float> weights(static_cast<size_t>(w.k));
  for (int64_t n = args.tile_begin * kTileRows; n < n_end; ++n) {
    for (int64_t k = 0; k < w.k; ++k) weights[static_cast<size_t>(k)] = Element(w, n, k);
    for (int64_t m = 0; m < args.m; ++m) One(args, weights.data(), m, n);
  }
}

}  // namespace trivet::kernels
