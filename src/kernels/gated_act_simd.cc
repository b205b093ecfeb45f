// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_act_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include "kernels/gated_act.h"
#include "kernels/ops-inl.h"
#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {

// One activation over all rows: `Act` names it for scalars and vectors alike.
template <class Act>
HWY_INLINE void ActRows(const GatedAct::Args& args, const Act& act) {
  for (int64_t m = args.begin; m < EndOf(args); ++m) {
    const float* gate = args.x + m * 2 * args.width;
    const float* up = gate + args.width;
    float* y = args.y + m * args.width;
    int64_t i = 0;
    for (; i + kL <= args.width; i += kL) {
      hn::StoreU(act.template Run<VectorOps>(hn::LoadU(DF(), gate + i), hn::LoadU(DF(), up + i)), DF(), y + i);
    }
    for (; i < args.width; ++i) y[i] = act.template Run<ScalarOps>(gate[i], up[i]);
  }
}

struct SiluAct {
  template <class Ops>
  HWY_INLINE typename Ops::F Run(typename Ops::F gate, typename Ops::F up) const {
    return Ops::Mul(Silu<Ops>(gate), up);
  }
};

struct GeluTanhAct {
  template <class Ops>
  HWY_INLINE typename Ops::F Run(typename Ops::F gate, typename Ops::F up) const {
    return Ops::Mul(GeluTanh<Ops>(gate), up);
  }
};

struct ClampedSwigluAct {
  float limit, alpha;
  template <class Ops>
  HWY_INLINE typename Ops::F Run(typename Ops::F gate, typename Ops::F up) const {
    return ClampedSwiglu<Ops>(gate, up, limit, alpha);
  }
};

void GatedActSimd(const GatedAct::Args& args) {
  switch (args.activation) {
    case Activation::kSilu:
      return ActRows(args, SiluAct());
    case Activation::kGeluTanh:
      return ActRows(args, GeluTanhAct());
    case Activation::kClampedSwiglu:
      return ActRows(args, ClampedSwigluAct{args.limit, args.alpha});
  }
}

void SigmoidGateSimd(const SigmoidGate::Args& args) {
  for (int64_t t = args.begin; t < args.end; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      float* x = args.x + (t * args.heads + h) * args.n;
      const float* gate = args.gate + t * args.gate_stride + h * args.gate_head_stride;
      int64_t i = 0;
      for (; i + kL <= args.n; i += kL) {
        hn::StoreU(hn::Mul(hn::LoadU(DF(), x + i), Sigmoid<VectorOps>(hn::LoadU(DF(), gate + i))), DF(), x + i);
      }
      for (; i < args.n; ++i) x[i] *= Sigmoid<ScalarOps>(gate[i]);
    }
  }
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trivet::kernels {

std::span<const KernelRow<GatedAct>> GatedAct::Rows() {
  static constexpr KernelRow<GatedAct> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"gated_act/avx512", HWY_AVX3, N_AVX3::GatedActSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"gated_act/avx2", HWY_AVX2, N_AVX2::GatedActSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"gated_act/neon", HWY_NEON, N_NEON::GatedActSimd},
#endif
    {"gated_act/ref", 0, GatedActRef},
  };
  return kRows;
}

std::span<const KernelRow<SigmoidGate>> SigmoidGate::Rows() {
  static constexpr KernelRow<SigmoidGate> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"sigmoid_gate/avx512", HWY_AVX3, N_AVX3::SigmoidGateSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"sigmoid_gate/avx2", HWY_AVX2, N_AVX2::SigmoidGateSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"sigmoid_gate/neon", HWY_NEON, N_NEON::SigmoidGateSimd},
#endif
    {"sigmoid_gate/ref", 0, SigmoidGateRef},
  };
  return kRows;
}

}  // namespace trivet::kernels
#endif
