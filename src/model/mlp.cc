// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

namespace trivet::model {
namespace {

kernels::Activation KernelActivation(plan::Activation activation) {
  switch (activation) {
    case plan::Activation::kSilu:
      return kernels::Activation::kSilu;
    case plan::Activation::kGeluTanh:
      return kernels::Activation::kGeluTanh;
    case plan::Activation::kClampedSwiglu:
      break;
  }
  return kernels::Activation::kClampedSwiglu;
}

}  // namespace

void MlpLayer(const Runtime& runtime, const MlpWeights& weights, std::span<const float> x, int64_t m,
              const RowMap& rows, const Sums& sums) {
  const int64_t width = weights.down.k;
  if (m == 0 || width == 0) return;
  const device::Workspace::Frame frame(&runtime.workspace);
  const std::span<float> gate_up = runtime.workspace.Take<float>(m * 2 * width);  // [m, 2F]
  const std::span<float> act = runtime.workspace.Take<float>(m * width);          // [m, F]
  runtime.MultiplyRows(x, m, weights.gate_up, rows.x_rows, gate_up);
  runtime.AddBias(weights.gate_up_bias, m, 2 * width, gate_up);
  const plan::MlpGeometry& mlp = runtime.geometry.mlp;
  kernels::GatedAct::Args args;
  args.activation = KernelActivation(mlp.activation);
  args.limit = static_cast<float>(mlp.limit);
  args.alpha = static_cast<float>(mlp.alpha);
  args.x = gate_up.data();
  args.y = act.data();
  args.width = width;
  runtime.RunParallel(*runtime.kernels.gated_act, args, m, m * width * Runtime::kElementWork);
  runtime.MultiplyAdd(act, m, weights.down, {nullptr, rows.y_rows, rows.scale}, sums);
  runtime.AddBias(weights.down_bias, m, rows, sums);
}

}  // namespace trivet::model
