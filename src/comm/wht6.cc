// SPDX-License-Identifier: Apache-2.0
#include "comm/wht6.h"

#include <algorithm>
#include <cmath>

namespace trivet::comm {
namespace {

void Transform(float* group) {
  for (int half = 1; half < kWhtGroup; half *= 2) WhtStage(group, kWhtGroup, half);
  for (int64_t i = 0; i < kWhtGroup; ++i) group[i] *= kWhtLength;
}

}  // namespace

void WhtEncode(std::span<const float> values, std::byte* packed) {
  const auto groups = static_cast<int64_t>(values.size()) / kWhtGroup;
  auto* words = reinterpret_cast<uint32_t*>(packed);
  auto* scales = reinterpret_cast<uint16_t*>(packed + groups * kWhtCodeBytes);
  for (int64_t g = 0; g < groups; ++g) {
    float group[kWhtGroup];
    std::copy_n(values.data() + g * kWhtGroup, kWhtGroup, group);
    Transform(group);
    float top = 0, poison = 0;  // the latter is no number where a value is none
    for (const float value : group) top = std::max(top, std::fabs(value)), poison += value * 0.0F;
    scales[g] = WhtScale(top + poison);
    for (int64_t i = 0; i < kWhtGroup; i += kWhtHeld, words += kWhtWords) {
      WhtPack(group + i, WhtScaleValue(scales[g]), words);
    }
  }
}

void WhtSum(std::span<const std::byte* const> parts, int64_t groups, int64_t begin, int64_t end, float* sum) {
  for (int64_t g = begin; g < end; ++g, sum += kWhtGroup) {
    for (size_t from = 0; from < parts.size(); ++from) {
      const auto* words = reinterpret_cast<const uint32_t*>(parts[from] + g * kWhtCodeBytes);
      const float scale = WhtScaleValue(reinterpret_cast<const uint16_t*>(parts[from] + groups * kWhtCodeBytes)[g]);
      for (int i = 0; i < kWhtGroup; ++i) {
        const float value = WhtValue(words + i / kWhtHeld * kWhtWords, i % kWhtHeld, scale);
        sum[i] = from == 0 ? value : sum[i] + value;
      }
    }
    Transform(sum);
  }
}

}  // namespace trivet::comm
