// SPDX-License-Identifier: Apache-2.0
// Conv1d with vectors over channels: a lane follows one channel's chain.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv1d_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include "kernels/conv1d.h"
#include "kernels/ops-inl.h"
#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {

void OneVector(const Conv1d::Args& args, const TokenSpan& span, int64_t c) {
  const int64_t history = args.width - 1;
  float* state = args.state + span.state_slot * args.state_stride;
  const auto input = [&](int64_t i) HWY_ATTR {
    if (i >= 0) return hn::LoadU(DF(), args.x + (span.token_begin + i) * args.x_stride + c);
    return span.start == 0 ? hn::Zero(DF()) : hn::LoadU(DF(), state + (history + i) * args.channels + c);
  };
  for (int64_t t = 0; t < span.count; ++t) {
    VF sum = hn::Zero(DF());
    for (int64_t j = 0; j < args.width; ++j) {
      sum = hn::MulAdd(hn::LoadU(DF(), args.taps + j * args.channels + c), input(t - history + j), sum);
    }
    hn::StoreU(Silu<VectorOps>(sum), DF(), args.y + (span.token_begin + t) * args.channels + c);
  }
  for (int64_t j = 0; j < history; ++j) {
    hn::StoreU(input(span.count - history + j), DF(), state + j * args.channels + c);
  }
}

void Conv1dSimd(const Conv1d::Args& args) {
  const int64_t whole = args.begin + (args.end - args.begin) / kL * kL;
  for (const TokenSpan& span : args.spans) {
    for (int64_t c = args.begin; c < whole; c += kL) OneVector(args, span, c);
  }
  Conv1d::Args rest = args;
  rest.begin = whole;
  Conv1dRef(rest);
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trivet::kernels {

std::span<const KernelRow<Conv1d>> Conv1d::Rows() {
  static constexpr KernelRow<Conv1d> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"conv1d/avx512", HWY_AVX3, N_AVX3::Conv1dSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"conv1d/avx2", HWY_AVX2, N_AVX2::Conv1dSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"conv1d/neon", HWY_NEON, N_NEON::Conv1dSimd},
#endif
    {"conv1d/ref", 0, Conv1dRef},
  };
  return kRows;
}

}  // namespace trivet::kernels
#endif
