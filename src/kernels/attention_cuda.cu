// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"
#include "kernels/cuda_fetch.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 128;           // of copies
constexpr int kPages = 8;               // that a block takes at once
constexpr int kTeam = 64;               // threads that share a page: two warps, of which each thread has one key
constexpr int kBlock = kPages * kTeam;  // threads of a block
static_assert(kTeam == kBlockKeys);

// What a page contributes to one query beside its values: the largest scores that its two warps saw, and the sum of its
// p.
struct PageSums {
  float max[2];
  float sum;
  __device__ float Max() const { return max[1] > max[0] ? max[1] : max[0]; }
};

// One page as one query sees it.
struct PageView {
  const float* keys;
  const float* values;
  int from, visible;  // keys [from, visible) are seen
};

// This thread's place in its team.
__device__ int Member() { return static_cast<int>(threadIdx.y) % 2 * kWarp + static_cast<int>(threadIdx.x); }

// The score of the thread's key against q.
__device__ float Score(const Attention::Args& args, const PageView& page, const float* q) {
  const float* key = page.keys + Member();
  const int key_dim = static_cast<int>(args.cache.head_dim);
  float score = 0;
#pragma unroll 32
  for (int d = 0; d < key_dim; ++d) score = std::fma(q[d], key[d * kBlockKeys], score);
  score *= args.scale;
  return args.softcap > 0 ? SoftCap<ScalarOps>(score, args.softcap) : score;
}

// The largest score of a warp's keys that are seen.
__device__ float WarpMax(float score, bool seen) {
  float max = seen && score > -INFINITY ? score : -INFINITY;
  for (int half = kWarp / 2; half > 0; half /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, max, half);
    max = max > other ? max : other;
  }
  return max;
}

// The halving sum of a page's p, for the first lane of the warp that calls it.
__device__ float PageSum(const float* p) {
  const int lane = static_cast<int>(threadIdx.x);
  float sum = p[lane] + p[lane + kWarp];
  for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_down_sync(kAllLanes, sum, half);
  return sum;
}

// kEach neighbouring floats.
template <int kEach>
struct alignas(kEach * sizeof(float)) Floats {
  float at[kEach];
};

// o[d] = chain over the page's visible keys of p * v, by a team; a thread has kEach channels at a time.
template <int kEach>
__device__ void Values(const PageView& page, int dim, const float* p, float* o) {
  for (int d = Member() * kEach; d < dim; d += kTeam * kEach) {
    Floats<kEach> sum = {};
#pragma unroll 16
    for (int j = page.from; j < page.visible; ++j) {
      const auto value = *reinterpret_cast<const Floats<kEach>*>(page.values + j * dim + d);
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum.at[i] = std::fma(p[j], value.at[i], sum.at[i]);
    }
    *reinterpret_cast<Floats<kEach>*>(o + d) = sum;
  }
}

