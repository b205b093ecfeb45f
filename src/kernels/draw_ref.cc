// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
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

uint64_t DrawOf(std::span<const float> logits, const DrawRule& rule, float best) {
  const auto n = static_cast<int64_t>(logits.size());
  std::vector<Candidate> kept;
  for (int64_t token = 0; token < n; ++token) {
    const float logit = logits[static_cast<size_t>(token)];
    const uint32_t weight = WeightOf(logit, best, rule.scale);
    kept.push_back({ArgmaxKey(logit, token), weight < rule.min_weight ? 0 : weight});
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

void DrawRef(const Draw::Args& args) { DrawRows(args, DrawOf); }

}  // namespace trivet::kernels
