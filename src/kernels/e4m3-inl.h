// SPDX-License-Identifier: Apache-2.0
// Vectors of E4M3 codes: included by vector files once per target.
#if defined(TRIVET_KERNELS_E4M3_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIVET_KERNELS_E4M3_INL_H
#undef TRIVET_KERNELS_E4M3_INL_H
#else
#define TRIVET_KERNELS_E4M3_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// E4M3 codes without NaN, divided by 256: the exponent and mantissa bits as those of an F16, whose bias is 8 larger.
/// F16's conversion is exact for subnormals too.
///   d  the vector's type, of float32
template <class D>
HWY_INLINE hn::Vec<D> FromE4M3Over256(D d, const std::byte* from) {
  const hn::Rebind<int16_t, D> d16;
  const auto bytes = hn::LoadU(hn::Rebind<int8_t, D>(), reinterpret_cast<const int8_t*>(from));
  const auto wide = hn::ShiftLeft<7>(hn::PromoteTo(d16, bytes));  // bits 15 and 14 both hold the sign
  const auto half = hn::And(wide, hn::Set(d16, static_cast<int16_t>(0xBF80)));
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
