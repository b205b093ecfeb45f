// SPDX-License-Identifier: Apache-2.0
#include <cooperative_groups.h>

#include <limits>

#include "kernels/attention_device.cuh"
#include "kernels/attention_tile.h"
#include "kernels/cuda_e4m3.cuh"
#include "kernels/cuda_fetch.cuh"
#include "kernels/cuda_launch.cuh"

namespace trivet::kernels {
namespace {

constexpr int kPages = 8;               // that a block takes at once
constexpr int kTeam = 64;               // threads that share a page: two warps, of which each thread has one key
constexpr int kBlock = kPages * kTeam;  // threads of a block
constexpr int kMostShares = 8;          // blocks of a cluster that share a query's pages
static_assert(kTeam == kBlockKeys);

// What a page contributes to one query beside its values: the largest scores that its two warps saw, and the sum of its
// p.
struct PageSums {
  float max[2];
  float sum;
  __device__ float Max() const { return max[1] > max[0] ? max[1] : max[0]; }
};

// What pages that are merged in turn are weighted by, and what was merged before them.
struct Merging {
  float max[kMostShares * kPages], sum[kMostShares * kPages];    // of each page
  float keep[kMostShares * kPages], take[kMostShares * kPages];  // of what was merged before it, and of itself
  float last;                                                    // the largest of all
};

// The same variable in the shared memory of the cluster's block number `block`.
template <class T>
__device__ T* OfBlock(T* own, [[maybe_unused]] int block) {
#if __CUDA_ARCH__ >= 900
  return cooperative_groups::this_cluster().map_shared_rank(own, static_cast<unsigned>(block));
#else
  return own;
#endif
}

// Waits for the threads of all blocks that share the pages.
__device__ void SyncShares([[maybe_unused]] int shares) {
#if __CUDA_ARCH__ >= 900
  if (shares > 1) return cooperative_groups::this_cluster().sync();
#endif
  __syncthreads();
}

// This thread's place in its team.
__device__ int Member() { return static_cast<int>(threadIdx.y) % 2 * kWarp + static_cast<int>(threadIdx.x); }

// kEach neighbouring floats.
template <int kEach>
struct alignas(kEach * sizeof(float)) Floats {
  float at[kEach];
};

// Keys and values of one page and KV head, kept as floats. Both kinds of page have
//   kCodes          whether they are codes under scales
//   kBlocks         blocks that a multiprocessor should hold; 0: as the compiler finds best
//   kValuesAhead    values that a thread loads before it uses them
//   Prefetch        asks for what a team will read
//   Dot             the chain over channels of q * the thread's key, called by whole warps; `seen` says whether its
//                   value counts, and `moderate` whether Moderate holds for all of q
//   Value<n, kIn>   channels [d, d + n) of value j, where n divides d and `dim`; without its scale where kIn says that
//                   the weight has it
class FloatPage {
 public:
  static constexpr bool kCodes = false;
  static constexpr int kBlocks = 0, kValuesAhead = 16;
  __device__ FloatPage(const KvPages& cache, int64_t page, int64_t head)
      : keys_(cache.keys + cache.Offset(page, head)), values_(cache.values + cache.ValueOffset(page, head)) {}

  __device__ void Prefetch(const KvPages& cache) const {
    constexpr int64_t kRow = kBlockKeys * sizeof(float);
    Fetch(keys_, kRow * cache.head_dim, Member(), kTeam);
    Fetch(values_, kRow * cache.ValueDim(), Member(), kTeam);
  }
  __device__ float Dot(const float* q, int dim, bool /*seen*/, bool /*moderate*/) const {
    const float* key = keys_ + Member();
    float sum = 0;
#pragma unroll 32
    for (int d = 0; d < dim; ++d) sum = std::fma(q[d], key[d * kBlockKeys], sum);
    return sum;
  }
  template <int kEach, bool kScaleInWeight>
  __device__ Floats<kEach> Value(int j, int d, int dim) const {
    return *reinterpret_cast<const Floats<kEach>*>(values_ + j * dim + d);
  }

