// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_launch.cuh"
#include "kernels/delta_net.h"

namespace trivet::kernels {
namespace {

// One column of one head's state a thread: columns never meet.
__global__ void DeltaNetKernel(const DeltaNet::Args args) {
  const int64_t c = static_cast<int64_t>(blockIdx.z) * blockDim.x + threadIdx.x;
  const int64_t h = args.begin + blockIdx.x;
  const TokenSpan span = args.spans.data()[blockIdx.y];
  const int64_t dk = args.dk, dv = args.dv;
  if (c >= dv) return;
  float* state = args.state + span.state_slot * args.state_stride + h * dk * dv + c;
  if (span.start == 0) {
    for (int64_t i = 0; i < dk; ++i) state[i * dv] = 0;
  }
  for (int64_t t = span.token_begin; t < span.token_begin + span.count; ++t) {
    const float* q = args.qkv + t * args.qkv_stride + args.v_to_k[h] * dk;
    const float* k = q + args.k_heads * dk;
    const float v = args.qkv[t * args.qkv_stride + 2 * args.k_heads * dk + h * dv + c];
    const DeltaGates gates = GatesOf(args, t, h);
    float read = 0;
    for (int64_t i = 0; i < dk; ++i) {
      const float decayed = state[i * dv] * gates.decay;
      state[i * dv] = decayed;
      read = std::fma(decayed, k[i], read);
    }
    const float update = gates.beta * (v - read);
    float sum = 0;
    for (int64_t i = 0; i < dk; ++i) {
      const float next = std::fma(k[i], update, state[i * dv]);
      state[i * dv] = next;
      sum = std::fma(next, q[i], sum);
    }
    args.out[(t * args.v_heads + h) * dv + c] = sum;
  }
}

void DeltaNetCuda(const DeltaNet::Args& args) {
  if (args.begin >= args.end) return;
  ForRows(0, static_cast<int64_t>(args.spans.size()), [&](int64_t first, unsigned count) {
    DeltaNet::Args part = args;
    part.spans = args.spans.subspan(static_cast<size_t>(first), count);
    const dim3 grid(static_cast<unsigned>(args.end - args.begin), count, BlocksFor(args.dv, kWarp));
    DeltaNetKernel<<<grid, kWarp>>>(part);
  });
  CheckLaunch("delta_net/cuda");
}

}  // namespace

std::span<const KernelRow<DeltaNet>> DeltaNet::CudaRows() {
  static constexpr KernelRow<DeltaNet> kRows[] = {{"delta_net/cuda", kCudaTarget, DeltaNetCuda}};
  return kRows;
}

}  // namespace trivet::kernels
