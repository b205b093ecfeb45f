// SPDX-License-Identifier: Apache-2.0
// Attention with vectors over keys for the scores and over channels for the values. Up to four query heads that share a
// KV head go together: four accumulator vectors each hide the latency of the chains and share every load.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <algorithm>
#include <memory>

#include "kernels/attention.h"
#include "kernels/e4m3-inl.h"
#include "kernels/ops-inl.h"
#include "kernels/reference.h"
#include "quant/convert.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {

constexpr int64_t kKeyVectors = 4;  // score vectors held at once; the block is walked in steps of them
constexpr int64_t kHeadsAtOnce = 4;

// Keys and values of one page and KV head as floats: where they are, or decoded into memory of its own.
class PageReader {
 public:
  explicit PageReader(const KvPages& cache) : cache_(cache) {
    if (cache.key_codes == nullptr) return;
    own_ =
        std::make_unique_for_overwrite<float[]>(static_cast<size_t>(kBlockKeys * (cache.head_dim + cache.ValueDim())));
  }

  struct Page {
    const float* keys;
    const float* values;
  };
  HWY_INLINE Page Read(int64_t page, int64_t head) const {
    if (own_ == nullptr) {
      return {cache_.keys + cache_.Offset(page, head), cache_.values + cache_.ValueOffset(page, head)};
    }
    const int64_t key_dim = cache_.head_dim, value_dim = cache_.ValueDim();
    float *keys = own_.get(), *values = keys + kBlockKeys * key_dim;
    const std::byte *key_codes = cache_.KeyCodes(page, head), *value_codes = cache_.ValueCodes(page, head);
    const std::byte *key_scales = key_codes + kBlockKeys * key_dim,
                    *value_scales = value_codes + kBlockKeys * value_dim;
    for (int64_t j = 0; j < kBlockKeys; j += kL) {
      const VF scale = Scales(key_scales + j);
      for (int64_t d = 0; d < key_dim; ++d) Decode(key_codes + d * kBlockKeys + j, scale, keys + d * kBlockKeys + j);
    }
    for (int64_t j = 0; j < kBlockKeys; ++j) {
      const VF scale = hn::Set(DF(), quant::FromE8M0(std::to_integer<uint8_t>(value_scales[j])));
      for (int64_t d = 0; d < value_dim; d += kL) {
        Decode(value_codes + j * value_dim + d, scale, values + j * value_dim + d);
      }
    }
    return {keys, values};
  }

 private:
  // E8M0 bytes as the exponents of floats: 0, where all codes are zeros, as 0 and 255, where they are too, as infinity.
  static HWY_INLINE VF Scales(const std::byte* from) {
    const auto bytes = hn::LoadU(hn::Rebind<uint8_t, DF>(), reinterpret_cast<const uint8_t*>(from));
    return hn::BitCast(DF(), hn::ShiftLeft<23>(hn::PromoteTo(hn::RebindToUnsigned<DF>(), bytes)));
  }
  static HWY_INLINE void Decode(const std::byte* codes, VF scale, float* HWY_RESTRICT to) {
    hn::StoreU(hn::Mul(hn::Mul(FromE4M3Over256(DF(), codes), hn::Set(DF(), 256)), scale), DF(), to);
  }

  const KvPages& cache_;
  std::unique_ptr<float[]> own_;
};

// scores[h][64] of N query heads against one block; keys beyond `visible` get values that are never used.
template <int64_t N>
HWY_INLINE void Scores(const float* const* q, const float* HWY_RESTRICT keys, int64_t dim, float scale,
                       float (*HWY_RESTRICT scores)[kBlockKeys]) {
  for (int64_t j = 0; j < kBlockKeys; j += kKeyVectors * kL) {
    VF acc[N][kKeyVectors];
    for (auto& head : acc) {
      for (VF& a : head) a = hn::Zero(DF());
    }
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t v = 0; v < kKeyVectors; ++v) {
        const VF k = hn::LoadU(DF(), keys + d * kBlockKeys + j + v * kL);
        for (int64_t n = 0; n < N; ++n) acc[n][v] = hn::MulAdd(hn::Set(DF(), q[n][d]), k, acc[n][v]);
      }
    }
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t v = 0; v < kKeyVectors; ++v) {
        hn::StoreU(hn::Mul(acc[n][v], hn::Set(DF(), scale)), DF(), scores[n] + j + v * kL);
      }
    }
  }
}

// Keys [from, to) of a block are visible.
struct Visible {
  int64_t from, to;
};

// Bends 64 scores.
HWY_INLINE void Cap(float* HWY_RESTRICT scores, float softcap) {
  for (int64_t j = 0; j < kBlockKeys; j += kL) {
    hn::StoreU(SoftCap<VectorOps>(hn::LoadU(DF(), scores + j), softcap), DF(), scores + j);
  }
}

// Replaces 64 scores by exp(s - max), zero where not visible, and returns max and the halving sum.
struct Softmax {
  float max, sum;
};
HWY_INLINE Softmax Exponentials(float* HWY_RESTRICT p, const Visible& visible) {
  const float max = *std::max_element(p + visible.from, p + visible.to);
  for (int64_t j = 0; j < kBlockKeys; j += kL) {
    const VF e = Exp<VectorOps>(hn::Sub(hn::LoadU(DF(), p + j), hn::Set(DF(), max)));
    hn::StoreU(hn::IfThenElseZero(hn::FirstN(DF(), static_cast<size_t>(std::clamp<int64_t>(visible.to - j, 0, kL))), e),
               DF(), p + j);
  }
  std::fill_n(p, visible.from, 0.0F);
  float sums[kBlockKeys / 2];
  for (int64_t j = 0; j < kBlockKeys / 2; j += kL) {
    hn::StoreU(hn::Add(hn::LoadU(DF(), p + j), hn::LoadU(DF(), p + j + kBlockKeys / 2)), DF(), sums + j);
  }
  return {max, HalvingSum(sums, kBlockKeys / 2)};
}

