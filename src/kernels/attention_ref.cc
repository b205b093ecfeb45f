// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/elementary.h"
#include "kernels/lanes.h"
#include "kernels/reference.h"

namespace trivet::kernels {
namespace {

// One query head of one token at position `position`; `page` names its pages.
void OneHead(const Attention::Args& args, const float* q, int64_t kv, const TokenSpan& span, int64_t position,
             float* out) {
  const int64_t dim = args.cache.head_dim;
  float max = 0, sum = 0;
  std::vector<float> block_out(static_cast<size_t>(dim));
  for (int64_t block = 0; block <= position / kBlockKeys; ++block) {
    const float* keys = args.cache.keys + args.cache.Offset(span.pages[block], kv);
    const float* values = args.cache.values + args.cache.Offset(span.pages[block], kv);
    const int64_t visible = std::min(kBlockKeys, position + 1 - block * kBlockKeys);
    float p[kBlockKeys] = {};
    for (int64_t j = 0; j < visible; ++j) {
      float s = 0;
      for (int64_t d = 0; d < dim; ++d) s = std::fma(q[d], keys[d * kBlockKeys + j], s);
      p[j] = s * args.scale;
    }
    const float block_max = *std::max_element(p, p + visible);
    for (int64_t j = 0; j < visible; ++j) p[j] = Exp<ScalarOps>(p[j] - block_max);
    for (int64_t d = 0; d < dim; ++d) {
      float o = 0;
      for (int64_t j = 0; j < visible; ++j) o = std::fma(p[j], values[j * dim + d], o);
      block_out[static_cast<size_t>(d)] = o;
    }
    const float block_sum = HalvingSum(p, kBlockKeys);
    const float merged = block == 0 ? block_max : std::max(max, block_max);
    const float keep = block == 0 ? 0.0F : Exp<ScalarOps>(max - merged);
    const float take = Exp<ScalarOps>(block_max - merged);
    for (int64_t d = 0; d < dim; ++d) {
      out[d] = (block == 0 ? 0.0F : out[d] * keep) + block_out[static_cast<size_t>(d)] * take;
    }
    sum = sum * keep + block_sum * take;
    max = merged;
  }
  for (int64_t d = 0; d < dim; ++d) out[d] /= sum;
}

}  // namespace

const TokenSpan& SpanOf(std::span<const TokenSpan> spans, int64_t t) {
  auto it = std::upper_bound(spans.begin(), spans.end(), t,
                             [](int64_t row, const TokenSpan& span) { return row < span.token_begin; });
  CHECK(it != spans.begin());
  return *(it - 1);
}

HeadRange HeadsOf(const Attention::Args& args, int64_t kv) {
  const auto [first, last] = std::equal_range(args.q_to_kv, args.q_to_kv + args.q_heads, static_cast<int32_t>(kv));
  return {first - args.q_to_kv, last - args.q_to_kv};
}

void AttentionRef(const Attention::Args& args) {
  const int64_t dim = args.cache.head_dim;
  for (int64_t item = args.begin; item < args.end; ++item) {
    const int64_t t = item / args.cache.kv_heads, kv = item % args.cache.kv_heads;
    const TokenSpan& span = SpanOf(args.spans, t);
    const HeadRange heads = HeadsOf(args, kv);
    for (int64_t h = heads.first; h < heads.last; ++h) {
      OneHead(args, args.q + t * args.q_stride + h * args.q_head_stride, kv, span, span.start + t - span.token_begin,
              args.out + (t * args.q_heads + h) * dim);
    }
  }
}

void KvWriteRef(const KvWrite::Args& args) {
  const int64_t dim = args.cache.head_dim, heads = args.cache.kv_heads;
  for (int64_t t = args.begin; t < args.end; ++t) {
    const TokenSpan& span = SpanOf(args.spans, t);
    const int64_t position = span.start + t - span.token_begin;
    const int64_t page = span.pages[position / kBlockKeys], slot = position % kBlockKeys;
    for (int64_t h = 0; h < heads; ++h) {
      const float* key = args.kv + t * args.kv_stride + h * dim;
      const float* value = key + heads * dim;
      float* keys = args.cache.keys + args.cache.Offset(page, h);
      float* values = args.cache.values + args.cache.Offset(page, h);
      for (int64_t d = 0; d < dim; ++d) keys[d * kBlockKeys + slot] = key[d];
      std::copy_n(value, dim, values + slot * dim);
    }
  }
}

}  // namespace trivet::kernels
