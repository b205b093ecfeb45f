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

// Query head `head` of one token at position `position`, with KV head `kv`.
void OneHead(const Attention::Args& args, int64_t t, int64_t head, int64_t kv, const TokenSpan& span) {
  const float* q = args.q + t * args.q_stride + head * args.q_head_stride;
  const int64_t key_dim = args.cache.head_dim, dim = args.cache.ValueDim();
  float* out = args.out + (t * args.q_heads + head) * dim;
  const int64_t position = span.start + t - span.token_begin;
  const int64_t oldest = FirstVisible(args, position), first_block = oldest / kBlockKeys;
  float max = 0, sum = 0;
  std::vector<float> block_out(static_cast<size_t>(dim));
  for (int64_t block = first_block; block <= position / kBlockKeys; ++block) {
    const float* keys = args.cache.keys + args.cache.Offset(span.pages[block], kv);
    const float* values = args.cache.values + args.cache.ValueOffset(span.pages[block], kv);
    const int64_t from = std::max<int64_t>(0, oldest - block * kBlockKeys);
    const int64_t visible = std::min(kBlockKeys, position + 1 - block * kBlockKeys);
    const bool first = block == first_block;
    float p[kBlockKeys] = {};
    for (int64_t j = from; j < visible; ++j) {
      float s = 0;
      for (int64_t d = 0; d < key_dim; ++d) s = std::fma(q[d], keys[d * kBlockKeys + j], s);
      p[j] = s * args.scale;
      if (args.softcap > 0) p[j] = SoftCap<ScalarOps>(p[j], args.softcap);
    }
    const float block_max = *std::max_element(p + from, p + visible);
    for (int64_t j = from; j < visible; ++j) p[j] = Exp<ScalarOps>(p[j] - block_max);
    for (int64_t d = 0; d < dim; ++d) {
      float o = 0;
      for (int64_t j = from; j < visible; ++j) o = std::fma(p[j], values[j * dim + d], o);
      block_out[static_cast<size_t>(d)] = o;
    }
    const float block_sum = HalvingSum(p, kBlockKeys);
    const float merged = first ? block_max : std::max(max, block_max);
    const float keep = first ? 0.0F : Exp<ScalarOps>(max - merged);
    const float take = Exp<ScalarOps>(block_max - merged);
    for (int64_t d = 0; d < dim; ++d) {
      out[d] = (first ? 0.0F : out[d] * keep) + block_out[static_cast<size_t>(d)] * take;
    }
    sum = sum * keep + block_sum * take;
    max = merged;
  }
  if (args.sinks != nullptr) {
    const float merged = std::max(max, args.sinks[head]);
    const float keep = Exp<ScalarOps>(max - merged);
    sum = sum * keep + Exp<ScalarOps>(args.sinks[head] - merged);
    for (int64_t d = 0; d < dim; ++d) out[d] *= keep;
  }
  for (int64_t d = 0; d < dim; ++d) out[d] /= sum;
}

}  // namespace

const TokenSpan& SpanOf(std::span<const TokenSpan> spans, int64_t t) {
  const int64_t index = SpanIndexOf(spans, t);
  CHECK(index >= 0);
  return spans[static_cast<size_t>(index)];
}

HeadRange HeadsOf(const Attention::Args& args, int64_t kv) {
  const auto [first, last] = std::equal_range(args.q_to_kv, args.q_to_kv + args.q_heads, static_cast<int32_t>(kv));
  return {first - args.q_to_kv, last - args.q_to_kv};
}

void AttentionRef(const Attention::Args& args) {
  for (int64_t item = args.begin; item < args.end; ++item) {
    const int64_t t = item / args.cache.kv_heads, kv = item % args.cache.kv_heads;
    const TokenSpan& span = SpanOf(args.spans, t);
    const HeadRange heads = HeadsOf(args, kv);
    for (int64_t h = heads.first; h < heads.last; ++h) OneHead(args, t, h, kv, span);
  }
}

void KvWriteRef(const KvWrite::Args& args) {
  const int64_t dim = args.cache.head_dim, value_dim = args.cache.ValueDim(), heads = args.cache.kv_heads;
  const float* all_values = args.values == nullptr ? args.kv + heads * dim : args.values;
  for (int64_t t = args.begin; t < args.end; ++t) {
    const TokenSpan& span = SpanOf(args.spans, t);
    const int64_t position = span.start + t - span.token_begin;
    const int64_t page = span.pages[position / kBlockKeys], slot = position % kBlockKeys;
    for (int64_t h = 0; h < heads; ++h) {
      const float* key = args.kv + t * args.kv_stride + h * dim;
      const float* value = all_values + t * args.kv_stride + h * value_dim;
      float* keys = args.cache.keys + args.cache.Offset(page, h);
      float* values = args.cache.values + args.cache.ValueOffset(page, h);
      for (int64_t d = 0; d < dim; ++d) keys[d * kBlockKeys + slot] = key[d];
      std::copy_n(value, value_dim, values + slot * value_dim);
    }
  }
}

}  // namespace trivet::kernels
