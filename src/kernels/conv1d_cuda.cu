// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv1d.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 128;
constexpr unsigned kSegments = 16;  // of a long span, beside each other

// One channel of one segment of a span a thread. The first segment holds all tokens that see the state, and writes it.
__global__ void Conv1dKernel(const Conv1d::Args args) {
  const int64_t c = args.begin + GlobalThread();
  if (c >= args.end) return;
  const TokenSpan span = args.spans.data()[blockIdx.y];
  const int64_t history = args.width - 1;
  float* state = args.state + span.state_slot * args.state_stride;
  // Input i of the span, or the history before it for negative i.
  const auto input = [&](int64_t i) {
    if (i >= 0) return args.x[(span.token_begin + i) * args.x_stride + c];
    return span.start == 0 ? 0.0F : state[(history + i) * args.channels + c];
  };
  const int64_t length = max(CeilDiv(span.count, kSegments), max(history, int64_t{8}));
  const int64_t end = min((blockIdx.z + 1) * length, static_cast<int64_t>(span.count));
  for (int64_t t = blockIdx.z * length; t < end; ++t) {
    float sum = 0;
    for (int64_t j = 0; j < args.width; ++j) {
      sum = std::fma(args.taps[j * args.channels + c], input(t - history + j), sum);
    }
    args.y[(span.token_begin + t) * args.channels + c] = Silu<ScalarOps>(sum);
  }
  if (blockIdx.z > 0) return;
  // Ascending order reads each old entry before it is overwritten.
  for (int64_t j = 0; j < history; ++j) state[j * args.channels + c] = input(span.count - history + j);
}

void Conv1dCuda(const Conv1d::Args& args) {
  if (args.begin >= args.end) return;
  ForRows(0, static_cast<int64_t>(args.spans.size()), [&](int64_t first, unsigned count) {
    Conv1d::Args part = args;
    part.spans = args.spans.subspan(static_cast<size_t>(first), count);
    Conv1dKernel<<<dim3(BlocksFor(args.end - args.begin, kThreads), count, kSegments), kThreads>>>(part);
  });
  CheckLaunch("conv1d/cuda");
}

}  // namespace

std::span<const KernelRow<Conv1d>> Conv1d::CudaRows() {
  static constexpr KernelRow<Conv1d> kRows[] = {{"conv1d/cuda", kCudaTarget, Conv1dCuda}};
  return kRows;
}

}  // namespace trivet::kernels