// How a block's values meet what earlier blocks left.
template <int64_t N>
struct Merge {
  float keep[N], take[N];
};

// out[n] = out[n] * keep[n] + (chain over j of p[n][j] * values[j]) * take[n], channels in vectors.
template <int64_t N>
HWY_INLINE void Accumulate(const float (*HWY_RESTRICT p)[kBlockKeys], const float* HWY_RESTRICT values, int64_t dim,
                           const Visible& visible, const Merge<N>& merge, float* const* out) {
  for (int64_t d = 0; d < dim; d += 2 * kL) {
    const bool two = d + 2 * kL <= dim;
    VF acc[N][2];
    for (auto& head : acc) head[0] = head[1] = hn::Zero(DF());
    for (int64_t j = visible.from; j < visible.to; ++j) {
      const VF v0 = hn::LoadU(DF(), values + j * dim + d);
      const VF v1 = two ? hn::LoadU(DF(), values + j * dim + d + kL) : v0;
      for (int64_t n = 0; n < N; ++n) {
        const VF weight = hn::Set(DF(), p[n][j]);
        acc[n][0] = hn::MulAdd(weight, v0, acc[n][0]);
        acc[n][1] = hn::MulAdd(weight, v1, acc[n][1]);
      }
    }
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t v = 0; v < (two ? 2 : 1); ++v) {
        float* at = out[n] + d + v * kL;
        const VF kept = hn::Mul(hn::LoadU(DF(), at), hn::Set(DF(), merge.keep[n]));
        hn::StoreU(hn::Add(kept, hn::Mul(acc[n][v], hn::Set(DF(), merge.take[n]))), DF(), at);
      }
    }
  }
}

// Query heads [head, head + N) of token t, which share KV head `kv`.
template <int64_t N>
HWY_INLINE void Group(const Attention::Args& args, const PageReader& reader, int64_t t, int64_t head, int64_t kv) {
  const TokenSpan& span = SpanOf(args.spans, t);
  const int64_t dim = args.cache.ValueDim();
  const float* q[N];
  float* out[N];
  for (int64_t n = 0; n < N; ++n) {
    q[n] = args.q + t * args.q_stride + (head + n) * args.q_head_stride;
    out[n] = args.out + (t * args.q_heads + head + n) * dim;
  }
  const int64_t position = span.start + t - span.token_begin;
  const int64_t oldest = FirstVisible(args, position), first_block = oldest / kBlockKeys;
  float max[N] = {}, sum[N] = {};
  Merge<N> merge;
  HWY_ALIGN float p[N][kBlockKeys];
  for (int64_t n = 0; n < N; ++n) std::fill_n(out[n], dim, 0.0F);
  for (int64_t block = first_block; block <= position / kBlockKeys; ++block) {
    const PageReader::Page page = reader.Read(span.pages[block], kv);
    const Visible visible = {std::max<int64_t>(0, oldest - block * kBlockKeys),
                             std::min(kBlockKeys, position + 1 - block * kBlockKeys)};
    const bool first = block == first_block;
    Scores<N>(q, page.keys, args.cache.head_dim, args.scale, p);
    for (int64_t n = 0; n < N; ++n) {
      if (args.softcap > 0) Cap(p[n], args.softcap);
      const Softmax softmax = Exponentials(p[n], visible);
      const float merged = first ? softmax.max : std::max(max[n], softmax.max);
      merge.keep[n] = first ? 0.0F : Exp<ScalarOps>(max[n] - merged);
      merge.take[n] = Exp<ScalarOps>(softmax.max - merged);
      sum[n] = sum[n] * merge.keep[n] + softmax.sum * merge.take[n];
      max[n] = merged;
    }
    Accumulate<N>(p, page.values, dim, visible, merge, out);
  }
  for (int64_t n = 0; n < N; ++n) {
    if (args.sinks != nullptr) {
      const float sink = args.sinks[head + n], merged = std::max(max[n], sink);
      const float keep = Exp<ScalarOps>(max[n] - merged);
      sum[n] = sum[n] * keep + Exp<ScalarOps>(sink - merged);
      for (int64_t d = 0; d < dim; ++d) out[n][d] *= keep;
    }
    for (int64_t d = 0; d < dim; ++d) out[n][d] /= sum[n];
  }
}

void AttentionSimd(const Attention::Args& args) {
  if (args.cache.ValueDim() % kL != 0) return AttentionRef(args);  // the same bits, for widths that no vector divides
  const PageReader reader(args.cache);
  for (int64_t item = args.begin; item < args.end; ++item) {
    const int64_t t = item / args.cache.kv_heads, kv = item % args.cache.kv_heads;
    auto [first, last] = HeadsOf(args, kv);
    for (; last - first >= kHeadsAtOnce; first += kHeadsAtOnce) Group<kHeadsAtOnce>(args, reader, t, first, kv);
    for (; last - first >= 2; first += 2) Group<2>(args, reader, t, first, kv);
    for (; first < last; ++first) Group<1>(args, reader, t, first, kv);
  }
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trivet::kernels {

std::span<const KernelRow<Attention>> Attention::Rows() {
  static constexpr KernelRow<Attention> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"attention/avx512", HWY_AVX3, N_AVX3::AttentionSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"attention/avx2", HWY_AVX2, N_AVX2::AttentionSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"attention/neon", HWY_NEON, N_NEON::AttentionSimd},
#endif
    {"attention/ref", 0, AttentionRef},
  };
  return kRows;
}

}  // namespace trivet::kernels
#endif
