// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/elementary.h"
#include "kernels/lanes.h"
#include "kernels/reference.h"
#include "quant/convert.h"
#include "quant/quantize.h"

namespace trivet::kernels {
namespace {

// Stores one row of `dim` values as codes `stride` apart, and its scale.
void EncodeRow(const float* values, int64_t dim, std::byte* codes, int64_t stride, std::byte* scale) {
  const uint8_t exponent = quant::Fp8Exponent(quant::LargestMagnitude({values, static_cast<size_t>(dim)}));
  *scale = std::byte{exponent};
  for (int64_t d = 0; d < dim; ++d) codes[d * stride] = ToKvCode(values[d], exponent);
}

float Decode(std::byte code, std::byte scale) {
  return quant::FromE4M3(std::to_integer<uint8_t>(code)) * quant::FromE8M0(std::to_integer<uint8_t>(scale));
}

// A softmax under way over some of the keys: largest score, sum of the weights, weighted values.
struct Partial {
  float max = 0, sum = 0;
  std::vector<float> out;
  bool empty = true;

  void Merge(float other_max, float other_sum, const std::vector<float>& other) {
    const float merged = empty ? other_max : std::max(max, other_max);
    const float keep = empty ? 0.0F : Exp<ScalarOps>(max - merged);
    const float take = Exp<ScalarOps>(other_max - merged);
    for (size_t d = 0; d < out.size(); ++d) out[d] = (empty ? 0.0F : out[d] * keep) + other[d] * take;
    sum = sum * keep + other_sum * take;
    max = merged;
    empty = false;
  }
};

// One query head of one token, and the KV head that it uses.
struct Query {
  const Attention::Args& args;
  const TokenSpan& span;
  const float* q;
  int64_t kv, position, oldest;  // oldest: the first position that it sees
};

// Merges the blocks [begin, end) in ascending order.
void VisitBlocks(const Query& query, int64_t begin, int64_t end, Partial* partial) {
  const Attention::Args& args = query.args;
  const int64_t key_dim = args.cache.head_dim, dim = args.cache.ValueDim();
  std::vector<float> block_out(static_cast<size_t>(dim)), decoded;
  if (args.cache.key_codes != nullptr) decoded.resize(static_cast<size_t>(kBlockKeys * (key_dim + dim)));
  for (int64_t block = begin; block < end; ++block) {
    const int64_t page = query.span.pages[block];
    const float *keys = decoded.data(), *values = decoded.data() + kBlockKeys * key_dim;
    if (decoded.empty()) {
      keys = args.cache.keys + args.cache.Offset(page, query.kv);
      values = args.cache.values + args.cache.ValueOffset(page, query.kv);
    } else {
      DecodeKvRef(args.cache, page, query.kv, decoded.data(), decoded.data() + kBlockKeys * key_dim);
    }
    const int64_t from = std::max<int64_t>(0, query.oldest - block * kBlockKeys);
    const int64_t visible = std::min(kBlockKeys, query.position + 1 - block * kBlockKeys);
    float p[kBlockKeys] = {};
    for (int64_t j = from; j < visible; ++j) {
      float s = 0;
      for (int64_t d = 0; d < key_dim; ++d) s = std::fma(query.q[d], keys[d * kBlockKeys + j], s);
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
    partial->Merge(block_max, HalvingSum(p, kBlockKeys), block_out);
  }
}

// Query head `head` of token `t`, with KV head `kv`, in `splits` runs of blocks.
void OneHead(const Attention::Args& args, int64_t t, int64_t head, int64_t kv, int64_t splits) {
  const TokenSpan& span = SpanOf(args.spans, t);
  const int64_t dim = args.cache.ValueDim(), position = span.start + t - span.token_begin;
  const Query query{args, span,     args.q + t * args.q_stride + head * args.q_head_stride,
                    kv,   position, FirstVisible(args, position)};
  const int64_t first = query.oldest / kBlockKeys, blocks = position / kBlockKeys + 1 - first;
  Partial all{0, 0, std::vector<float>(static_cast<size_t>(dim))};
  for (int64_t split = 0; split < splits; ++split) {
    const int64_t begin = first + blocks * split / splits, end = first + blocks * (split + 1) / splits;
    if (splits == 1 || begin == end) {
      VisitBlocks(query, begin, end, &all);
      continue;
    }
    Partial part{0, 0, std::vector<float>(static_cast<size_t>(dim))};
    VisitBlocks(query, begin, end, &part);
    all.Merge(part.max, part.sum, part.out);
  }
  if (args.sinks != nullptr) {
    const float merged = std::max(all.max, args.sinks[head]);
    const float keep = Exp<ScalarOps>(all.max - merged);
    all.sum = all.sum * keep + Exp<ScalarOps>(args.sinks[head] - merged);
    for (float& o : all.out) o *= keep;
  }
  float* out = args.out + (t * args.q_heads + head) * dim;
  for (int64_t d = 0; d < dim; ++d) out[d] = all.out[static_cast<size_t>(d)] / all.sum;
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

void DecodeKvRef(const KvPages& cache, int64_t page, int64_t head, float* keys, float* values) {
  const int64_t key_dim = cache.head_dim, value_dim = cache.ValueDim();
  const std::byte *key_codes = cache.KeyCodes(page, head), *value_codes = cache.ValueCodes(page, head);
  const std::byte *key_scales = key_codes + kBlockKeys * key_dim, *value_scales = value_codes + kBlockKeys * value_dim;
  for (int64_t at = 0; at < kBlockKeys * key_dim; ++at) keys[at] = Decode(key_codes[at], key_scales[at % kBlockKeys]);
  for (int64_t at = 0; at < kBlockKeys * value_dim; ++at) {
    values[at] = Decode(value_codes[at], value_scales[at / value_dim]);
  }
}

void AttentionRef(const Attention::Args& args) { SplitAttentionRef(args, 1); }

void SplitAttentionRef(const Attention::Args& args, int64_t splits) {
  for (int64_t item = args.begin; item < args.end; ++item) {
    const int64_t t = item / args.cache.kv_heads, kv = item % args.cache.kv_heads;
    const HeadRange heads = HeadsOf(args, kv);
    for (int64_t h = heads.first; h < heads.last; ++h) OneHead(args, t, h, kv, splits);
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
      if (args.cache.key_codes != nullptr) {
        std::byte *keys = args.cache.KeyCodes(page, h), *values = args.cache.ValueCodes(page, h);
        EncodeRow(key, dim, keys + slot, kBlockKeys, keys + kBlockKeys * dim + slot);
        EncodeRow(value, value_dim, values + slot * value_dim, 1, values + kBlockKeys * value_dim + slot);
        continue;
      }
      float* keys = args.cache.keys + args.cache.Offset(page, h);
      float* values = args.cache.values + args.cache.ValueOffset(page, h);
      for (int64_t d = 0; d < dim; ++d) keys[d * kBlockKeys + slot] = key[d];
      std::copy_n(value, value_dim, values + slot * value_dim);
    }
  }
}

}  // namespace trivet::kernels
