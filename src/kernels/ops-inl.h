// SPDX-License-Identifier: Apache-2.0
// Highway's side of elementary.h, and a row's sum of squares: included by vector files once per target.
#if defined(TRIVET_KERNELS_OPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIVET_KERNELS_OPS_INL_H
#undef TRIVET_KERNELS_OPS_INL_H
#else
#define TRIVET_KERNELS_OPS_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/elementary.h"
#include "kernels/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
constexpr int64_t kL = hn::MaxLanes(DF());

/// float32 arithmetic on one vector; the same operations as ScalarOps.
struct VectorOps {
  using F = VF;
  using I = VI;
  static HWY_INLINE F Set(float x) { return hn::Set(DF(), x); }
  static HWY_INLINE F Add(F a, F b) { return hn::Add(a, b); }
  static HWY_INLINE F Sub(F a, F b) { return hn::Sub(a, b); }
  static HWY_INLINE F Mul(F a, F b) { return hn::Mul(a, b); }
  static HWY_INLINE F Div(F a, F b) { return hn::Div(a, b); }
  static HWY_INLINE F Min(F a, F b) { return hn::IfThenElse(hn::Lt(a, b), a, b); }
  static HWY_INLINE F Max(F a, F b) { return hn::IfThenElse(hn::Gt(a, b), a, b); }
  static HWY_INLINE I ToInt(F a) { return hn::ConvertTo(DI(), a); }
  static HWY_INLINE I SubInt(I a, I b) { return hn::Sub(a, b); }
  static HWY_INLINE I Half(I a) { return hn::ShiftRight<1>(a); }
  static HWY_INLINE F PowerOfTwo(I n) { return hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(DI(), 127)))); }
};

#include "kernels/elementary.inc"

/// Sum of squares in the order of lanes.h.
HWY_INLINE float RowSquares(const float* HWY_RESTRICT x, int64_t n) {
  VF acc[kLanes / kL];
  for (VF& a : acc) a = hn::Zero(DF());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t v = 0; v < kLanes / kL; ++v) {
      const VF value = hn::LoadU(DF(), x + i + v * kL);
      acc[v] = hn::Add(acc[v], hn::Mul(value, value));
    }
  }
  HWY_ALIGN float sums[kLanes];
  for (int64_t v = 0; v < kLanes / kL; ++v) hn::Store(acc[v], DF(), sums + v * kL);
  for (; i < n; ++i) sums[i % kLanes] += x[i] * x[i];
  return HalvingSum(sums, kLanes);
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
