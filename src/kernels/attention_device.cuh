// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention on a GPU share: scores, scales of codes, sinks.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/attention.h"
#include "kernels/elementary.h"

namespace trivet::kernels {

/// A chain's sum as a score.
__device__ inline float Score(const Attention::Args& args, float sum) {
  sum *= args.scale;
  return args.softcap > 0 ? SoftCap<ScalarOps>(sum, args.softcap) : sum;
}

/// The scale of a row of codes. All codes of a row of zeros are zeros: any scale serves, so it has one that is
/// moderate.
__device__ inline float ScaleOfRow(std::byte byte) {
  return byte == std::byte{0} ? 1.0F : quant::FromE8M0(std::to_integer<uint8_t>(byte));
}

/// Merges a head's sink, where there is one, into the sum of its weights; returns by what its values are multiplied.
__device__ inline float MergeSink(const Attention::Args& args, int64_t head, float max, float* sum) {
  if (args.sinks == nullptr) return 1;
  const float merged = ScalarOps::Max(max, args.sinks[head]);
  const float keep = Exp<ScalarOps>(max - merged);
  *sum = *sum * keep + Exp<ScalarOps>(args.sinks[head] - merged);
  return keep;
}

}  // namespace trivet::kernels
