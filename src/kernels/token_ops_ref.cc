// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/elementary.h"
#include "kernels/reference.h"
#include "kernels/token_ops.h"

namespace trivet::kernels {

void EmbedRef(const Embed::Args& args) {
  const int64_t hidden = args.table->k;
  for (int64_t t = args.begin; t < args.end; ++t) {
    float* x = args.x + t * hidden;
    const int64_t row = args.tokens[t] - args.first_id;
    if (row < 0 || row >= args.real) {
      std::fill_n(x, hidden, 0.0F);
      continue;
    }
    const std::byte* tile = args.table->data + row / kTileRows * args.table->tile_bytes();
    const auto load = FormatRow(args.table->format).load;
    for (int64_t i = 0; i < hidden; ++i) x[i] = load(tile, row % kTileRows, i);
  }
}

void RopeRef(const Rope::Args& args) {
  for (int64_t t = args.begin; t < args.end; ++t) {
    const float* cos = args.cos + t * args.half;
    const float* sin = args.sin + t * args.half;
    for (int64_t h = 0; h < args.heads; ++h) {
      float* x = args.x + t * args.stride + h * args.head_stride;
      for (int64_t i = 0; i < args.half; ++i) {
        const float a = x[i], b = x[i + args.half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + args.half] = b * cos[i] + a * sin[i];
      }
    }
  }
}

void RouteRef(const Route::Args& args) {
  for (int64_t t = args.begin; t < args.end; ++t) {
    const float* logits = args.logits + t * args.logits_stride;
    int32_t* experts = args.experts + t * args.top_k;
    float* weights = args.weights + t * args.top_k;
    // Insertion into a short sorted list; an equal logit stays behind the lower id that came first.
    int64_t held = 0;
    for (int64_t e = 0; e < args.experts_total; ++e) {
      if (held == args.top_k && !(logits[e] > weights[held - 1])) continue;
      int64_t at = held < args.top_k ? held++ : held - 1;
      for (; at > 0 && logits[e] > weights[at - 1]; --at) {
        weights[at] = weights[at - 1];
        experts[at] = experts[at - 1];
      }
      weights[at] = logits[e];
      experts[at] = static_cast<int32_t>(e);
    }
    const float largest = weights[0];
    float sum = 0;
    for (int64_t i = 0; i < args.top_k; ++i) sum += weights[i] = Exp<ScalarOps>(weights[i] - largest);
    for (int64_t i = 0; i < args.top_k; ++i) weights[i] /= sum;
  }
}

void AddSumsRef(const AddSums::Args& args) {
  if (args.sums_fixed != nullptr) {
    for (int64_t i = args.begin; i < args.end; ++i) args.x[i] += FromGrid(args.sums_fixed[i]);
  } else {
    for (int64_t i = args.begin; i < args.end; ++i) args.x[i] += args.sums_fast[i];
  }
}

}  // namespace trivet::kernels
