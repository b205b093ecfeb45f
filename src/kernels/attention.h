// SPDX-License-Identifier: Apache-2.0
// Causal grouped-query attention over a paged cache, and writing that cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernel.h"
#include "kernels/token_span.h"
#include "quant/convert.h"

namespace trivet::kernels {

/// Keys of one page and of one block of the softmax: blocks stand at absolute multiples of 64, so a query sees the same
/// blocks whatever step computes it.
inline constexpr int64_t kBlockKeys = 64;

/// Bytes of one page's and KV head's keys, or values, in E4M3: the codes, ordered as floats are, then for each of the
/// 64 rows of `dim` channels its scale, an E8M0 byte (quant::Fp8Exponent). What a code stands for, code * scale, is
/// exact.
constexpr int64_t KvCodeBytes(int64_t dim) { return kBlockKeys * (dim + 1); }

/// The code of a value under its row's scale. A row that is not finite stays so: its scale is no number, its codes are
/// zeros.
constexpr std::byte ToKvCode(float value, uint8_t scale) {
  return std::byte{scale == 255 ? uint8_t{0} : quant::ToE4M3(value / quant::FromE8M0(scale))};
}

/// One layer's cache, both parts aligned to 16 bytes. Page p, KV head h: keys at keys + (p * kv_heads + h) * 64 * D as
/// [D, 64], values at values + (p * kv_heads + h) * 64 * Dv as [64, Dv]; or codes at key_codes + (p * kv_heads + h) *
/// KvCodeBytes(D) and likewise. Two of the four pointers are null.
struct KvPages {
  float* keys = nullptr;
  float* values = nullptr;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;   // D
  int64_t value_dim = 0;  // Dv; 0 means D
  std::byte* key_codes = nullptr;
  std::byte* value_codes = nullptr;

  constexpr int64_t ValueDim() const { return value_dim == 0 ? head_dim : value_dim; }
  constexpr int64_t Offset(int64_t page, int64_t head) const {
    return (page * kv_heads + head) * kBlockKeys * head_dim;
  }
  constexpr int64_t ValueOffset(int64_t page, int64_t head) const {
    return (page * kv_heads + head) * kBlockKeys * ValueDim();
  }
  constexpr std::byte* KeyCodes(int64_t page, int64_t head) const {
    return key_codes + (page * kv_heads + head) * KvCodeBytes(head_dim);
  }
  constexpr std::byte* ValueCodes(int64_t page, int64_t head) const {
    return value_codes + (page * kv_heads + head) * KvCodeBytes(ValueDim());
  }
};

/// For every token t and query head, over the blocks that hold visible keys: those at positions first .. position(t),
/// where first is 0, or position(t) - window + 1 when that is later:
///   s_j = (fma chain over d of q[d] * k_j[d]) * scale, then softcap * tanh(s_j / softcap) if there is one
///   m = max s_j;  p_j = exp(s_j - m), 0 for keys that are not visible
///   l = halving sum of the block's 64 p_j;  o[d] = fma chain over visible j of p_j * v_j[d]
/// and blocks are merged in ascending order:  M' = max(M, m);  L = L * exp(M - M') + l * exp(m - M'), O likewise.
/// A head's sink is one more merge at the end, with m = sink, l = 1 and no value. The output is O / L.
///   q      head h of token t is at q + t * q_stride + h * q_head_stride, D values
///   q_to_kv [q_heads] ascending
///   out    [T, q_heads * Dv] float32, dense
///   window keys that a token sees, itself included; 0: all
///   sinks  [q_heads], or null
///   range  items [begin, end) of T * kv_heads: item i is KV head i % kv_heads of token i / kv_heads
struct Attention {
  struct Args {
    const float* q = nullptr;
    int64_t q_stride = 0;
    int64_t q_head_stride = 0;
    int64_t q_heads = 0;
    const int32_t* q_to_kv = nullptr;
    KvPages cache;
    float scale = 1;
    float* out = nullptr;
    std::span<const TokenSpan> spans;
    int64_t begin = 0, end = 0;
    int64_t window = 0;
    float softcap = 0;  // 0: none
    const float* sinks = nullptr;
  };
  static constexpr std::string_view kName = "attention";
  static std::span<const KernelRow<Attention>> Rows();
  static std::span<const KernelRow<Attention>> CudaRows();
};

/// Stores the step's keys and values in their pages; as codes, every head's row under a scale of its own.
///   kv      key head h of token t is at kv + t * kv_stride + h * D, value head h follows kv_heads * D later
///   values  where values do not follow the keys: value head h of token t is at values + t * kv_stride + h * Dv
///   range   tokens [begin, end)
struct KvWrite {
  struct Args {
    const float* kv = nullptr;
    int64_t kv_stride = 0;
    KvPages cache;
    std::span<const TokenSpan> spans;
    int64_t begin = 0, end = 0;
    const float* values = nullptr;
  };
  static constexpr std::string_view kName = "kv_write";
  static std::span<const KernelRow<KvWrite>> Rows();
  static std::span<const KernelRow<KvWrite>> CudaRows();
};

/// The span that holds token row `t` of the step.
const TokenSpan& SpanOf(std::span<const TokenSpan> spans, int64_t t);

/// First position that a token at `position` sees.
constexpr int64_t FirstVisible(const Attention::Args& args, int64_t position) {
  return args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
}

/// Query heads [first, last).
struct HeadRange {
  int64_t first, last;
};

/// The query heads that use KV head `kv`.
HeadRange HeadsOf(const Attention::Args& args, int64_t kv);

}  // namespace trivet::kernels
