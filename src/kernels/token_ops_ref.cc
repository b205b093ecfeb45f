// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/elementary.h"
#include "kernels/reference.h"
#include "kernels/token_ops.h"

namespace trivet::kernels {
namespace {

// The `top_k` largest of `total` values, descending, and where they stand. Insertion into a short sorted list: an equal
// value stays behind the lower index that came first.
void TopK(const float* values, int64_t total, int64_t top_k, int32_t* index, float* best) {
  int64_t held = 0;
  for (int64_t e = 0; e < total; ++e) {
    if (held == top_k && !(values[e] > best[held - 1])) continue;
    int64_t at = held < top_k ? held++ : held - 1;
    for (; at > 0 && values[e] > best[at - 1]; --at) {
      best[at] = best[at - 1];
      index[at] = index[at - 1];
    }
    best[at] = values[e];
    index[at] = static_cast<int32_t>(e);
  }
}

// Turns the chosen logits, descending, into weights.
void SoftmaxWeights(const Route::Args& args, const float* logits, float* weights) {
  const float largest = weights[0];
  float sum = 0;
  for (int64_t i = 0; i < args.top_k; ++i) sum += weights[i] = Exp<ScalarOps>(weights[i] - largest);
  if (args.kind == RouterKind::kSoftmaxAll) {
    sum = 0;
    for (int64_t e = 0; e < args.experts_total; ++e) sum += Exp<ScalarOps>(logits[e] - largest);
  }
  for (int64_t i = 0; i < args.top_k; ++i) weights[i] = weights[i] / sum * args.scaling;
}

// Keeps the choice of one token for the record.
//   values  [E] what it was made by;  scores: [E] what becomes weights
void KeepChoice(const Route::Args& args, int64_t t, const float* values, const float* scores) {
  if (args.record.experts == nullptr) return;
  const int64_t k = args.top_k;
  const int32_t* experts = args.experts + t * k;
  std::vector<int32_t> index(static_cast<size_t>(k + 1));
  std::vector<float> best(index.size(), -std::numeric_limits<float>::infinity());
  TopK(values, args.experts_total, std::min(k + 1, args.experts_total), index.data(), best.data());
  // One of them was not chosen, unless all experts were.
  size_t next = 0;
  while (next < index.size() - 1 && std::find(experts, experts + k, index[next]) != experts + k) ++next;
  for (int64_t i = 0; i < k; ++i) {
    args.record.experts[t * k + i] = experts[i];
    args.record.scores[t * k + i] = scores[experts[i]];
    args.record.choice[t * (k + 1) + i] = values[experts[i]];
  }
  args.record.choice[t * (k + 1) + k] = best[next];
}

// Replaces the choice of one token by the experts that are forced on it, in the order of the values.
//   values  [E] what the choice was made by
void ForceChoice(const Route::Args& args, int64_t t, const float* values) {
  if (args.forced == nullptr) return;
  args.other[t] = 0;
  const int64_t k = args.top_k;
  const int32_t* forced = args.forced + t * k;
  if (forced[0] < 0) return;
  int32_t* experts = args.experts + t * k;
  std::vector<int32_t> wanted(forced, forced + k), own(experts, experts + k), index(wanted.size());
  std::sort(wanted.begin(), wanted.end());
  std::sort(own.begin(), own.end());
  args.other[t] = wanted == own ? 0 : 1;
  std::vector<float> of_wanted, best(wanted.size());
  for (const int32_t expert : wanted) of_wanted.push_back(values[expert]);
  TopK(of_wanted.data(), k, k, index.data(), best.data());
  for (size_t i = 0; i < index.size(); ++i) experts[i] = wanted[static_cast<size_t>(index[i])];
}

// Turns the chosen experts into their slots.
void ToSlots(const Route::Args& args, int32_t* experts) {
  for (int64_t i = 0; args.slot_of != nullptr && i < args.top_k; ++i) experts[i] = args.slot_of[experts[i]];
}

// Makes experts ineligible whose group is not among the best by the sum of its two largest values.
void DropGroups(const Route::Args& args, std::vector<float>& choice) {
  const int64_t size = args.experts_total / args.groups;
  std::vector<float> sums(static_cast<size_t>(args.groups)), best(static_cast<size_t>(args.groups_kept));
  std::vector<int32_t> kept(best.size());
  for (int64_t g = 0; g < args.groups; ++g) {
    float two[2] = {};
    int32_t unused[2];
    TopK(choice.data() + g * size, size, std::min<int64_t>(2, size), unused, two);
    sums[static_cast<size_t>(g)] = two[0] + two[1];
  }
  TopK(sums.data(), args.groups, args.groups_kept, kept.data(), best.data());
  for (int64_t g = 0; g < args.groups; ++g) {
    if (std::find(kept.begin(), kept.end(), g) != kept.end()) continue;
    std::fill_n(choice.begin() + g * size, size, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

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
  const int64_t total = args.experts_total;
  std::vector<float> scores(static_cast<size_t>(total)), choice(static_cast<size_t>(total));
  for (int64_t t = args.begin; t < args.end; ++t) {
    const float* logits = args.logits + t * args.logits_stride;
    int32_t* experts = args.experts + t * args.top_k;
    float* weights = args.weights + t * args.top_k;
    if (args.kind != RouterKind::kSigmoid) {
      TopK(logits, total, args.top_k, experts, weights);
      ForceChoice(args, t, logits);
      KeepChoice(args, t, logits, logits);
      for (int64_t i = 0; i < args.top_k; ++i) weights[i] = logits[experts[i]];
      SoftmaxWeights(args, logits, weights);
      ToSlots(args, experts);
      continue;
    }
    for (int64_t e = 0; e < total; ++e) {
      const auto i = static_cast<size_t>(e);
      scores[i] = Sigmoid<ScalarOps>(logits[e]);
      choice[i] = args.correction == nullptr ? scores[i] : scores[i] + args.correction[e];
    }
    if (args.groups > 1) DropGroups(args, choice);
    TopK(choice.data(), total, args.top_k, experts, weights);
    ForceChoice(args, t, choice.data());
    KeepChoice(args, t, choice.data(), scores.data());
    float sum = 0;
    for (int64_t i = 0; i < args.top_k; ++i) sum += weights[i] = scores[static_cast<size_t>(experts[i])];
    for (int64_t i = 0; i < args.top_k; ++i) {
      weights[i] = (args.renormalise ? weights[i] / (sum + 1e-20F) : weights[i]) * args.scaling;
    }
    ToSlots(args, experts);
  }
}

void AddBiasRef(const AddBias::Args& args) {
  for (int64_t m = args.begin; m < args.end; ++m) {
    float* x = args.x + m * args.stride;
    const int32_t row = args.rows == nullptr ? 0 : args.rows[m];
    if (row < 0) continue;
    for (int64_t n = 0; n < args.n; ++n) x[n] += args.bias[row * args.n + n];
  }
}

void AddSumsRef(const AddSums::Args& args) {
  if (args.sums_fixed != nullptr) {
    for (int64_t i = args.begin; i < args.end; ++i) args.x[i] += FromGrid(args.sums_fixed[i]);
  } else {
    for (int64_t i = args.begin; i < args.end; ++i) args.x[i] += args.sums_fast[i];
  }
}

void RoundSumsRef(const RoundSums::Args& args) {
  for (int64_t i = args.begin; i < args.end; ++i) {
    args.y[i] = FromGrid(args.sums[i]);
    args.sums[i] = 0;
  }
}

void MapRef(const Map::Args& args) {
  for (int64_t i = args.begin; i < args.end; ++i) {
    args.y[i] = Apply(args.function, args.parameter, args.x[i * args.x_stride]);
  }
}

void CopyRowsRef(const CopyRows::Args& args) {
  for (int64_t i = args.begin; i < args.end; ++i) {
    const int64_t row = args.rows == nullptr ? i : args.rows[i];
    std::copy_n(args.x + args.x_rows.At(row), args.n, args.y + args.y_rows.At(i));
  }
}

}  // namespace trivet::kernels
