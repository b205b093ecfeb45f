// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementary.h"
#include "kernels/gated_act.h"
#include "kernels/reference.h"

namespace trivet::kernels {

void GatedActRef(const GatedAct::Args& args) {
  for (int64_t m = args.begin; m < EndOf(args); ++m) {
    const float* gate = args.x + m * 2 * args.width;
    const float* up = gate + args.width;
    float* y = args.y + m * args.width;
    for (int64_t i = 0; i < args.width; ++i) {
      switch (args.activation) {
        case Activation::kSilu:
          y[i] = Silu<ScalarOps>(gate[i]) * up[i];
          break;
        case Activation::kGeluTanh:
          y[i] = GeluTanh<ScalarOps>(gate[i]) * up[i];
          break;
        case Activation::kClampedSwiglu:
          y[i] = ClampedSwiglu<ScalarOps>(gate[i], up[i], args.limit, args.alpha);
          break;
      }
    }
  }
}

void SigmoidGateRef(const SigmoidGate::Args& args) {
  for (int64_t t = args.begin; t < args.end; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      float* x = args.x + (t * args.heads + h) * args.n;
      const float* gate = args.gate + t * args.gate_stride + h * args.gate_head_stride;
      for (int64_t i = 0; i < args.n; ++i) x[i] *= Sigmoid<ScalarOps>(gate[i]);
    }
  }
}

}  // namespace trivet::kernels
