// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 128;  // of copies
constexpr int kWarps = 8;      // pages that a block takes at once

// What a page contributes to one query beside its values: its largest score and the sum of its p.
struct PageSums {
  float max, sum;
};

// One page as one query sees it.
struct PageView {
  const float* keys;
  const float* values;
  int from, visible;  // keys [from, visible) are seen
};

// Scores of a page's keys against q, turned into p [64], by one warp: a lane has two neighbouring keys.
__device__ PageSums Scores(const Attention::Args& args, const PageView& page, const float* q, float* p) {
  const int lane = static_cast<int>(threadIdx.x), key_dim = static_cast<int>(args.cache.head_dim);
  const float2* keys = reinterpret_cast<const float2*>(page.keys) + lane;
  float scores[2] = {};
#pragma unroll 16
  for (int d = 0; d < key_dim; ++d) {
    const float2 key = __ldg(keys + d * (kBlockKeys / 2));
    scores[0] = std::fma(q[d], key.x, scores[0]);
    scores[1] = std::fma(q[d], key.y, scores[1]);
  }
  float max = -INFINITY;
  bool seen[2];
  for (int i = 0; i < 2; ++i) {
    seen[i] = 2 * lane + i >= page.from && 2 * lane + i < page.visible;
    scores[i] *= args.scale;
    if (args.softcap > 0) scores[i] = SoftCap<ScalarOps>(scores[i], args.softcap);
    if (seen[i] && scores[i] > max) max = scores[i];
  }
  for (int half = kWarp / 2; half > 0; half /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, max, half);
    max = max > other ? max : other;
  }
  for (int i = 0; i < 2; ++i) p[2 * lane + i] = seen[i] ? Exp<ScalarOps>(scores[i] - max) : 0.0F;
  __syncwarp();
  float sum = p[lane] + p[lane + kWarp];
  for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_down_sync(kAllLanes, sum, half);
  return {max, sum};
}

// o[d] = chain over the page's visible keys of p * v, by one warp.
__device__ void Values(const Attention::Args& args, const PageView& page, const float* p, float* o) {
  const int lane = static_cast<int>(threadIdx.x), dim = static_cast<int>(args.cache.ValueDim());
  if (dim % 4 != 0) {
    for (int d = lane; d < dim; d += kWarp) {
      float sum = 0;
      for (int j = page.from; j < page.visible; ++j) sum = std::fma(p[j], __ldg(page.values + j * dim + d), sum);
      o[d] = sum;
    }
    return;
  }
  for (int d = lane * 4; d < dim; d += kWarp * 4) {
    float4 sum = {0, 0, 0, 0};
#pragma unroll 8
    for (int j = page.from; j < page.visible; ++j) {
      const float4 value = __ldg(reinterpret_cast<const float4*>(page.values + j * dim + d));
      sum.x = std::fma(p[j], value.x, sum.x);
      sum.y = std::fma(p[j], value.y, sum.y);
      sum.z = std::fma(p[j], value.z, sum.z);
      sum.w = std::fma(p[j], value.w, sum.w);
    }
    *reinterpret_cast<float4*>(o + d) = sum;
  }
}

// One query head of one token a block: warps take a page each, then all threads merge them in ascending order.
// Shared memory: p of every warp, o of every warp, the output, q.
__global__ void __launch_bounds__(kWarps* kWarp) AttentionKernel(const Attention::Args args, int64_t first_token) {
  extern __shared__ __align__(16) float shared[];
  __shared__ PageSums sums[kWarps];
  const int64_t t = first_token + blockIdx.y, head = blockIdx.x, kv = args.q_to_kv[head];
  const int64_t item = t * args.cache.kv_heads + kv;
  if (item < args.begin || item >= args.end) return;
  const int key_dim = static_cast<int>(args.cache.head_dim), dim = static_cast<int>(args.cache.ValueDim());
  const int warp = static_cast<int>(threadIdx.y), thread = warp * kWarp + static_cast<int>(threadIdx.x);
  const int padded = (dim + 3) / 4 * 4;
  float *const p = shared, *const o = p + kWarps * kBlockKeys, *const out = o + kWarps * padded,
               *const q = out + padded;
  const float* from = args.q + t * args.q_stride + head * args.q_head_stride;
  for (int d = thread; d < key_dim; d += kWarps * kWarp) q[d] = from[d];
  const TokenSpan span = args.spans.data()[SpanIndexOf(args.spans, t)];
  const int64_t position = span.start + t - span.token_begin;
  const int64_t oldest = FirstVisible(args, position), first = oldest / kBlockKeys, last = position / kBlockKeys;
  float max = 0, sum = 0;
  __syncthreads();
  for (int64_t base = first; base <= last; base += kWarps) {
    const int64_t block = base + warp;
    if (block <= last) {
      const int64_t page = span.pages[block];
      const PageView view{args.cache.keys + args.cache.Offset(page, kv),
                          args.cache.values + args.cache.ValueOffset(page, kv),
                          static_cast<int>(std::max<int64_t>(0, oldest - block * kBlockKeys)),
                          static_cast<int>(std::min<int64_t>(+kBlockKeys, position + 1 - block * kBlockKeys))};
      const PageSums found = Scores(args, view, q, p + warp * kBlockKeys);
      if (threadIdx.x == 0) sums[warp] = found;
      Values(args, view, p + warp * kBlockKeys, o + warp * padded);
    }
    __syncthreads();
    for (int64_t w = 0; w < kWarps && base + w <= last; ++w) {
      const bool begins = base + w == first;
      const float merged = begins ? sums[w].max : ScalarOps::Max(max, sums[w].max);
      const float keep = begins ? 0.0F : Exp<ScalarOps>(max - merged);
      const float take = Exp<ScalarOps>(sums[w].max - merged);
      for (int d = thread; d < dim; d += kWarps * kWarp) {
        out[d] = (begins ? 0.0F : out[d] * keep) + o[w * padded + d] * take;
      }
      sum = sum * keep + sums[w].sum * take;
      max = merged;
    }
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
  for (int d = thread; d < dim; d += kWarps * kWarp) to[d] = (sink ? out[d] * keep : out[d]) / sum;
}

void AttentionCuda(const Attention::Args& args) {
  if (args.begin >= args.end || args.q_heads == 0) return;
  const int64_t padded = CeilDiv(args.cache.ValueDim(), 4) * 4;
  const int64_t floats = kWarps * (kBlockKeys + padded) + padded + args.cache.head_dim;
  ForRows(args.begin / args.cache.kv_heads, CeilDiv(args.end, args.cache.kv_heads), [&](int64_t first, unsigned count) {
    const dim3 grid(static_cast<unsigned>(args.q_heads), count), block(kWarp, kWarps);
    AttentionKernel<<<grid, block, static_cast<size_t>(floats) * sizeof(float)>>>(args, first);
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