 private:
  const float *keys_, *values_;
};

// Whether chains over numbers that are zero or of this size, and over codes times a scale that is, stay away from the
// ends of float32: their exact sums are multiples of 2^-(48 + 23 + 9 + 48) and below 2^(48 + 9 + 48) a channel. A
// scale, a power of two, may then be multiplied before such a chain or behind it, and the bits are the same.
__device__ bool Moderate(float x) { return x == 0 || (std::fabs(x) >= 0x1p-48F && std::fabs(x) <= 0x1p48F); }

// The same, kept as codes. What their scales multiply is exact (KvCodeBytes).
class CodePage {
 public:
  static constexpr bool kCodes = true;
  static constexpr int kBlocks = 2, kValuesAhead = 8;
  __device__ CodePage(const KvPages& cache, int64_t page, int64_t head)
      : keys_(cache.KeyCodes(page, head)), values_(cache.ValueCodes(page, head)) {}

  __device__ void Prefetch(const KvPages& cache) const {
    Fetch(keys_, KvCodeBytes(cache.head_dim), Member(), kTeam);
    Fetch(values_, KvCodeBytes(cache.ValueDim()), Member(), kTeam);
  }
  __device__ float Dot(const float* q, int dim, bool seen, bool moderate) const {
    const float scale = ScaleOfRow(keys_[kBlockKeys * dim + Member()]);
    const bool behind = __all_sync(kAllLanes, !seen || (moderate && Moderate(scale)));
    return behind ? Chain<true>(q, dim, scale) * scale : Chain<false>(q, dim, scale);
  }
  // Of value j.
  __device__ float ValueScale(int j, int dim) const { return ScaleOfRow(values_[kBlockKeys * dim + j]); }
  template <int kEach, bool kScaleInWeight>
  __device__ Floats<kEach> Value(int j, int d, int dim) const {
    const std::byte* from = values_ + j * dim + d;
    Floats<kEach> value;
    if constexpr (kEach == 4) {
      const uint32_t word = *reinterpret_cast<const uint32_t*>(from);
      const float2 low = PairFromE4M3(word), high = PairFromE4M3(word >> 16);
      value = {low.x, low.y, high.x, high.y};
    } else if constexpr (kEach == 2) {
      const float2 pair = PairFromE4M3(*reinterpret_cast<const uint16_t*>(from));
      value = {pair.x, pair.y};
    } else {
      value = {PairFromE4M3(std::to_integer<uint32_t>(*from)).x};
    }
    if constexpr (!kScaleInWeight) {
      for (float& x : value.at) x *= ValueScale(j, dim);
    }
    return value;
  }

