// SPDX-License-Identifier: Apache-2.0
// A build without CUDA: no family has a row for a GPU.
#include "kernels/registry.h"

namespace trivet::kernels {

std::span<const KernelRow<Attention>> Attention::CudaRows() { return {}; }
std::span<const KernelRow<KvWrite>> KvWrite::CudaRows() { return {}; }
std::span<const KernelRow<Conv1d>> Conv1d::CudaRows() { return {}; }
std::span<const KernelRow<DeltaNet>> DeltaNet::CudaRows() { return {}; }
std::span<const KernelRow<GatedAct>> GatedAct::CudaRows() { return {}; }
std::span<const KernelRow<SigmoidGate>> SigmoidGate::CudaRows() { return {}; }
std::span<const KernelRow<Gemm>> Gemm::CudaRows() { return {}; }
std::span<const KernelRow<RmsNorm>> RmsNorm::CudaRows() { return {}; }
std::span<const KernelRow<AddNorm>> AddNorm::CudaRows() { return {}; }
std::span<const KernelRow<L2Norm>> L2Norm::CudaRows() { return {}; }
std::span<const KernelRow<GatedNorm>> GatedNorm::CudaRows() { return {}; }
std::span<const KernelRow<Embed>> Embed::CudaRows() { return {}; }
std::span<const KernelRow<Rope>> Rope::CudaRows() { return {}; }
std::span<const KernelRow<Route>> Route::CudaRows() { return {}; }
std::span<const KernelRow<AddBias>> AddBias::CudaRows() { return {}; }
std::span<const KernelRow<AddSums>> AddSums::CudaRows() { return {}; }
std::span<const KernelRow<RoundSums>> RoundSums::CudaRows() { return {}; }
std::span<const KernelRow<Map>> Map::CudaRows() { return {}; }
std::span<const KernelRow<Argmax>> Argmax::CudaRows() { return {}; }
std::span<const KernelRow<Draw>> Draw::CudaRows() { return {}; }
std::span<const KernelRow<CopyRows>> CopyRows::CudaRows() { return {}; }
std::span<const KernelRow<GroupPairs>> GroupPairs::CudaRows() { return {}; }
std::span<const KernelRow<ExpertGemm>> ExpertGemm::CudaRows() { return {}; }

}  // namespace trivet::kernels
