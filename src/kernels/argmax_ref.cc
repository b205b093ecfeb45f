// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/argmax.h"
#include "kernels/reference.h"

namespace trivet::kernels {

void ArgmaxRef(const Argmax::Args& args) {
  for (int64_t i = args.begin; i < args.end; ++i) {
    const int64_t row = args.rows[i / kArgmaxParts], part = i % kArgmaxParts;
    if (row < 0) continue;
    const float* logits = args.logits + row * args.stride;
    uint64_t best = 0;
    for (int64_t c = args.n * part / kArgmaxParts; c < args.n * (part + 1) / kArgmaxParts; ++c) {
      best = std::max(best, ArgmaxKey(logits[c], args.first + c));
    }
    args.keys[i] = best;
  }
}

}  // namespace trivet::kernels
