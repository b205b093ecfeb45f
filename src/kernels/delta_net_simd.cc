// SPDX-License-Identifier: Apache-2.0
// DeltaNet with vectors over state columns. Four vectors at a time hide the latency of their chains over i. A head's
// state fits the first-level cache, those of many sequences fit none: while one is computed the next is fetched, which
// lies too far away for the processor to foresee.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_net_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/delta_net.h"
#include "kernels/ops-inl.h"
#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {

// One token's pointers for one head, at its first column.
struct Token {
  const float* q;
  const float* k;
  const float* v;
  float* out;
  DeltaGates gates;
  const float* next;  // the state that is computed after this one
};

// N vectors of columns from c; with kFetch it fetches those of the next state.
template <int64_t N, bool kFetch>
HWY_INLINE void Columns(const Token& token, float* HWY_RESTRICT state, int64_t dk, int64_t dv, int64_t c) {
  const VF decay = hn::Set(DF(), token.gates.decay);
  VF sum[N], update[N];
  for (VF& s : sum) s = hn::Zero(DF());
  for (int64_t i = 0; i < dk; ++i) {
    const VF k = hn::Set(DF(), token.k[i]);
    for (int64_t n = 0; n < N; ++n) {
      if constexpr (kFetch) hwy::Prefetch(token.next + i * dv + c + n * kL);
      float* at = state + i * dv + c + n * kL;
      const VF decayed = hn::Mul(hn::LoadU(DF(), at), decay);
      hn::StoreU(decayed, DF(), at);
      sum[n] = hn::MulAdd(decayed, k, sum[n]);
    }
  }
  for (int64_t n = 0; n < N; ++n) {
    const VF v = hn::LoadU(DF(), token.v + c + n * kL);
    update[n] = hn::Mul(hn::Set(DF(), token.gates.beta), hn::Sub(v, sum[n]));
    sum[n] = hn::Zero(DF());
  }
  for (int64_t i = 0; i < dk; ++i) {
    const VF k = hn::Set(DF(), token.k[i]);
    const VF q = hn::Set(DF(), token.q[i]);
    for (int64_t n = 0; n < N; ++n) {
      float* at = state + i * dv + c + n * kL;
      const VF updated = hn::MulAdd(k, update[n], hn::LoadU(DF(), at));
      hn::StoreU(updated, DF(), at);
      sum[n] = hn::MulAdd(updated, q, sum[n]);
    }
  }
  for (int64_t n = 0; n < N; ++n) hn::StoreU(sum[n], DF(), token.out + c + n * kL);
}

template <bool kFetch>
HWY_INLINE void AllColumns(const Token& token, float* HWY_RESTRICT state, int64_t dk, int64_t dv) {
  int64_t c = 0;
  for (; c + 4 * kL <= dv; c += 4 * kL) Columns<4, kFetch>(token, state, dk, dv, c);
  for (; c < dv; c += kL) Columns<1, kFetch>(token, state, dk, dv, c);
}

HWY_INLINE float* StateOf(const DeltaNet::Args& args, size_t span, int64_t h) {
  return args.state + args.spans[span].state_slot * args.state_stride + h * args.dk * args.dv;
}

// Head h of span s; `next` is the state that comes after.
void Head(const DeltaNet::Args& args, size_t s, int64_t h, const float* next) {
  const TokenSpan& span = args.spans[s];
  const int64_t dk = args.dk, dv = args.dv;
  float* state = StateOf(args, s, h);
  if (span.start == 0) std::fill_n(state, dk * dv, 0.0F);
  const int64_t end = span.token_begin + span.count;
  for (int64_t t = span.token_begin; t < end; ++t) {
    Token token;
    token.q = args.qkv + t * args.qkv_stride + args.v_to_k[h] * dk;
    token.k = token.q + args.k_heads * dk;
    token.v = args.qkv + t * args.qkv_stride + 2 * args.k_heads * dk + h * dv;
    token.out = args.out + (t * args.v_heads + h) * dv;
    token.gates = GatesOf(args, t, h);
    token.next = next;
    t + 1 == end ? AllColumns<true>(token, state, dk, dv) : AllColumns<false>(token, state, dk, dv);
  }
}

void DeltaNetSimd(const DeltaNet::Args& args) {
  if (args.dv % kL != 0) return DeltaNetRef(args);  // the same bits, for head widths that no vector divides
  for (size_t s = 0; s < args.spans.size(); ++s) {
    for (int64_t h = args.begin; h < args.end; ++h) {
      const bool last = h + 1 == args.end;
      const size_t after = std::min(last ? s + 1 : s, args.spans.size() - 1);
      Head(args, s, h, StateOf(args, after, last ? args.begin : h + 1));
    }
  }
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trivet::kernels {

std::span<const KernelRow<DeltaNet>> DeltaNet::Rows() {
  static constexpr KernelRow<DeltaNet> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"delta_net/avx512", HWY_AVX3, N_AVX3::DeltaNetSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"delta_net/avx2", HWY_AVX2, N_AVX2::DeltaNetSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"delta_net/neon", HWY_NEON, N_NEON::DeltaNetSimd},
#endif
    {"delta_net/ref", 0, DeltaNetRef},
  };
  return kRows;
}

}  // namespace trivet::kernels
#endif