// One query head of one token a block: teams take a page each, then all threads merge them in ascending order.
// Shared memory: p of every team, o of every team, the output, q.
__global__ void __launch_bounds__(kBlock) AttentionKernel(const Attention::Args args, int64_t first_token) {
  extern __shared__ __align__(16) float shared[];
  __shared__ PageSums sums[kPages];
  const int64_t t = first_token + blockIdx.y, head = blockIdx.x, kv = args.q_to_kv[head];
  const int64_t item = t * args.cache.kv_heads + kv;
  const TokenSpan span = args.spans.data()[SpanIndexOf(args.spans, t)];
  const int64_t position = span.start + t - span.token_begin;
  const int64_t oldest = FirstVisible(args, position), first = oldest / kBlockKeys, last = position / kBlockKeys;
  const int team = static_cast<int>(threadIdx.y) / 2;
  // What is decoded finds its pages in memory, far away, and the kernel before this one writes one row of them at most.
  if (span.count == 1 && first + team <= last) {
    const int64_t page = span.pages[first + team];
    constexpr int64_t kRow = kBlockKeys * sizeof(float);
    Fetch(args.cache.keys + args.cache.Offset(page, kv), kRow * args.cache.head_dim, Member(), kTeam);
    Fetch(args.cache.values + args.cache.ValueOffset(page, kv), kRow * args.cache.ValueDim(), Member(), kTeam);
  }
  BeginKernel();
  if (item < args.begin || item >= args.end) return;
  const int key_dim = static_cast<int>(args.cache.head_dim), dim = static_cast<int>(args.cache.ValueDim());
  const int warp = static_cast<int>(threadIdx.y), thread = warp * kWarp + static_cast<int>(threadIdx.x);
  const int padded = (dim + 3) / 4 * 4;
  float *const p = shared, *const o = p + kPages * kBlockKeys, *const out = o + kPages * padded,
               *const q = out + padded;
  const float* from = args.q + t * args.q_stride + head * args.q_head_stride;
  for (int d = thread; d < key_dim; d += kBlock) q[d] = from[d];
  float max = 0, sum = 0;
  __syncthreads();
  for (int64_t base = first; base <= last; base += kPages) {
    const int64_t block = base + team;
    const bool taken = block <= last;
    const int64_t page = taken ? span.pages[block] : 0;
    const PageView view{args.cache.keys + args.cache.Offset(page, kv),
                        args.cache.values + args.cache.ValueOffset(page, kv),
                        static_cast<int>(std::max<int64_t>(0, oldest - block * kBlockKeys)),
                        static_cast<int>(std::min<int64_t>(+kBlockKeys, position + 1 - block * kBlockKeys))};
    const bool seen = taken && Member() >= view.from && Member() < view.visible;
    const float score = taken ? Score(args, view, q) : 0.0F;
    const float largest = WarpMax(score, seen);
    if (threadIdx.x == 0) sums[team].max[warp % 2] = largest;
    __syncthreads();
    p[team * kBlockKeys + Member()] = seen ? Exp<ScalarOps>(score - sums[team].Max()) : 0.0F;
    __syncthreads();
    if (taken) {
      const float* of_team = p + team * kBlockKeys;
      if (warp % 2 == 0) {
        const float total = PageSum(of_team);
        if (threadIdx.x == 0) sums[team].sum = total;
      }
      if (dim % 4 == 0 && dim > 2 * kTeam) {
        Values<4>(view, dim, of_team, o + team * padded);
      } else if (dim % 2 == 0) {
        Values<2>(view, dim, of_team, o + team * padded);
      } else {
        Values<1>(view, dim, of_team, o + team * padded);
      }
    }
    __syncthreads();
    for (int w = 0; w < kPages && base + w <= last; ++w) {
      const bool begins = base + w == first;
      const float page_max = sums[w].Max();
      const float merged = begins ? page_max : ScalarOps::Max(max, page_max);
      const float keep = begins ? 0.0F : Exp<ScalarOps>(max - merged);
      const float take = Exp<ScalarOps>(page_max - merged);
      for (int d = thread; d < dim; d += kBlock) {
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
  for (int d = thread; d < dim; d += kBlock) to[d] = (sink ? out[d] * keep : out[d]) / sum;
}

void AttentionCuda(const Attention::Args& args) {
  if (args.begin >= args.end || args.q_heads == 0) return;
  const int64_t padded = CeilDiv(args.cache.ValueDim(), 4) * 4;
  const int64_t floats = kPages * (kBlockKeys + padded) + padded + args.cache.head_dim;
  ForRows(args.begin / args.cache.kv_heads, CeilDiv(args.end, args.cache.kv_heads), [&](int64_t first, unsigned count) {
    const dim3 grid(static_cast<unsigned>(args.q_heads), count), block(kWarp, kBlock / kWarp);
    StartKernel({grid, block, static_cast<size_t>(floats) * sizeof(float)}, AttentionKernel, args, first);
  });
  CheckLaunch("attention/cuda");
}

// One channel of one head of one token a thread.
__global__ void KvWriteKernel(const KvWrite::Args args) {
  BeginKernel();
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
    StartKernel({dim3(BlocksFor(channels, kThreads), count), kThreads}, KvWriteKernel, part);
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
