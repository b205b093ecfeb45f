// SPDX-License-Identifier: Apache-2.0
// DeltaNet with vectors over state columns. Four vectors at a time hide the latency of their chains over i.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_net_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
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
};

// N vectors of columns from c.
template <int64_t N>
HWY_INLINE void Columns(const Token& token, float* HWY_RESTRICT state, int64_t dk, int64_t dv, int64_t c) {
  const VF decay = hn::Set(DF(), token.gates.decay);
  VF sum[N], update[N];
  for (VF& s : sum) s = hn::Zero(DF());
  for (int64_t i = 0; i < dk; ++i) {
    const VF k = hn::Set(DF(), token.k[i]);
    for (int64_t n = 0; n < N; ++n) {
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

void Head(const DeltaNet::Args& args, const TokenSpan& span, int64_t h) {
  const int64_t dk = args.dk, dv = args.dv;
  float* state = args.state + span.state_slot * args.state_stride + h * dk * dv;
  if (span.start == 0) std::fill_n(state, dk * dv, 0.0F);
  for (int64_t t = span.token_begin; t < span.token_begin + span.count; ++t) {
    Token token;
    token.q = args.qkv + t * args.qkv_stride + args.v_to_k[h] * dk;
    token.k = token.q + args.k_heads * dk;
    token.v = args.qkv + t * args.qkv_stride + 2 * args.k_heads * dk + h * dv;
    token.out = args.out + (t * args.v_heads + h) * dv;
    token.gates = GatesOf(args, t, h);
    int64_t c = 0;
    for (; c + 4 * kL <= dv; c += 4 * kL) Columns<4>(token, state, dk, dv, c);
    for (; c < dv; c += kL) Columns<1>(token, state, dk, dv, c);
  }
}

void DeltaNetSimd(const DeltaNet::Args& args) {
  if (args.dv % kL != 0) return DeltaNetRef(args);  // the same bits, for head widths that no vector divides
  for (const TokenSpan& span : args.spans) {
    for (int64_t h = args.begin; h < args.end; ++h) Head(args, span, h);
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