 private:
  // Over codes alone, or over what they stand for.
  template <bool kCodesAlone>
  __device__ float Chain(const float* q, int dim, float scale) const {
    // A lane loads four keys of one channel, and exchanges them for four channels of its own key.
    const std::byte* from = keys_ + static_cast<int>(threadIdx.x) % 4 * kBlockKeys + Member() / 4 * 4;
    constexpr int kAhead = kCodesAlone ? 16 : 4;  // words that are loaded before they are used
    const int fours = dim / 4;
    float sum = 0;
    for (int begin = 0; begin < fours; begin += kAhead) {
      uint32_t words[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (begin + i < fours) {
          words[i] = *reinterpret_cast<const uint32_t*>(from + static_cast<int64_t>(begin + i) * 4 * kBlockKeys);
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (begin + i < fours) {
          const uint32_t word = TransposeBytes<1>(words[i]);
          const float4 by = reinterpret_cast<const float4*>(q)[begin + i];
          const float2 low = PairFromE4M3(word), high = PairFromE4M3(word >> 16);
          sum = std::fma(by.x, kCodesAlone ? low.x : low.x * scale, sum);
          sum = std::fma(by.y, kCodesAlone ? low.y : low.y * scale, sum);
          sum = std::fma(by.z, kCodesAlone ? high.x : high.x * scale, sum);
          sum = std::fma(by.w, kCodesAlone ? high.y : high.y * scale, sum);
        }
      }
    }
    for (int d = fours * 4; d < dim; ++d) {
      const float key = PairFromE4M3(std::to_integer<uint32_t>(keys_[d * kBlockKeys + Member()])).x;
      sum = std::fma(q[d], kCodesAlone ? key : key * scale, sum);
    }
    return sum;
  }

  const std::byte *keys_, *values_;
};

// One page as one query sees it.
template <class Page>
struct PageView {
  Page page;
  int from, visible;  // keys [from, visible) are seen
};

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

// o[d] = chain over the page's visible keys of p * v, by a team; a thread has kEach channels at a time.
template <int kEach, bool kScaleInWeight, class Page>
__device__ void Channels(const PageView<Page>& view, int dim, const float* p, float* o) {
  constexpr int kUnroll = kScaleInWeight ? Page::kValuesAhead : 4;
  for (int d = Member() * kEach; d < dim; d += kTeam * kEach) {
    Floats<kEach> sum = {};
#pragma unroll kUnroll
    for (int j = view.from; j < view.visible; ++j) {
      const Floats<kEach> value = view.page.template Value<kEach, kScaleInWeight>(j, d, dim);
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum.at[i] = std::fma(p[j], value.at[i], sum.at[i]);
    }
    *reinterpret_cast<Floats<kEach>*>(o + d) = sum;
  }
}

template <bool kScaleInWeight, class Page>
__device__ void Values(const PageView<Page>& view, int dim, const float* p, float* o) {
  if (dim % 4 == 0 && dim > 2 * kTeam) {
    Channels<4, kScaleInWeight>(view, dim, p, o);
  } else if (dim % 2 == 0) {
    Channels<2, kScaleInWeight>(view, dim, p, o);
  } else {
    Channels<1, kScaleInWeight>(view, dim, p, o);
  }
}

// Fills `merging` for `pages` pages, of which the first is the query's first where `begins` says so; `max` is the
// largest score before them. Page i's sums are in block i / kPages. By the threads of a block.
__device__ void WeighPages(const PageSums* sums, int pages, bool begins, float max, Merging& merging) {
  const int i = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  if (i < pages) {
    const PageSums& page = OfBlock(sums, i / kPages)[i % kPages];
    merging.max[i] = page.Max();
    merging.sum[i] = page.sum;
  }
  __syncthreads();
  if (i < pages) {
    float before = 0, merged = begins ? merging.max[0] : ScalarOps::Max(max, merging.max[0]);
    for (int j = 1; j <= i; ++j) {
      before = merged;
      merged = ScalarOps::Max(merged, merging.max[j]);
    }
    const bool first = begins && i == 0;
    merging.keep[i] = first ? 0.0F : Exp<ScalarOps>((i == 0 ? max : before) - merged);
    merging.take[i] = Exp<ScalarOps>(merging.max[i] - merged);
    if (i == pages - 1) merging.last = merged;
  }
  __syncthreads();
}

// The tokens of a launch, those of spans with at most `most`. A row of its grid is a token, from `first` on; or, where
// spans are so few that this takes less, every span has `most` rows.
struct TokenRows {
  int64_t first, most;
  bool by_span;

