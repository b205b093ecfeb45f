// SPDX-License-Identifier: Apache-2.0
// Products with GGUF's block formats; a file of its own, since compiling them takes as long as all others.
#include "kernels/gemm_launch.cuh"

namespace trivet::kernels {

template void LaunchGemm<WeightFormat::kQ4_0>(const Gemm::Args&);
template void LaunchExpertGemm<WeightFormat::kQ4_0>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
template void LaunchGemm<WeightFormat::kQ4_1>(const Gemm::Args&);
template void LaunchExpertGemm<WeightFormat::kQ4_1>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
template void LaunchGemm<WeightFormat::kQ5_0>(const Gemm::Args&);
template void LaunchExpertGemm<WeightFormat::kQ5_0>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
template void LaunchGemm<WeightFormat::kQ5_1>(const Gemm::Args&);
template void LaunchExpertGemm<WeightFormat::kQ5_1>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
template void LaunchGemm<WeightFormat::kQ8_0>(const Gemm::Args&);
template void LaunchExpertGemm<WeightFormat::kQ8_0>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
template void LaunchGemm<WeightFormat::kQ4K>(const Gemm::Args&);
template void LaunchExpertGemm<WeightFormat::kQ4K>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
template void LaunchGemm<WeightFormat::kQ5K>(const Gemm::Args&);
template void LaunchExpertGemm<WeightFormat::kQ5K>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);
template void LaunchGemm<WeightFormat::kQ6K>(const Gemm::Args&);
template void LaunchExpertGemm<WeightFormat::kQ6K>(const ExpertGemm::Args&, const PackedMatrix&, int64_t);

}  // namespace trivet::kernels
