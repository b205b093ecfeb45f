// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/argmax_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include "kernels/argmax.h"
#include "kernels/ops-inl.h"
#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

/// The upper words of the keys of neighbouring logits (ArgmaxKey).
HWY_INLINE VU Orders(const float* logits) {
  const VU sign = hn::Set(DU(), 0x80000000U), infinity = hn::Set(DU(), 0x7F800000U);
  VU bits = hn::BitCast(DU(), hn::LoadU(DF(), logits));
  bits = hn::IfThenZeroElse(hn::Eq(bits, sign), bits);
  const auto broken = hn::Or(hn::Gt(hn::AndNot(sign, bits), infinity), hn::Eq(bits, infinity));
  const VU negative = hn::BitCast(DU(), hn::ShiftRight<31>(hn::BitCast(DI(), bits)));
  return hn::IfThenElse(broken, hn::Set(DU(), UINT32_MAX), hn::Xor(bits, hn::Or(negative, sign)));
}

/// The largest key of columns [begin, end) of a row.
HWY_INLINE uint64_t LargestKey(const float* logits, int64_t begin, int64_t end, int64_t first) {
  uint64_t best = 0;
  int64_t c = begin;
  if (c + kL <= end) {
    VU most = hn::Zero(DU()), at = hn::Zero(DU());
    for (; c + kL <= end; c += kL) {
      const VU orders = Orders(logits + c);
      const auto better = hn::Gt(orders, most);  // the earlier of equals stays
      most = hn::IfThenElse(better, orders, most);
      at = hn::IfThenElse(better, hn::Iota(DU(), static_cast<uint32_t>(c - begin)), at);
    }
    const VU top = hn::MaxOfLanes(DU(), most);
    const VU lowest = hn::IfThenElse(hn::Eq(most, top), at, hn::Set(DU(), UINT32_MAX));
    const int64_t column = begin + hn::GetLane(hn::MinOfLanes(DU(), lowest));
    best = ArgmaxKey(logits[column], first + column);
  }
  for (; c < end; ++c) best = std::max(best, ArgmaxKey(logits[c], first + c));
  return best;
}

void ArgmaxSimd(const Argmax::Args& args) {
  for (int64_t i = args.begin; i < args.end; ++i) {
    const int64_t row = args.rows[i / kArgmaxParts], part = i % kArgmaxParts;
    if (row < 0) continue;
    args.keys[i] = LargestKey(args.logits + row * args.stride, args.n * part / kArgmaxParts,
                              args.n * (part + 1) / kArgmaxParts, args.first);
  }
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trivet::kernels {

std::span<const KernelRow<Argmax>> Argmax::Rows() {
  static constexpr KernelRow<Argmax> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"argmax/avx512", HWY_AVX3, N_AVX3::ArgmaxSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"argmax/avx2", HWY_AVX2, N_AVX2::ArgmaxSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"argmax/neon", HWY_NEON, N_NEON::ArgmaxSimd},
#endif
    {"argmax/ref", 0, ArgmaxRef},
  };
  return kRows;
}

}  // namespace trivet::kernels
#endif
