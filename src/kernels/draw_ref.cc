// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/draw.h"
#include "kernels/reference.h"

namespace trivet::kernels {
namespace {

// A token by its ArgmaxKey, and its weight.
struct Candidate {
  uint64_t key = 0;
  uint64_t weight = 0;
};

uint64_t SumOf(const std::vector<Candidate>& candidates) {
  uint64_t sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

uint64_t DrawOf(const float* logits, int64_t n, const DrawRule& rule, float best) {
  std::vector<Candidate> kept;
  for (int64_t token = 0; token < n; ++token) {
    const uint32_t weight = WeightOf(logits[token], best, rule.scale);
    kept.push_back({ArgmaxKey(logits[token], token), weight < rule.min_weight ? 0 : weight});
  }
  std::sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) { return a.key > b.key; });
  if (rule.top_k > 0 && rule.top_k < n) kept.resize(static_cast<size_t>(rule.top_k));
  const uint64_t wanted = FractionAbove(SumOf(kept), rule.top_p);
  uint64_t mass = 0;
  size_t count = 0;
  while (mass < wanted) mass += kept[count++].weight;
  kept.resize(count);
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return ArgmaxToken(a.key) < ArgmaxToken(b.key); });
  const uint64_t target = FractionOf(SumOf(kept), rule.uniform);
  mass = 0;
  size_t at = 0;
  while (mass + kept[at].weight <= target) mass += kept[at++].weight;
  return kept[at].key;
}

}  // namespace

void DrawRef(const Draw::Args& args) {
  for (int64_t i = args.begin; i < args.end; ++i) {
    const int64_t row = args.rows[i];
    if (row < 0 || args.rules[i].TakesBest()) continue;
    uint64_t* keys = args.keys + i * args.parts;
    const uint64_t best = *std::max_element(keys, keys + args.parts);
    std::fill_n(keys, args.parts, 0);
    keys[0] = CanDraw(best) ? DrawOf(args.logits + row * args.stride, args.n, args.rules[i], ArgmaxLogit(best)) : best;
  }
}

}  // namespace trivet::kernels
