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

// Stores one row of `dim` values as codes `stride` apart, and its scale. A row that is not finite stays so: its scale
// is no number.
void EncodeRow(const float* values, int64_t dim, std::byte* codes, int64_t stride, std::byte* scale) {
  const uint8_t exponent = quant::Fp8Exponent(quant::LargestMagnitude({values, static_cast<size_t>(dim)}));
  const float unit = quant::FromE8M0(exponent);
  *scale = std::byte{exponent};
  for (int64_t d = 0; d < dim; ++d) {
    codes[d * stride] = std::byte{std::isfinite(unit) ? quant::ToE4M3(values[d] / unit) : uint8_t{0}};
  }
}

float Decode(std::byte code, std::byte scale) {
  return quant::FromE4M3(std::to_integer<uint8_t>(code)) * quant::FromE8M0(std::to_integer<uint8_t>(scale));
}

// Query head `head` of one token at position `position`, with KV head `kv`.
void OneHead(const Attention::Args& args, int64_t t, int64_t head, int64_t kv, const TokenSpan& span) {
  const float* q = args.q + t * args.q_stride + head * args.q_head_stride;
  const int64_t key_dim = args.cache.head_dim, dim = args.cache.ValueDim();
  float* out = args.out + (t * args.q_heads + head) * dim;
  const int64_t position = span.start + t - span.token_begin;
  const int64_t oldest = FirstVisible(args, position), first_block = oldest / kBlockKeys;
  float max = 0, sum = 0;
  std::vector<float> block_out(static_cast<size_t>(dim)), decoded;
  if (args.cache.key_codes != nullptr) decoded.resize(static_cast<size_t>(kBlockKeys * (key_dim + dim)));
  for (int64_t block = first_block; block <= position / kBlockKeys; ++block) {
    const int64_t page = span.pages[block];
    const float *keys = decoded.data(), *values = decoded.data() + kBlockKeys * key_dim;
    if (decoded.empty()) {
      keys = args.cache.keys + args.cache.Offset(page, kv);
      values = args.cache.values + args.cache.ValueOffset(page, kv);
    } else {
      DecodeKvRef(args.cache, page, kv, decoded.data(), decoded.data() + kBlockKeys * key_dim);
    }
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

void DecodeKvRef(const KvPages& cache, int64_t page, int64_t head, float* keys, float* values) {
  const int64_t key_dim = cache.head_dim, value_dim = cache.ValueDim();
  const std::byte *key_codes = cache.KeyCodes(page, head), *value_codes = cache.ValueCodes(page, head);
  const std::byte *key_scales = key_codes + kBlockKeys * key_dim, *value_scales = value_codes + kBlockKeys * value_dim;
  for (int64_t at = 0; at < kBlockKeys * key_dim; ++at) keys[at] = Decode(key_codes[at], key_scales[at % kBlockKeys]);
  for (int64_t at = 0; at < kBlockKeys * value_dim; ++at) {
    values[at] = Decode(value_codes[at], value_scales[at / value_dim]);
  }
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
