// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <cmath>

#include "kernels/norm.h"
#include "kernels/ops-inl.h"
#include "kernels/reference.h"

HWY_BEFORE_NAMESPACE();
namespace trivet::kernels::HWY_NAMESPACE {

void RmsNormSimd(const RmsNorm::Args& args) {
  const VF offset = hn::Set(DF(), args.offset);
  for (int64_t row = args.begin; row < args.end; ++row) {
    const float* x = args.x + args.x_rows.At(row);
    float* y = args.y + args.y_rows.At(row);
    const float inverse = 1.0F / std::sqrt(RowSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
    const VF scale = hn::Set(DF(), inverse);
    int64_t i = 0;
    for (; i + kL <= args.n; i += kL) {
      const VF weight = hn::Add(offset, hn::LoadU(DF(), args.weight + i));
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(DF(), x + i), scale), weight), DF(), y + i);
    }
    for (; i < args.n; ++i) y[i] = x[i] * inverse * (args.offset + args.weight[i]);
  }
}

void AddNormSimd(const AddNorm::Args& args) {
  AddSumsRef({args.x, args.sums_fixed, args.sums_fast, args.begin * args.n, args.end * args.n});
  const NestedRows rows{1, args.n, 0};
  RmsNormSimd({args.x, rows, args.y, rows, args.weight, args.n, args.eps, args.offset, args.begin, args.end});
  ClearSums(args);
}

void L2NormSimd(const L2Norm::Args& args) {
  for (int64_t row = args.begin; row < args.end; ++row) {
    float* x = args.x + args.rows.At(row);
    const float inverse = 1.0F / std::sqrt(RowSquares(x, args.n) + 1e-6F);
    const VF scale = hn::Set(DF(), inverse), factor = hn::Set(DF(), args.ScaleOf(row));
    int64_t i = 0;
    for (; i + kL <= args.n; i += kL) {
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(DF(), x + i), scale), factor), DF(), x + i);
    }
    for (; i < args.n; ++i) x[i] = x[i] * inverse * args.ScaleOf(row);
  }
}

void GatedNormSimd(const GatedNorm::Args& args) {
  for (int64_t row = args.begin; row < args.end; ++row) {
    float* x = args.x + args.x_rows.At(row);
    const float* gate = args.gate + args.gate_rows.At(row);
    const float inverse = 1.0F / std::sqrt(RowSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
    const VF scale = hn::Set(DF(), inverse);
    int64_t i = 0;
    for (; i + kL <= args.n; i += kL) {
      const VF normed = hn::Mul(hn::Mul(hn::LoadU(DF(), x + i), scale), hn::LoadU(DF(), args.weight + i));
      hn::StoreU(hn::Mul(normed, Silu<VectorOps>(hn::LoadU(DF(), gate + i))), DF(), x + i);
    }
    for (; i < args.n; ++i) x[i] = x[i] * inverse * args.weight[i] * Silu<ScalarOps>(gate[i]);
  }
}

}  // namespace trivet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trivet::kernels {

std::span<const KernelRow<RmsNorm>> RmsNorm::Rows() {
  static constexpr KernelRow<RmsNorm> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"rms_norm/avx512", HWY_AVX3, N_AVX3::RmsNormSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"rms_norm/avx2", HWY_AVX2, N_AVX2::RmsNormSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"rms_norm/neon", HWY_NEON, N_NEON::RmsNormSimd},
#endif
    {"rms_norm/ref", 0, RmsNormRef},
  };
  return kRows;
}

std::span<const KernelRow<AddNorm>> AddNorm::Rows() {
  static constexpr KernelRow<AddNorm> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"add_norm/avx512", HWY_AVX3, N_AVX3::AddNormSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"add_norm/avx2", HWY_AVX2, N_AVX2::AddNormSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"add_norm/neon", HWY_NEON, N_NEON::AddNormSimd},
#endif
    {"add_norm/ref", 0, AddNormRef},
  };
  return kRows;
}

std::span<const KernelRow<L2Norm>> L2Norm::Rows() {
  static constexpr KernelRow<L2Norm> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"l2_norm/avx512", HWY_AVX3, N_AVX3::L2NormSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"l2_norm/avx2", HWY_AVX2, N_AVX2::L2NormSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"l2_norm/neon", HWY_NEON, N_NEON::L2NormSimd},
#endif
    {"l2_norm/ref", 0, L2NormRef},
  };
  return kRows;
}

std::span<const KernelRow<GatedNorm>> GatedNorm::Rows() {
  static constexpr KernelRow<GatedNorm> kRows[] = {
#if HWY_TARGETS & HWY_AVX3
    {"gated_norm/avx512", HWY_AVX3, N_AVX3::GatedNormSimd},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"gated_norm/avx2", HWY_AVX2, N_AVX2::GatedNormSimd},
#endif
#if HWY_TARGETS & HWY_NEON
    {"gated_norm/neon", HWY_NEON, N_NEON::GatedNormSimd},
#endif
    {"gated_norm/ref", 0, GatedNormRef},
  };
  return kRows;
}

}  // namespace trivet::kernels
#endif
