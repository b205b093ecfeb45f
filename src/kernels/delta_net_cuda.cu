// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_launch.cuh"
#include "kernels/delta_net.h"

namespace trivet::kernels {
namespace {

// Reads of k and q that stay near their use: all at once, they would take the registers of the state.
__device__ void KeepLoadsHere() { asm volatile("" ::: "memory"); }

// Columns never meet, so a thread owns one column of one head's state. kRows rows of it stay in registers, all dk of
// them for the usual heads; rows from there on stay where they are.
template <int kRows>
struct Column {
  float* state;  // row 0 of the column
  int64_t dk, dv;
  float held[kRows > 0 ? kRows : 1];

  __device__ void Begin(bool fresh) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) held[i] = fresh ? 0.0F : state[i * dv];
    for (int64_t i = kRows; i < dk && fresh; ++i) state[i * dv] = 0;
  }
  __device__ void End() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) state[i * dv] = held[i];
  }
  // decay * S, and its product with k.
  __device__ float Read(float decay, const float* k) {
    float read = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i % 16 == 0) KeepLoadsHere();
      held[i] *= decay;
      read = std::fma(held[i], k[i], read);
    }
    for (int64_t i = kRows; i < dk; ++i) {
      const float decayed = state[i * dv] * decay;
      state[i * dv] = decayed;
      read = std::fma(decayed, k[i], read);
    }
    return read;
  }
  // S + k * update, and its product with q.
  __device__ float Write(float update, const float* k, const float* q) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i % 16 == 0) KeepLoadsHere();
      held[i] = std::fma(k[i], update, held[i]);
      sum = std::fma(held[i], q[i], sum);
    }
    for (int64_t i = kRows; i < dk; ++i) {
      const float next = std::fma(k[i], update, state[i * dv]);
      state[i * dv] = next;
      sum = std::fma(next, q[i], sum);
    }
    return sum;
  }
};

// A warp owns 32 columns of one head and walks one span's tokens. Shared memory: q and k of two tokens in turn.
template <int kRows>
__global__ void __launch_bounds__(kWarp) DeltaNetKernel(const DeltaNet::Args args) {
  extern __shared__ float shared[];
  const int64_t dk = args.dk, dv = args.dv, h = args.begin + blockIdx.x;
  const int64_t c = static_cast<int64_t>(blockIdx.z) * kWarp + threadIdx.x;
  const TokenSpan span = args.spans.data()[blockIdx.y];
  const bool real = c < dv;  // other lanes only carry q and k
  Column<kRows> column{args.state + span.state_slot * args.state_stride + h * dk * dv + c, real ? dk : kRows, dv};
  // The state is an earlier step's, so that it need not wait.
  if (real && span.count > 0) column.Begin(span.start == 0);
  BeginKernel();
  const int64_t end = span.token_begin + span.count;
  // An empty span of a new sequence clears its state all the same.
  if (real && span.count == 0 && span.start == 0) {
    column.Begin(true);
    column.End();
  }
  float gate = 0, beta = 0, v = 0;
  const auto load = [&](int64_t t) {
    float* to = shared + t % 2 * 2 * dk;
    const float* q = args.qkv + t * args.qkv_stride + args.v_to_k[h] * dk;
    for (int64_t i = threadIdx.x; i < dk; i += kWarp) {
      to[i] = q[args.k_heads * dk + i];
      to[dk + i] = q[i];
    }
    if (real) v = args.qkv[t * args.qkv_stride + 2 * args.k_heads * dk + h * dv + c];
    const DeltaGates gates = GatesOf(args, t, h);
    gate = gates.decay;
    beta = gates.beta;
  };
  if (span.count > 0) load(span.token_begin);
  for (int64_t t = span.token_begin; t < end; ++t) {
    __syncwarp();
    const float *k = shared + t % 2 * 2 * dk, *q = k + dk;
    const float decay = gate, value = v, rate = beta;
    if (t + 1 < end) load(t + 1);
    if (!real) continue;
    const float read = column.Read(decay, k);
    args.out[(t * args.v_heads + h) * dv + c] = column.Write(rate * (value - read), k, q);
  }
  if (real && span.count > 0) column.End();
}

template <int kRows>
void Launch(const DeltaNet::Args& args, unsigned spans) {
  const dim3 grid(static_cast<unsigned>(args.end - args.begin), spans, BlocksFor(args.dv, kWarp));
  StartKernel({grid, kWarp, static_cast<size_t>(4 * args.dk) * sizeof(float)}, DeltaNetKernel<kRows>, args);
}

void DeltaNetCuda(const DeltaNet::Args& args) {
  if (args.begin >= args.end) return;
  ForRows(0, static_cast<int64_t>(args.spans.size()), [&](int64_t first, unsigned count) {
    DeltaNet::Args part = args;
    part.spans = args.spans.subspan(static_cast<size_t>(first), count);
    if (args.dk >= 128) return Launch<128>(part, count);
    if (args.dk >= 64) return Launch<64>(part, count);
    Launch<0>(part, count);
  });
  CheckLaunch("delta_net/cuda");
}

}  // namespace

std::span<const KernelRow<DeltaNet>> DeltaNet::CudaRows() {
  static constexpr KernelRow<DeltaNet> kRows[] = {{"delta_net/cuda", kCudaTarget, DeltaNetCuda}};
  return kRows;
}

}  // namespace trivet::kernels
