// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/elementary.h"
#include "kernels/lanes.h"
#include "kernels/norm.h"
#include "kernels/reference.h"

namespace trivet::kernels {

void ClearSums(const AddNorm::Args& args) {
  const int64_t begin = args.begin * args.n, count = (args.end - args.begin) * args.n;
  if (args.sums_fixed != nullptr) std::fill_n(args.sums_fixed + begin, count, 0);
  if (args.sums_fast != nullptr) std::fill_n(args.sums_fast + begin, count, 0.0F);
}

void RmsNormRef(const RmsNorm::Args& args) {
  for (int64_t row = args.begin; row < args.end; ++row) {
    const float* x = args.x + args.x_rows.At(row);
    float* y = args.y + args.y_rows.At(row);
    const float inverse = 1.0F / std::sqrt(SumOfSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
    for (int64_t i = 0; i < args.n; ++i) y[i] = x[i] * inverse * (args.offset + args.weight[i]);
  }
}

void AddNormRef(const AddNorm::Args& args) {
  AddSumsRef({args.x, args.sums_fixed, args.sums_fast, args.begin * args.n, args.end * args.n});
  const NestedRows rows{1, args.n, 0};
  RmsNormRef({args.x, rows, args.y, rows, args.weight, args.n, args.eps, args.offset, args.begin, args.end});
  ClearSums(args);
}

void L2NormRef(const L2Norm::Args& args) {
  for (int64_t row = args.begin; row < args.end; ++row) {
    float* x = args.x + args.rows.At(row);
    const float inverse = 1.0F / std::sqrt(SumOfSquares(x, args.n) + 1e-6F);
    for (int64_t i = 0; i < args.n; ++i) x[i] = x[i] * inverse * args.ScaleOf(row);
  }
}

void GatedNormRef(const GatedNorm::Args& args) {
  for (int64_t row = args.begin; row < args.end; ++row) {
    float* x = args.x + args.x_rows.At(row);
    const float* gate = args.gate + args.gate_rows.At(row);
    const float inverse = 1.0F / std::sqrt(SumOfSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
    for (int64_t i = 0; i < args.n; ++i) x[i] = x[i] * inverse * args.weight[i] * Silu<ScalarOps>(gate[i]);
  }
}

}  // namespace trivet::kernels
