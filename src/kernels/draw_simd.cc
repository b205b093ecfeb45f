// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/draw_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/draw.h"
#include "kernels/ops-inl.h"
#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What gives weights to the logits of a row.
struct Scale {
  float best = 0, scale = 1;
  uint32_t min_weight = 0;

  uint32_t WeightAt(float logit) const {
    const uint32_t weight = WeightOf(logit, best, scale);
    return weight < min_weight ? 0 : weight;
  }
};

// The last token that is kept, in the order of tokens. Without one all are.
struct Cut {
  float logit = -kInfinity;
  int64_t token = INT32_MAX;
};

Cut CutAt(uint64_t key) { return {ArgmaxLogit(key), ArgmaxToken(key)}; }

// WeightAt of a vector.
HWY_INLINE VI Weights(VF logits, const Scale& scale) {
  const VF x = hn::Mul(hn::Sub(logits, hn::Set(DF(), scale.best)), hn::Set(DF(), scale.scale));
  const VF e = hn::Mul(Exp<VectorOps>(x), hn::Set(DF(), kBestWeight));
  const VI weights = hn::ConvertTo(DI(), hn::Add(e, hn::Set(DF(), 0.5F)));
  return hn::IfThenZeroElse(hn::Lt(weights, hn::Set(DI(), static_cast<int32_t>(scale.min_weight))), weights);
}

// The sum of the weights of logits that are at least `lowest`.
uint64_t SumOf(std::span<const float> logits, const Scale& scale, float lowest) {
  uint64_t sum = 0;
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // whose lanes hold no two weights
  const hn::Repartition<uint64_t, DF> pair;
  const auto low = hn::Set(pair, uint64_t{0xFFFFFFFF});
  const VF least = hn::Set(DF(), lowest);
  auto even = hn::Zero(pair), odd = even;
  for (; i + kL <= logits.size(); i += kL) {
    const VF x = hn::LoadU(DF(), logits.data() + i);
    const VI kept = hn::IfThenElseZero(hn::RebindMask(DI(), hn::Ge(x, least)), Weights(x, scale));
    const auto pairs = hn::BitCast(pair, kept);
    even = hn::Add(even, hn::And(pairs, low));
    odd = hn::Add(odd, hn::ShiftRight<32>(pairs));
  }
  sum = hn::GetLane(hn::SumOfLanes(pair, hn::Add(even, odd)));
#endif
  for (; i < logits.size(); ++i) sum += logits[i] >= lowest ? scale.WeightAt(logits[i]) : 0;
  return sum;
}

// The weights of logits, 0 below `lowest`.
void StoreWeights(std::span<const float> logits, const Scale& scale, float lowest, uint32_t* weights) {
  const VF least = hn::Set(DF(), lowest);
  size_t i = 0;
  for (; i + kL <= logits.size(); i += kL) {
    const VF x = hn::LoadU(DF(), logits.data() + i);
    const VI kept = hn::IfThenElseZero(hn::RebindMask(DI(), hn::Ge(x, least)), Weights(x, scale));
    hn::StoreU(kept, DI(), reinterpret_cast<int32_t*>(weights) + i);
  }
  for (; i < logits.size(); ++i) weights[i] = logits[i] >= lowest ? scale.WeightAt(logits[i]) : 0;
}

// Calls part(begin, lowest) for the logits from `begin` on that are to be at least `lowest`: those up to the cut's
// token, whose equals are kept, and those behind it.
template <class Part>
void ByCut(std::span<const float> logits, int64_t first, const Cut& cut, const Part& part) {
  const auto split = static_cast<size_t>(std::clamp<int64_t>(cut.token + 1 - first, 0, std::ssize(logits)));
  part(logits.first(split), size_t{0}, cut.logit);
  part(logits.subspan(split), split, std::nextafter(cut.logit, kInfinity));
}

// Step 5 of the definition.
uint64_t DrawFrom(std::span<const float> logits, const Scale& scale, const Cut& cut, uint64_t uniform) {
  constexpr size_t kBlock = 2048;
  const auto block_at = [&](size_t begin) { return logits.subspan(begin, std::min(kBlock, logits.size() - begin)); };
  std::vector<uint64_t> sums;
  uint64_t total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    uint64_t sum = 0;
    ByCut(block_at(begin), static_cast<int64_t>(begin), cut,
          [&](std::span<const float> part, size_t, float lowest) { sum += SumOf(part, scale, lowest); });
    sums.push_back(sum);
    total += sum;
  }
  const uint64_t target = FractionOf(total, uniform);
  uint64_t mass = 0;
  size_t block = 0;
  while (mass + sums[block] <= target) mass += sums[block++];
  uint32_t weights[kBlock];
  ByCut(block_at(block * kBlock), static_cast<int64_t>(block * kBlock), cut,
        [&](std::span<const float> part, size_t at, float lowest) { StoreWeights(part, scale, lowest, weights + at); });
  size_t at = 0;
  while (mass + weights[at] <= target) mass += weights[at++];
  const size_t token = block * kBlock + at;
  return ArgmaxKey(logits[token], static_cast<int64_t>(token));
}

