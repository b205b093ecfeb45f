// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_formats.cuh"
#include "kernels/gemm_launch.cuh"
#include "kernels/gemm_matrix.h"
#include "kernels/mx_block.h"

namespace trivet::kernels {

// Compiled in gemm_gguf_cuda.cu.
extern template void LaunchGemm<WeightFormat::kQ4_0>(const Gemm::Args&);
extern template void LaunchExpertGemm<WeightFormat::kQ4_0>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
extern template void LaunchGemm<WeightFormat::kQ4_1>(const Gemm::Args&);
extern template void LaunchExpertGemm<WeightFormat::kQ4_1>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
extern template void LaunchGemm<WeightFormat::kQ5_0>(const Gemm::Args&);
extern template void LaunchExpertGemm<WeightFormat::kQ5_0>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
extern template void LaunchGemm<WeightFormat::kQ5_1>(const Gemm::Args&);
extern template void LaunchExpertGemm<WeightFormat::kQ5_1>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
extern template void LaunchGemm<WeightFormat::kQ8_0>(const Gemm::Args&);
extern template void LaunchExpertGemm<WeightFormat::kQ8_0>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
extern template void LaunchGemm<WeightFormat::kQ4K>(const Gemm::Args&);
extern template void LaunchExpertGemm<WeightFormat::kQ4K>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
extern template void LaunchGemm<WeightFormat::kQ5K>(const Gemm::Args&);
extern template void LaunchExpertGemm<WeightFormat::kQ5K>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
extern template void LaunchGemm<WeightFormat::kQ6K>(const Gemm::Args&);
extern template void LaunchExpertGemm<WeightFormat::kQ6K>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);

namespace {

// Whether matrix units multiply `w`: under their own contract where they can, and everywhere where it is in integers,
// which have the same bits on every device.
bool GoesByMatrix(Contract contract, const PackedMatrix& w) {
  return MatrixUnitsServe(w) && (contract == Contract::kMatrix || MxServes(w));
}

template <Contract kContract>
void GemmCuda(const Gemm::Args& args) {
  CHECK(args.numerics == Numerics::kExact);
  Gemm::Args whole = args;
  whole.tile_end = std::min(args.tile_end, args.w->tiles());
  if (whole.tile_begin >= whole.tile_end || args.m == 0) return;
  if (GoesByMatrix(kContract, *args.w)) {
    GemmByMatrix(whole);
  } else {
    ForFormat(args.w->format, [&]<WeightFormat kFormat>() { LaunchGemm<kFormat>(whole); });
  }
  CheckLaunch("gemm/cuda");
}

template <Contract kContract>
void ExpertGemmCuda(const ExpertGemm::Args& args) {
  CHECK(args.numerics == Numerics::kExact);
  const auto some = std::find_if(args.w.begin(), args.w.end(), [](const PackedMatrix& w) { return w.n > 0; });
  if (some == args.w.end() || args.pairs == 0) return;
  int64_t tiles = 0;
  for (const PackedMatrix& w : args.w) {
    CHECK(w.n == 0 || (w.format == some->format && w.leaf == some->leaf));  // the experts of a layer are stored alike
    tiles = std::max(tiles, w.tiles());
  }
  tiles = std::min(args.tile_end, tiles) - args.tile_begin;
  if (tiles <= 0) return;
  if (GoesByMatrix(kContract, *some)) {
    ExpertGemmByMatrix(args, *some, tiles);
  } else {
    ForFormat(some->format, [&]<WeightFormat kFormat>() { LaunchExpertGemm<kFormat>(args, *some, tiles); });
  }
  CheckLaunch("expert_gemm/cuda");
}

}  // namespace

std::span<const KernelRow<Gemm>> Gemm::CudaRows() {
  static constexpr KernelRow<Gemm> kRows[] = {
      {"gemm/cuda-matrix", kCudaTarget, GemmCuda<Contract::kMatrix>, Contract::kMatrix},
      {"gemm/cuda", kCudaTarget, GemmCuda<Contract::kPortable>}};
  return kRows;
}

std::span<const KernelRow<ExpertGemm>> ExpertGemm::CudaRows() {
  static constexpr KernelRow<ExpertGemm> kRows[] = {
      {"expert_gemm/cuda-matrix", kCudaTarget, ExpertGemmCuda<Contract::kMatrix>, Contract::kMatrix},
      {"expert_gemm/cuda", kCudaTarget, ExpertGemmCuda<Contract::kPortable>}};
  return kRows;
}

}  // namespace trivet::kernels
