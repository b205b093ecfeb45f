// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"
#include "kernels/gated_act.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void GatedActKernel(const GatedAct::Args args) {
  BeginKernel();
  const int64_t i = GlobalThread();
  const int64_t m = args.begin + blockIdx.y;
  if (i >= args.width || m >= EndOf(args)) return;
  const float gate = args.x[m * 2 * args.width + i];
  const float up = args.x[m * 2 * args.width + args.width + i];
  float y = 0;
  switch (args.activation) {
    case Activation::kSilu:
      y = Silu<ScalarOps>(gate) * up;
      break;
    case Activation::kGeluTanh:
      y = GeluTanh<ScalarOps>(gate) * up;
      break;
    case Activation::kClampedSwiglu:
      y = ClampedSwiglu<ScalarOps>(gate, up, args.limit, args.alpha);
      break;
  }
  args.y[m * args.width + i] = y;
}

__global__ void SigmoidGateKernel(const SigmoidGate::Args args) {
  BeginKernel();
  const int64_t i = GlobalThread();
  const int64_t t = args.begin + blockIdx.y;
  if (i >= args.heads * args.n) return;
  const float gate = args.gate[t * args.gate_stride + i / args.n * args.gate_head_stride + i % args.n];
  args.x[t * args.heads * args.n + i] *= Sigmoid<ScalarOps>(gate);
}

void GatedActCuda(const GatedAct::Args& args) {
  ForRows(args.begin, args.end, [&](int64_t begin, unsigned rows) {
    GatedAct::Args part = args;
    part.begin = begin;
    StartKernel({dim3(BlocksFor(args.width, kThreads), rows), kThreads}, GatedActKernel, part);
  });
  CheckLaunch("gated_act/cuda");
}

void SigmoidGateCuda(const SigmoidGate::Args& args) {
  ForRows(args.begin, args.end, [&](int64_t begin, unsigned rows) {
    SigmoidGate::Args part = args;
    part.begin = begin;
    StartKernel({dim3(BlocksFor(args.heads * args.n, kThreads), rows), kThreads}, SigmoidGateKernel, part);
  });
  CheckLaunch("sigmoid_gate/cuda");
}

}  // namespace

std::span<const KernelRow<GatedAct>> GatedAct::CudaRows() {
  static constexpr KernelRow<GatedAct> kRows[] = {{"gated_act/cuda", kCudaTarget, GatedActCuda}};
  return kRows;
}
std::span<const KernelRow<SigmoidGate>> SigmoidGate::CudaRows() {
  static constexpr KernelRow<SigmoidGate> kRows[] = {{"sigmoid_gate/cuda", kCudaTarget, SigmoidGateCuda}};
  return kRows;
}

}  // namespace trivet::kernels