  struct Place {
    bool served;
    int64_t span, token;
  };
  __device__ Place At(std::span<const TokenSpan> spans, int64_t row) const {
    const int64_t number = first + row, at = by_span ? number / most : SpanIndexOf(spans, number);
    const TokenSpan& span = spans.data()[at];
    const int64_t i = by_span ? number % most : number - span.token_begin;
    return {span.count <= most && i < span.count, at, span.token_begin + i};
  }
};

// One query head of one token a block, or a cluster of blocks along z where the device is not filled otherwise: teams
// take a page each, then all threads merge them in ascending order, each block some of the channels.
// Shared memory: p of every team, o of every team, the output, q; of codes, p times the values' scales behind p.
template <class Page>
__global__ void __launch_bounds__(kBlock, Page::kBlocks)
    AttentionKernel(const Attention::Args args, const TokenRows rows) {
  extern __shared__ __align__(16) float shared[];
  __shared__ PageSums sums[kPages];
  __shared__ Merging merging;
  __shared__ bool scales_in[kPages][2];  // of codes, by warp: whether all that it sees may be weighted by p * scale
  const int64_t head = blockIdx.x, kv = args.q_to_kv[head];
  const TokenRows::Place place = rows.At(args.spans, blockIdx.y);
  if (!place.served) return BeginKernel();
  const int64_t t = place.token, item = t * args.cache.kv_heads + kv;
  const TokenSpan span = args.spans.data()[place.span];
  const int64_t position = span.start + t - span.token_begin;
  const int64_t oldest = FirstVisible(args, position), first = oldest / kBlockKeys, last = position / kBlockKeys;
  const int team = static_cast<int>(threadIdx.y) / 2;
  // Few pages need no help.
  const int shares = last - first < kPages ? 1 : static_cast<int>(gridDim.z), share = static_cast<int>(blockIdx.z);
  // What is decoded finds its pages in memory, far away, and the kernel before this one writes one row of them at most.
  if (const int64_t block = first + share * kPages + team; span.count == 1 && block <= last) {
    Page(args.cache, span.pages[block], kv).Prefetch(args.cache);
  }
  BeginKernel();
  if (item < args.begin || item >= args.end || share >= shares) return;
  const int key_dim = static_cast<int>(args.cache.head_dim), dim = static_cast<int>(args.cache.ValueDim());
  const int warp = static_cast<int>(threadIdx.y), thread = warp * kWarp + static_cast<int>(threadIdx.x);
  const int padded = (dim + 3) / 4 * 4;
  float *const p = shared, *const scaled_p = p + (Page::kCodes ? kPages * kBlockKeys : 0),
               *const o = scaled_p + kPages * kBlockKeys, *const out = o + kPages * padded, *const q = out + padded;
  const float* from = args.q + t * args.q_stride + head * args.q_head_stride;
  bool moderate = true;
  for (int d = thread; d < key_dim; d += kBlock) {
    q[d] = from[d];
    if constexpr (Page::kCodes) moderate &= Moderate(q[d]);
  }
  const int per_share = (dim + shares - 1) / shares;  // channels that a block merges
  const int begin = share * per_share, end = min(dim, begin + per_share);
  float max = 0, sum = 0;
  if constexpr (Page::kCodes) {
    moderate = __syncthreads_and(moderate) != 0;
  } else {
    __syncthreads();
  }
  for (int64_t base = first; base <= last; base += shares * kPages) {
    const int64_t block = base + share * kPages + team;
    const bool taken = block <= last;
    const int64_t page = taken ? span.pages[block] : 0;
    const PageView<Page> view{Page(args.cache, page, kv),
                              static_cast<int>(std::max<int64_t>(0, oldest - block * kBlockKeys)),
                              static_cast<int>(std::min<int64_t>(+kBlockKeys, position + 1 - block * kBlockKeys))};
    const bool seen = taken && Member() >= view.from && Member() < view.visible;
    float value_scale = 1;
    if constexpr (Page::kCodes) {
      if (seen) value_scale = view.page.ValueScale(Member(), dim);
    }
    const float score = taken ? Score(args, view.page.Dot(q, key_dim, seen, moderate)) : 0.0F;
    const float largest = WarpMax(score, seen);
    if (threadIdx.x == 0) sums[team].max[warp % 2] = largest;
    __syncthreads();
    const float weight = seen ? Exp<ScalarOps>(score - sums[team].Max()) : 0.0F;
    p[team * kBlockKeys + Member()] = weight;
    if constexpr (Page::kCodes) {
      // Weight * (code * scale) is (weight * scale) * code where both products in brackets are exact.
      const float scaled = weight * value_scale;
      scaled_p[team * kBlockKeys + Member()] = scaled;
      const bool exact = __all_sync(kAllLanes, !seen || (value_scale <= 0x1p48F && scaled >= 0x1p-126F));
      if (threadIdx.x == 0) scales_in[team][warp % 2] = exact;
    }
    __syncthreads();
    if (taken) {
      const float* of_team = p + team * kBlockKeys;
      if (warp % 2 == 0) {
        const float total = PageSum(of_team);
        if (threadIdx.x == 0) sums[team].sum = total;
      }
      if constexpr (Page::kCodes) {
        if (scales_in[team][0] && scales_in[team][1]) {
          Values<true>(view, dim, scaled_p + team * kBlockKeys, o + team * padded);
        } else {
          Values<false>(view, dim, of_team, o + team * padded);
        }
      } else {
        Values<true>(view, dim, of_team, o + team * padded);
      }
    }
    SyncShares(shares);
    const bool begins = base == first;
    const int pages = static_cast<int>(std::min<int64_t>(shares * kPages, last - base + 1));
    WeighPages(sums, pages, begins, max, merging);
    for (int d = begin + thread; d < end; d += kBlock) {
      float merged = begins ? 0.0F : out[d];
#pragma unroll 8
      for (int i = 0; i < pages; ++i) {
        const float* of_page = OfBlock(o, i / kPages) + i % kPages * padded;
        merged = (begins && i == 0 ? 0.0F : merged * merging.keep[i]) + of_page[d] * merging.take[i];
      }
      out[d] = merged;
    }
    for (int i = 0; i < pages; ++i) sum = sum * merging.keep[i] + merging.sum[i] * merging.take[i];
    max = merging.last;
    SyncShares(shares);
  }
  const float keep = MergeSink(args, head, max, &sum);
  const bool sink = args.sinks != nullptr;
  float* to = args.out + (t * args.q_heads + head) * dim;
  for (int d = begin + thread; d < end; d += kBlock) to[d] = (sink ? out[d] * keep : out[d]) / sum;
}

// Blocks that share the pages of a query, where there are so many queries: as many as fill the device twice.
unsigned SharesOf(int64_t queries) {
  if (!IsHopperOrLater()) return 1;
  const int64_t blocks = 2 * DeviceAttribute(cudaDevAttrMultiProcessorCount);
  unsigned shares = kMostShares;
  while (shares > 1 && queries * shares > blocks) shares /= 2;
  return shares;
}

void AttentionCuda(const Attention::Args& args) {
  if (args.begin >= args.end || args.q_heads == 0) return;
  // What can be said without the spans, which are the device's: a step of one token a sequence, as decoding records it,
  // has no span that tiles serve, and a step of one span has no other.
  const int64_t tokens = TokensOf(args), spans = static_cast<int64_t>(args.spans.size());
  if (tokens - spans + 1 < kTileTokens || !TilesServe(args.cache)) return AttentionByQueries(args, true);
  if (spans > 1) AttentionByQueries(args, false);
  AttentionByTiles(args);
}

}  // namespace

void AttentionByQueries(const Attention::Args& args, bool all) {
  const int64_t padded = CeilDiv(args.cache.ValueDim(), 4) * 4;
  const bool codes = args.cache.key_codes != nullptr;
  const auto kernel = codes ? AttentionKernel<CodePage> : AttentionKernel<FloatPage>;
  const int64_t floats = kPages * ((codes ? 2 : 1) * kBlockKeys + padded) + padded + args.cache.head_dim;
  const int64_t most = all ? std::numeric_limits<int32_t>::max() : kTileTokens - 1;
  const int64_t spans = static_cast<int64_t>(args.spans.size()), first = args.begin / args.cache.kv_heads;
  const bool by_span = !all && spans * most < TokensOf(args);
  const int64_t begin = by_span ? 0 : first, end = by_span ? spans * most : first + TokensOf(args);
  ForRows(begin, end, [&](int64_t row, unsigned count) {
    const unsigned shares = SharesOf(args.q_heads * count);
    const dim3 grid(static_cast<unsigned>(args.q_heads), count, shares), block(kWarp, kBlock / kWarp);
    StartKernel({grid, block, static_cast<size_t>(floats) * sizeof(float), shares}, kernel, args,
                TokenRows{row, most, by_span});
  });
  CheckLaunch("attention/cuda");
}

std::span<const KernelRow<Attention>> Attention::CudaRows() {
  static constexpr KernelRow<Attention> kRows[] = {{"attention/cuda", kCudaTarget, AttentionCuda}};
  return kRows;
}

}  // namespace trivet::kernels
