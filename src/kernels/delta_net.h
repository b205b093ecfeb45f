// SPDX-License-Identifier: Apache-2.0
// The gated delta rule as a recurrence: the one form for prefill, decode and verification.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/elementary.h"
#include "kernels/kernel.h"
#include "kernels/token_span.h"

namespace trivet::kernels {

/// Per value head, with state S [dk, dv] that starts at zero, for each token in order:
///   decay = exp(-exp(a_log) * softplus(a + dt_bias)),  beta = sigmoid(b)
///   S = decay * S;  r[c] = fma chain over i of S[i][c] * k[i];  u = beta * (v - r)
///   S[i][c] = fma(k[i], u[c], S[i][c]);  o[c] = fma chain over i of S[i][c] * q[i]
/// Columns c never meet, so vectors run over them and heads may live on any rank.
///   qkv      [T, *] float32, row stride qkv_stride: k_heads * dk queries, as many keys (both already normalised), then
///            v_heads * dv values
///   ba       [T, *] float32, row stride ba_stride: v_heads b, then v_heads a
///   a_log, dt_bias [v_heads];  v_to_k [v_heads] key head of each value head
///   state    [slots][v_heads][dk, dv]: slot s of this layer is at state + s * state_stride
///   out      [T, v_heads * dv] float32, dense
///   range    value heads [begin, end), all spans
/// Source:    Gated Delta Networks, recurrent form; the decay is applied before the read, the output reads the new
/// state.
struct DeltaNet {
  struct Args {
    const float* qkv = nullptr;
    int64_t qkv_stride = 0;
    const float* ba = nullptr;
    int64_t ba_stride = 0;
    const float* a_log = nullptr;
    const float* dt_bias = nullptr;
    const int32_t* v_to_k = nullptr;
    int64_t k_heads = 0, v_heads = 0, dk = 0, dv = 0;
    float* state = nullptr;
    int64_t state_stride = 0;
    float* out = nullptr;
    std::span<const TokenSpan> spans;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "delta_net";
  static std::span<const KernelRow<DeltaNet>> Rows();
  static std::span<const KernelRow<DeltaNet>> CudaRows();
};

/// Decay and beta of one token and head.
struct DeltaGates {
  float decay;
  float beta;
};

/// The gates of token row `t` and value head `h`; one definition for every row of the family.
constexpr DeltaGates GatesOf(const DeltaNet::Args& args, int64_t t, int64_t h) {
  const float* ba = args.ba + t * args.ba_stride;
  const float rate = -Exp<ScalarOps>(args.a_log[h]) * Softplus(ba[args.v_heads + h] + args.dt_bias[h]);
  return {Exp<ScalarOps>(rate), Sigmoid<ScalarOps>(ba[h])};
}

}  // namespace trivet::kernels
