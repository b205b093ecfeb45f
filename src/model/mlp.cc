// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

namespace trivet::model {

kernels::GatedAct::Args Activate(const Runtime& runtime, const float* gate_up, int64_t width, float* act) {
  const plan::MlpGeometry& mlp = runtime.geometry.mlp;
  kernels::GatedAct::Args args;
  switch (mlp.activation) {
    case plan::Activation::kSilu:
      args.activation = kernels::Activation::kSilu;
      break;
    case plan::Activation::kGeluTanh:
      args.activation = kernels::Activation::kGeluTanh;
      break;
    case plan::Activation::kClampedSwiglu:
      args.activation = kernels::Activation::kClampedSwiglu;
      break;
  }
  args.limit = static_cast<float>(mlp.limit);
  args.alpha = static_cast<float>(mlp.alpha);
  args.x = gate_up;
  args.y = act;
  args.width = width;
  return args;
}

void MlpLayer(const Runtime& runtime, const MlpWeights& weights, std::span<const float> x, int64_t m,
              const float* row_scale, const Sums& sums) {
  const int64_t width = weights.down.k;
  if (m == 0 || width == 0) return;
  const device::Workspace::Frame frame(&runtime.workspace);
  const std::span<float> gate_up = runtime.workspace.Take<float>(m * 2 * width);  // [m, 2F]
  const std::span<float> act = runtime.workspace.Take<float>(m * width);          // [m, F]
  runtime.Multiply(x, m, weights.gate_up, gate_up);
  runtime.AddBias(weights.gate_up_bias, m, 2 * width, gate_up);
  runtime.RunParallel(*runtime.kernels.gated_act, Activate(runtime, gate_up.data(), width, act.data()), m,
                      m * width * Runtime::kElementWork);
  runtime.MultiplyAdd(act, m, weights.down, row_scale, sums);
  runtime.AddBias(weights.down_bias, m, row_scale, sums);
}

}  // namespace trivet::model
