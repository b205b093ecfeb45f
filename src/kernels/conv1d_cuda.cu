// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv1d.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kSegments = 16, kSegment = 8;  // of a long span beside each other, at most; tokens of one, at least

// Taps of the usual convolution, which stay in registers.
constexpr int64_t kUsualWidth = 4;

// The channel's input `i` of a span, or the history before it for negative i.
__device__ float Input(const Conv1d::Args& args, const TokenSpan& span, const float* state, int64_t c, int64_t i) {
  if (i >= 0) return args.x[(span.token_begin + i) * args.x_stride + c];
  return span.start == 0 ? 0.0F : state[(args.width - 1 + i) * args.channels + c];
}

// One channel of one segment of a span a thread. The first segment holds all tokens that see the state, and writes it.
__global__ void Conv1dKernel(const Conv1d::Args args) {
  BeginKernel();
  const int64_t c = args.begin + GlobalThread();
  if (c >= args.end) return;
  const TokenSpan span = args.spans.data()[blockIdx.y];
  const int64_t history = args.width - 1;
  float* state = args.state + span.state_slot * args.state_stride;
  const int64_t length = max(CeilDiv(span.count, gridDim.z), max(history, +kSegment));
  const int64_t end = min((blockIdx.z + 1) * length, static_cast<int64_t>(span.count));
  for (int64_t t = blockIdx.z * length; t < end; ++t) {
    float sum = 0;
    for (int64_t j = 0; j < args.width; ++j) {
      sum = std::fma(args.taps[j * args.channels + c], Input(args, span, state, c, t - history + j), sum);
    }
    args.y[(span.token_begin + t) * args.channels + c] = Silu<ScalarOps>(sum);
  }
  if (blockIdx.z > 0) return;
  // Ascending order reads each old entry before it is overwritten.
  for (int64_t j = 0; j < history; ++j) {
    state[j * args.channels + c] = Input(args, span, state, c, span.count - history + j);
  }
}

// The same for the usual width: taps and the inputs that a token sees are in registers, and everything that a single
// token needs is under way at once.
__global__ void Conv1dUsualKernel(const Conv1d::Args args) {
  constexpr int kWidth = kUsualWidth, kHistory = kWidth - 1;
  const int64_t c = args.begin + GlobalThread();
  float taps[kWidth] = {};
#pragma unroll
  for (int j = 0; j < kWidth && c < args.end; ++j) taps[j] = args.taps[j * args.channels + c];
  const TokenSpan span = args.spans.data()[blockIdx.y];
  float* state = args.state + span.state_slot * args.state_stride;
  // The state is an earlier step's, so that it need not wait.
  float seen[kWidth] = {};  // the last kHistory inputs, and the newest
#pragma unroll
  for (int j = 0; j < kHistory && c < args.end && blockIdx.z == 0; ++j) {
    seen[j + 1] = Input(args, span, state, c, j - kHistory);
  }
  BeginKernel();
  if (c >= args.end) return;
  const int64_t length = max(CeilDiv(span.count, gridDim.z), +kSegment);
  const int64_t begin = blockIdx.z * length, end = min(begin + length, static_cast<int64_t>(span.count));
  if (blockIdx.z > 0 && begin >= end) return;
#pragma unroll
  for (int j = 0; j < kHistory && blockIdx.z > 0; ++j) seen[j + 1] = Input(args, span, state, c, begin - kHistory + j);
  for (int64_t t = begin; t < end; ++t) {
#pragma unroll
    for (int j = 0; j < kHistory; ++j) seen[j] = seen[j + 1];
    seen[kHistory] = args.x[(span.token_begin + t) * args.x_stride + c];
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum = std::fma(taps[j], seen[j], sum);
    args.y[(span.token_begin + t) * args.channels + c] = Silu<ScalarOps>(sum);
  }
  if (blockIdx.z > 0) return;
  // A span of one segment ends with what the state becomes.
  float last[kHistory];
#pragma unroll
  for (int j = 0; j < kHistory; ++j) {
    last[j] = end == span.count ? seen[j + 1] : Input(args, span, state, c, span.count - kHistory + j);
  }
#pragma unroll
  for (int j = 0; j < kHistory; ++j) state[j * args.channels + c] = last[j];
}

void Conv1dCuda(const Conv1d::Args& args) {
  if (args.begin >= args.end || args.spans.empty()) return;
  // A span may be longer than the mean: its segments are, too.
  const int64_t mean = CeilDiv(args.tokens, static_cast<int64_t>(args.spans.size()));
  const auto segments = static_cast<unsigned>(std::clamp(CeilDiv(mean, kSegment), int64_t{1}, +kSegments));
  ForRows(0, static_cast<int64_t>(args.spans.size()), [&](int64_t first, unsigned count) {
    Conv1d::Args part = args;
    part.spans = args.spans.subspan(static_cast<size_t>(first), count);
    StartKernel({dim3(BlocksFor(args.end - args.begin, kThreads), count, segments), kThreads},
                args.width == kUsualWidth ? Conv1dUsualKernel : Conv1dKernel, part);
  });
  CheckLaunch("conv1d/cuda");
}

}  // namespace

std::span<const KernelRow<Conv1d>> Conv1d::CudaRows() {
  static constexpr KernelRow<Conv1d> kRows[] = {{"conv1d/cuda", kCudaTarget, Conv1dCuda}};
  return kRows;
}

}  // namespace trivet::kernels