// Calls take(i) for every logit above `lowest`, which take may raise, in ascending order; a few below it may be among
// them.
template <class Take>
void ForEachAbove(std::span<const float> logits, const float& lowest, const Take& take) {
  size_t i = 0;
  for (; i + 4 * kL <= logits.size(); i += 4 * kL) {
    const float* x = logits.data() + i;
    const VF left = hn::Max(hn::LoadU(DF(), x), hn::LoadU(DF(), x + kL));
    const VF right = hn::Max(hn::LoadU(DF(), x + 2 * kL), hn::LoadU(DF(), x + 3 * kL));
    if (hn::AllFalse(DF(), hn::Gt(hn::Max(left, right), hn::Set(DF(), lowest)))) continue;
    for (size_t j = i; j < i + 4 * kL; ++j) {
      if (logits[j] > lowest) take(j);
    }
  }
  for (; i < logits.size(); ++i) {
    if (logits[i] > lowest) take(i);
  }
}

using Keys = std::vector<uint64_t>;

// The keys of the k best tokens that are not forbidden, of which the last one is the least.
Keys Best(std::span<const float> logits, size_t k) {
  Keys keys;
  float lowest = -kInfinity;
  const auto keep = [&] {
    std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(k) - 1, keys.end(), std::greater<>());
    keys.resize(k);
    lowest = ArgmaxLogit(keys.back());  // tokens to come are behind its equals
  };
  const size_t most = std::min(2 * k + 64, logits.size() + 1);
  keys.reserve(most);
  ForEachAbove(logits, lowest, [&](size_t i) {
    keys.push_back(ArgmaxKey(logits[i], static_cast<int64_t>(i)));
    if (keys.size() == most && keys.size() > k) keep();
  });
  if (keys.size() >= k) {
    keep();
  } else {
    std::nth_element(keys.begin(), keys.end() - 1, keys.end(), std::greater<>());
  }
  return keys;
}

// The weights of tokens by their keys.
std::vector<uint32_t> WeightsOf(std::span<const uint64_t> keys, const Scale& scale) {
  std::vector<float> logits(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) logits[i] = ArgmaxLogit(keys[i]);
  std::vector<uint32_t> weights(keys.size());
  StoreWeights(logits, scale, -kInfinity, weights.data());
  return weights;
}

uint64_t MassOf(std::span<const uint64_t> keys, const Scale& scale) {
  uint64_t mass = 0;
  for (const uint32_t weight : WeightsOf(keys, scale)) mass += weight;
  return mass;
}

// Keys of tokens, best first before all others, whose weights add up to `wanted` at least.
Keys BestWith(std::span<const float> logits, const Scale& scale, uint64_t wanted) {
  // Most often few tokens are enough, which are not far below the best one.
  for (const float distance : {4.0F, 10.0F, kInfinity}) {
    const float lowest = scale.best - distance / scale.scale;
    Keys keys;
    ForEachAbove(logits, lowest, [&](size_t i) { keys.push_back(ArgmaxKey(logits[i], static_cast<int64_t>(i))); });
    if (distance == kInfinity || MassOf(keys, scale) >= wanted) return keys;
  }
  return {};
}

// The last of the fewest tokens, best first, whose weights add up to `wanted`. Sorts in blocks: most often one is
// enough.
uint64_t LastOf(Keys keys, const Scale& scale, uint64_t wanted) {
  uint64_t mass = 0;
  size_t block = 256;
  for (size_t sorted = 0; sorted < keys.size(); block *= 4) {
    const auto begin = keys.begin() + static_cast<std::ptrdiff_t>(sorted);
    const size_t count = std::min(block, keys.size() - sorted);
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    if (end != keys.end()) std::nth_element(begin, end, keys.end(), std::greater<>());
    std::sort(begin, end, std::greater<>());
    for (const uint32_t weight : WeightsOf({begin, end}, scale)) {
      mass += weight;
      if (mass >= wanted) return keys[sorted];
      ++sorted;
    }
  }
  return keys.back();
}

uint64_t DrawOf(std::span<const float> logits, const DrawRule& rule, float best) {
  const Scale scale{best, rule.scale, rule.min_weight};
  const bool some = rule.top_k > 0 && rule.top_k < std::ssize(logits);
  Cut cut;
  Keys keys;
  if (some) {
    keys = Best(logits, static_cast<size_t>(rule.top_k));
    cut = CutAt(keys.back());
  }
  if (rule.top_p < kDrawOne) {
    const uint64_t mass = some ? MassOf(keys, scale) : SumOf(logits, scale, -kInfinity);
    const uint64_t wanted = FractionAbove(mass, rule.top_p);
    if (!some) keys = BestWith(logits, scale, wanted);
    cut = CutAt(LastOf(std::move(keys), scale, wanted));
  }
  return DrawFrom(logits, scale, cut, rule.uniform);
}

}  // namespace

void DrawSimd(const Draw::Args& args) { DrawRows(args, DrawOf); }

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trivet::kernels {

std::span<const KernelRow<Draw>> Draw::Rows() {
  static constexpr KernelRow<Draw> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"draw/avx512", HWY_AVX3, N_AVX3::DrawSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"draw/avx2", HWY_AVX2, N_AVX2::DrawSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"draw/neon", HWY_NEON, N_NEON::DrawSimd},
#endif
    // What every processor of this kind has: the reference sorts whole rows.
    {"draw/base", 0, HWY_STATIC_DISPATCH(DrawSimd)},
    {"draw/ref", 0, DrawRef},
  };
  return kRows;
}

}  // namespace trivet::kernels
#endif
