// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/elementary.h"
#include "kernels/lanes.h"
#include "kernels/norm.h"
#include "kernels/reference.h"

namespace trivet::kernels {

void RmsNormRef(const RmsNorm::Args& args) {
  for (int64_t row = args.begin; row < args.end; ++row) {
    const float* x = args.x + args.x_rows.At(row);
    float* y = args.y + args.y_rows.At(row);
    const float inverse = 1.0F / std::sqrt(SumOfSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
    for (int64_t i = 0; i < args.n; ++i) y[i] = x[i] * inverse * (args.offset + args.weight[i]);
  }
}

void L2NormRef(const L2Norm::Args& args) {
  for (int64_t row = args.begin; row < args.end; ++row) {
    float* x = args.x + args.rows.At(row);
    const float inverse = 1.0F / std::sqrt(SumOfSquares(x, args.n) + 1e-6F);
    for (int64_t i = 0; i < args.n; ++i) x[i] = x[i] * inverse * args.scale;
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
