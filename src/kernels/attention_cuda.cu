// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 128;

// What one page contributes to one query: its largest score and its sum, and p in shared memory.
struct PageScores {
  float max, sum;
};

// Scores of a page's keys [from, visible) against q, turned into p; by the first two warps of the block.
__device__ PageScores Scores(const Attention::Args& args, const float* q, const float* keys, int2 range, float* p) {
  __shared__ float maxima[2], halves[kWarp], total;
  const int j = static_cast<int>(threadIdx.x);
  const bool seen = j >= range.x && j < range.y;
  float score = 0;
  if (j < kBlockKeys) {
    if (seen) {
      for (int64_t d = 0; d < args.cache.head_dim; ++d) score = std::fma(q[d], keys[d * kBlockKeys + j], score);
      score *= args.scale;
      if (args.softcap > 0) score = SoftCap<ScalarOps>(score, args.softcap);
    }
    float max = seen ? score : -INFINITY;
    for (int half = kWarp / 2; half > 0; half /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, max, half);
      max = max > other ? max : other;
    }
    if (j % kWarp == 0) maxima[j / kWarp] = max;
  }
  __syncthreads();
  const float max = maxima[0] > maxima[1] ? maxima[0] : maxima[1];
  if (j < kBlockKeys) {
    p[j] = seen ? Exp<ScalarOps>(score - max) : 0.0F;
    if (j >= kWarp) halves[j - kWarp] = p[j];
  }
  __syncthreads();
  if (j < kWarp) {
    float sum = p[j] + halves[j];
    for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_down_sync(kAllLanes, sum, half);
    if (j == 0) total = sum;
  }
  __syncthreads();
  return {max, total};
}

// One query head of one token a block.
__global__ void AttentionKernel(const Attention::Args args, int64_t first_token) {
  extern __shared__ float shared[];
  const int64_t t = first_token + blockIdx.y, head = blockIdx.x, kv = args.q_to_kv[head];
  const int64_t item = t * args.cache.kv_heads + kv;
  if (item < args.begin || item >= args.end) return;
  const int64_t key_dim = args.cache.head_dim, dim = args.cache.ValueDim();
  float *p = shared, *out = p + kBlockKeys, *q = out + dim;
  for (int64_t d = threadIdx.x; d < key_dim; d += kThreads)
    q[d] = args.q[t * args.q_stride + head * args.q_head_stride + d];
  __syncthreads();
  const TokenSpan span = args.spans.data()[SpanIndexOf(args.spans, t)];
  const int64_t position = span.start + t - span.token_begin;
  const int64_t oldest = FirstVisible(args, position), first_block = oldest / kBlockKeys;
  float max = 0, sum = 0;
  for (int64_t block = first_block; block <= position / kBlockKeys; ++block) {
    const int64_t page = span.pages[block];
    const float* values = args.cache.values + args.cache.ValueOffset(page, kv);
    const int64_t from = std::max<int64_t>(0, oldest - block * kBlockKeys);
    const int64_t left = position + 1 - block * kBlockKeys, visible = left < kBlockKeys ? left : kBlockKeys;
    const bool first = block == first_block;
    const PageScores found = Scores(args, q, args.cache.keys + args.cache.Offset(page, kv),
                                    make_int2(static_cast<int>(from), static_cast<int>(visible)), p);
    const float merged = first ? found.max : ScalarOps::Max(max, found.max);
    const float keep = first ? 0.0F : Exp<ScalarOps>(max - merged);
    const float take = Exp<ScalarOps>(found.max - merged);
    for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
      float o = 0;
      for (int64_t j = from; j < visible; ++j) o = std::fma(p[j], values[j * dim + d], o);
      out[d] = (first ? 0.0F : out[d] * keep) + o * take;
    }
    sum = sum * keep + found.sum * take;
    max = merged;
    __syncthreads();
  }
  float keep = 1;
  const bool sink = args.sinks != nullptr;
  if (sink) {
    const float merged = ScalarOps::Max(max, args.sinks[head]);
    keep = Exp<ScalarOps>(max - merged);
    sum = sum * keep + Exp<ScalarOps>(args.sinks[head] - merged);
  }
  float* to = args.out + (t * args.q_heads + head) * dim;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) to[d] = (sink ? out[d] * keep : out[d]) / sum;
}

void AttentionCuda(const Attention::Args& args) {
  if (args.begin >= args.end || args.q_heads == 0) return;
  const int64_t shared =
      (kBlockKeys + args.cache.ValueDim() + args.cache.head_dim) * static_cast<int64_t>(sizeof(float));
  ForRows(args.begin / args.cache.kv_heads, CeilDiv(args.end, args.cache.kv_heads), [&](int64_t first, unsigned count) {
    const dim3 grid(static_cast<unsigned>(args.q_heads), count);
    AttentionKernel<<<grid, kThreads, static_cast<size_t>(shared)>>>(args, first);
  });
  CheckLaunch("attention/cuda");
}

// One channel of one head of one token a thread.
__global__ void KvWriteKernel(const KvWrite::Args args) {
  const int64_t dim = args.cache.head_dim, value_dim = args.cache.ValueDim(), heads = args.cache.kv_heads;
  const int64_t i = GlobalThread(), t = args.begin + blockIdx.y;
  if (i >= heads * (dim + value_dim)) return;
  const TokenSpan span = args.spans.data()[SpanIndexOf(args.spans, t)];
  const int64_t position = span.start + t - span.token_begin;
  const int64_t page = span.pages[position / kBlockKeys], slot = position % kBlockKeys;
  const float* from = args.kv + t * args.kv_stride;
  if (i < heads * dim) {
    const int64_t h = i / dim, d = i % dim;
    args.cache.keys[args.cache.Offset(page, h) + d * kBlockKeys + slot] = from[i];
    return;
  }
  const int64_t at = i - heads * dim, h = at / value_dim, d = at % value_dim;
  const float value = args.values == nullptr ? from[i] : args.values[t * args.kv_stride + at];
  args.cache.values[args.cache.ValueOffset(page, h) + slot * value_dim + d] = value;
}

void KvWriteCuda(const KvWrite::Args& args) {
  const int64_t channels = args.cache.kv_heads * (args.cache.head_dim + args.cache.ValueDim());
  ForRows(args.begin, args.end, [&](int64_t begin, unsigned count) {
    KvWrite::Args part = args;
    part.begin = begin;
    KvWriteKernel<<<dim3(BlocksFor(channels, kThreads), count), kThreads>>>(part);
  });
  CheckLaunch("kv_write/cuda");
}

}  // namespace

std::span<const KernelRow<Attention>> Attention::CudaRows() {
  static constexpr KernelRow<Attention> kRows[] = {{"attention/cuda", kCudaTarget, AttentionCuda}};
  return kRows;
}
std::span<const KernelRow<KvWrite>> KvWrite::CudaRows() {
  static constexpr KernelRow<KvWrite> kRows[] = {{"kv_write/cuda", kCudaTarget, KvWriteCuda}};
  return kRows;
}

}  // namespace trivet::kernels
