// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/conv1d.h"
#include "kernels/elementary.h"
#include "kernels/reference.h"

namespace trivet::kernels {

void Conv1dRef(const Conv1d::Args& args) {
  const int64_t history = args.width - 1;
  for (const TokenSpan& span : args.spans) {
    float* state = args.state + span.state_slot * args.state_stride;
    for (int64_t c = args.begin; c < args.end; ++c) {
      // Input i of the span, or the history before it for negative i.
      const auto input = [&](int64_t i) {
        if (i >= 0) return args.x[(span.token_begin + i) * args.x_stride + c];
        return span.start == 0 ? 0.0F : state[(history + i) * args.channels + c];
      };
      for (int64_t t = 0; t < span.count; ++t) {
        float sum = 0;
        for (int64_t j = 0; j < args.width; ++j) {
          sum = std::fma(args.taps[j * args.channels + c], input(t - history + j), sum);
        }
        args.y[(span.token_begin + t) * args.channels + c] = Silu<ScalarOps>(sum);
      }
      // Ascending order reads each old entry before it is overwritten: entry j takes input count - history + j.
      for (int64_t j = 0; j < history; ++j) state[j * args.channels + c] = input(span.count - history + j);
    }
  }
}

}  // namespace trivet::kernels
