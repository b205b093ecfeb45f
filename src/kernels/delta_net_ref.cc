// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/delta_net.h"
#include "kernels/reference.h"

namespace trivet::kernels {

void DeltaNetRef(const DeltaNet::Args& args) {
  const int64_t dk = args.dk, dv = args.dv;
  for (const TokenSpan& span : args.spans) {
    for (int64_t h = args.begin; h < args.end; ++h) {
      float* state = args.state + span.state_slot * args.state_stride + h * dk * dv;
      if (span.start == 0) std::fill_n(state, dk * dv, 0.0F);
      for (int64_t t = span.token_begin; t < span.token_begin + span.count; ++t) {
        const float* q = args.qkv + t * args.qkv_stride + args.v_to_k[h] * dk;
        const float* k = q + args.k_heads * dk;
        const float* v = args.qkv + t * args.qkv_stride + 2 * args.k_heads * dk + h * dv;
        float* out = args.out + (t * args.v_heads + h) * dv;
        const DeltaGates gates = GatesOf(args, t, h);
        for (int64_t c = 0; c < dv; ++c) {
          float read = 0;
          for (int64_t i = 0; i < dk; ++i) {
            state[i * dv + c] *= gates.decay;
            read = std::fma(state[i * dv + c], k[i], read);
          }
          const float update = gates.beta * (v[c] - read);
          float sum = 0;
          for (int64_t i = 0; i < dk; ++i) {
            state[i * dv + c] = std::fma(k[i], update, state[i * dv + c]);
            sum = std::fma(state[i * dv + c], q[i], sum);
          }
          out[c] = sum;
        }
      }
    }
  }
}

}  // namespace trivet::kernels
