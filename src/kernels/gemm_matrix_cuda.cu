// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm_launch.cuh"
#include "kernels/gemm_matrix.h"
#include "kernels/gemm_matrix_group.cuh"

namespace trivet::kernels {
namespace {

template <WeightFormat kWeights>
struct ByMatrix {
  static constexpr WeightFormat kFormat = kWeights;
  static constexpr int kWarps = kMatrixWarps;
  static constexpr int MostWays(int rows) { return rows <= 8 ? kMatrixWarps : 1; }
  static constexpr int Held(int rows) { return HeldColumns(kWeights, rows); }
  static constexpr int Resident(int rows) { return rows == 1 ? 5 : rows <= 4 ? 4 : 3; }
  template <int kRows, int kWays>
  static __device__ void Multiply(const TileProduct& product, const TileRows& rows, const TileOutput& out) {
    MultiplyTilesByMatrix<kFormat, kRows, kWays>(product, rows, out);
  }
};

template <WeightFormat kWeights, int kEights>
struct PanelsByMatrix {
  static constexpr WeightFormat kFormat = kWeights;
  using Shared = MatrixPanelShared<kFormat, kEights>;
  static constexpr int kThreads = kMatrixPanelWarps * kWarp, kTiles = kMatrixPanelWarps, kResident = 1;
  static __device__ void Multiply(const PanelProduct& product, Shared& shared, const TileOutput& out) {
    MultiplyMatrixPanel<kFormat, kEights>(product, shared, out);
  }
};

template <int kEights>
struct PanelsByGroups {
  static constexpr WeightFormat kFormat = WeightFormat::kBF16;
  using Shared = GroupPanelShared<kEights>;
  static constexpr int kThreads = (kGroupProducers + kMatrixPanelWarps) * kWarp;
  static constexpr int kTiles = kMatrixPanelWarps, kResident = 1;
  static __device__ void Multiply(const PanelProduct& product, Shared& shared, const TileOutput& out) {
    MultiplyGroupPanel<kEights>(product, shared, out);
  }
};

// Whether the device and this program have the instructions of gemm_matrix_group.cuh.
bool HasGroups() {
#ifdef TRIVET_SM90A
  return DeviceAttribute(cudaDevAttrComputeCapabilityMajor) == 9;
#else
  return false;
#endif
}

// Launches panels as large as there is work and memory for.
template <WeightFormat kFormat, class... Arguments>
void LaunchMatrixPanels(int64_t rows, const Arguments&... arguments) {
  using Large = PanelsByMatrix<kFormat, 8>;
  using Middle = PanelsByMatrix<kFormat, 4>;
  if (kFormat == WeightFormat::kBF16 && HasGroups()) {
    if (rows > Middle::Shared::kRows) return LaunchPanels<PanelsByGroups<8>>(arguments...);
    return LaunchPanels<PanelsByGroups<4>>(arguments...);
  }
  const int64_t memory = DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const auto fits = [memory](size_t bytes) { return static_cast<int64_t>(bytes) <= memory; };
  if (rows > Middle::Shared::kRows && fits(sizeof(typename Large::Shared))) return LaunchPanels<Large>(arguments...);
  if (fits(sizeof(typename Middle::Shared))) return LaunchPanels<Middle>(arguments...);
  LaunchPanels<PanelsByMatrix<kFormat, 2>>(arguments...);
}

template <WeightFormat kFormat>
void LaunchMatrixGemm(const Gemm::Args& args) {
  if (args.m == 1) return LaunchRows<ByMatrix<kFormat>, 1>(args);
  if constexpr (kFormat != WeightFormat::kBF16) {
    if (args.m <= 4) return LaunchRows<ByMatrix<kFormat>, 4>(args);
  }
  if (args.m <= 8) return LaunchRows<ByMatrix<kFormat>, 8>(args);
  if (args.m <= 16) return LaunchRows<ByMatrix<kFormat>, 16>(args);
  LaunchMatrixPanels<kFormat>(args.m, args);
}

template <WeightFormat kFormat>
void LaunchMatrixExperts(const ExpertGemm::Args& args, const PackedMatrix& some, int64_t tiles) {
  if (!ExpertsFillPanels(args, [](const PackedMatrix&) { return true; })) {
    return LaunchPairs<ByMatrix<kFormat>>(args, some, tiles);
  }
  LaunchMatrixPanels<kFormat>(args.pairs / static_cast<int64_t>(args.w.size()), args, tiles);
}

// Calls visit.operator()<kFormat>() for a format that the matrix units serve.
template <class Visit>
void ForMatrixFormat(WeightFormat format, const Visit& visit) {
  if (format == WeightFormat::kBF16) return visit.template operator()<WeightFormat::kBF16>();
  if (format == WeightFormat::kMxfp4Halves) return visit.template operator()<WeightFormat::kMxfp4Halves>();
  CHECK(format == WeightFormat::kFp8);
  visit.template operator()<WeightFormat::kFp8>();
}

}  // namespace

bool MatrixUnitsServe(const PackedMatrix& w) {
  if (w.leaf % kMatrixColumns != 0) return false;
  CHECK(w.phase % kMatrixColumns == 0);  // cuts lie on borders of leaves
  return w.format == WeightFormat::kBF16 || w.format == WeightFormat::kMxfp4Halves || w.format == WeightFormat::kFp8;
}

void GemmByMatrix(const Gemm::Args& args) {
  ForMatrixFormat(args.w->format, [&]<WeightFormat kFormat>() { LaunchMatrixGemm<kFormat>(args); });
}

void ExpertGemmByMatrix(const ExpertGemm::Args& args, const PackedMatrix& some, int64_t tiles) {
  ForMatrixFormat(some.format, [&]<WeightFormat kFormat>() { LaunchMatrixExperts<kFormat>(args, some, tiles); });
}

}  // namespace trivet::kernels
