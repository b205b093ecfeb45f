// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm_launch.cuh"
#include "kernels/gemm_matrix.h"
#include "kernels/gemm_matrix_deal.cuh"
#include "kernels/gemm_matrix_group_limbs.cuh"
#include "kernels/gemm_matrix_group_parts.cuh"

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

template <WeightFormat kWeights, int kEights>
struct PanelsByGroups {
  static constexpr WeightFormat kFormat = kWeights;
  using Shared = GroupPanelShared<kFormat, kEights>;
  static constexpr int kThreads = (kGroupProducers + kMatrixPanelWarps) * kWarp;
  static constexpr int kTiles = kMatrixPanelWarps, kResident = 1;
  static __device__ void Multiply(const PanelProduct& product, Shared& shared, const TileOutput& out) {
    MultiplyGroupPanel<kFormat, kEights>(product, shared, out);
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

// Rows of the smaller and of the larger panels.
constexpr int64_t kMiddleRows = 32, kLargeRows = 64;

// Launches panels, large ones where there is memory for them too.
template <WeightFormat kFormat, class... Arguments>
void LaunchMatrixPanels(bool large, const Arguments&... arguments) {
  using Large = PanelsByMatrix<kFormat, 8>;
  using Middle = PanelsByMatrix<kFormat, 4>;
  if (HasGroups()) {
    if (large) return LaunchPanels<PanelsByGroups<kFormat, 8>>(arguments...);
    return LaunchPanels<PanelsByGroups<kFormat, 4>>(arguments...);
  }
  const int64_t memory = DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const auto fits = [memory](size_t bytes) { return static_cast<int64_t>(bytes) <= memory; };
  if (large && fits(sizeof(typename Large::Shared))) return LaunchPanels<Large>(arguments...);
  if (fits(sizeof(typename Middle::Shared))) return LaunchPanels<Middle>(arguments...);
  LaunchPanels<PanelsByMatrix<kFormat, 2>>(arguments...);
}

// kRows rows for blocks of one number along x; groups stand along y, and the blocks of one along z.
template <WeightFormat kFormat, int kRows>
__global__ void __launch_bounds__(DealtWarps(kRows) * kWarp, 1)
    DealKernel(const Gemm::Args args, const PackedMatrix w) {
  LetNextBegin();
  extern __shared__ __align__(16) unsigned char memory[];
  const int leaves = static_cast<int>(w.k / w.leaf), group = static_cast<int>(blockIdx.y);
  const int groups = static_cast<int>(gridDim.y);
  const int64_t tiles = args.tile_end - args.tile_begin;
  LeafDeal deal{args.tile_begin, args.tile_end, 0, leaves, static_cast<int>(gridDim.z) * DealtWarps(kRows)};
  if (args.y == nullptr) {
    deal.leaf_begin = leaves * group / groups;
    deal.leaf_end = leaves * (group + 1) / groups;
  } else {
    deal.tile = args.tile_begin + tiles * group / groups;
    deal.tile_end = args.tile_begin + tiles * (group + 1) / groups;
  }
  MultiplyDeal<kFormat, kRows>(deal, w, RowsOfBlock(args, kRows), {args.y, args.sums_fixed, args.flags},
                               *reinterpret_cast<DealtShared<kFormat, kRows>*>(memory));
}

// Clusters of kSize blocks that a device holds at once; asked once, since a process's devices are alike, and where they
// are not, blocks fill one of them less well.
template <WeightFormat kFormat, int kRows, unsigned kSize>
int64_t DealtClusters() {
  if (kSize > 1 && !IsHopperOrLater()) return 0;
  static const int clusters = [] {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {1, 1, kSize};
    cudaLaunchConfig_t config = {};
    config.gridDim = {1, 1, kSize};
    config.blockDim = {kWarp, DealtWarps(kRows), 1};
    config.dynamicSmemBytes = sizeof(DealtShared<kFormat, kRows>);
    config.attrs = &attribute;
    config.numAttrs = kSize > 1 ? 1 : 0;
    int most = 0;
    cudaOccupancyMaxActiveClusters(&most, DealKernel<kFormat, kRows>, &config);
    return most;
  }();
  return clusters;
}

// Groups of a deal and the blocks of each.
struct DealSize {
  int64_t groups = 1, blocks = 1;
};

// The fastest of the deals for `rows` groups of kRows rows. Time is counted in leaves of a tile; to hold a leaf's
// columns takes as long as 0.15 of them for every row, and the end of a tile a tenth.
template <WeightFormat kFormat, int kRows>
DealSize DealOf(const PackedMatrix& w, int64_t rows, int64_t tiles, bool in_place) {
  const int64_t leaves = w.k / w.leaf, device = DeviceAttribute(cudaDevAttrMultiProcessorCount);
  DealSize best;
  double least = 0;
  const auto consider = [&](DealSize size, int64_t some, double time) {
    time += static_cast<double>(some) * 0.15 * kRows;
    if (least == 0 || time < least) best = size, least = time;
  };
  if (in_place) {
    for (int64_t groups = CeilDiv(leaves * w.leaf, DealtColumns(kRows)); groups <= leaves; ++groups) {
      const int64_t some = CeilDiv(leaves, groups), blocks = std::max<int64_t>(1, device / (rows * groups));
      if (some * w.leaf > DealtColumns(kRows)) continue;
      const double each = static_cast<double>(tiles) / static_cast<double>(blocks);
      const auto rounds = static_cast<double>(CeilDiv(rows * groups * blocks, device));
      consider({groups, blocks}, some, rounds * (static_cast<double>(some) * each + 0.1 * each));
    }
    return best;
  }
  const auto clusters = [&](int64_t blocks, int64_t most) {
    const int64_t groups = std::min(tiles, most / rows);
    if (groups < 1) return;
    const double each = static_cast<double>(CeilDiv(tiles, groups)) / static_cast<double>(blocks);
    consider({groups, blocks}, leaves, static_cast<double>(leaves) * each);
  };
  clusters(1, DealtClusters<kFormat, kRows, 1>());
  clusters(2, DealtClusters<kFormat, kRows, 2>());
  clusters(4, DealtClusters<kFormat, kRows, 4>());
  return best;
}

// Whether a deal can be made, and gives every warp of the device a leaf.
template <WeightFormat kFormat, int kRows>
bool DealServes(const Gemm::Args& args) {
  const PackedMatrix& w = *args.w;
  constexpr int64_t kUnit = kMatrixUnit * kMatrixColumns;
  const int64_t device = DeviceAttribute(cudaDevAttrMultiProcessorCount);
  return w.k % w.leaf == 0 && w.leaf % kUnit == 0 && w.phase % kUnit == 0 &&
         (args.y == nullptr ? w.leaf : w.k) <= DealtColumns(kRows) &&
         DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >=
             static_cast<int>(sizeof(DealtShared<kFormat, kRows>)) &&
         (args.tile_end - args.tile_begin) * (w.k / w.leaf) >= device * DealtWarps(kRows);
}

template <WeightFormat kFormat, int kRows>
void LaunchDeal(const Gemm::Args& args) {
  constexpr size_t kShared = sizeof(DealtShared<kFormat, kRows>);
  cudaFuncSetAttribute(DealKernel<kFormat, kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(kShared));
  const int64_t rows = CeilDiv(args.m, kRows);
  const DealSize size = DealOf<kFormat, kRows>(*args.w, rows, args.tile_end - args.tile_begin, args.y == nullptr);
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(size.groups), static_cast<unsigned>(size.blocks));
  StartKernel({grid, dim3(kWarp, DealtWarps(kRows)), kShared, args.y == nullptr ? 1 : grid.z},
              DealKernel<kFormat, kRows>, args, *args.w);
}

// Up to so many rows leaves are dealt out; panels of more are faster (docs/measurements/cuda-kernels.md).
constexpr int64_t kMostDealtRows = 64;

// Whether the rows of `args` meet its matrix one by one: a small one stays in the cache, and more blocks end sooner.
bool ByOneRow(const Gemm::Args& args) {
  constexpr int64_t kCached = int64_t{16} << 20;
  return args.m == 1 || (args.m <= 8 && args.w->bytes() * args.m <= kCached);
}

// Panels of `rows` rows that a product has.
int64_t PanelsOf(const Gemm::Args& args, int64_t rows) {
  return CeilDiv(args.m, rows) * CeilDiv(args.tile_end - args.tile_begin, +kMatrixPanelWarps);
}

// Whether panels are too few to fill the device, on which blocks of less rows can share leaves. Where sums are made in
// place, panels share them too.
bool HasFewPanels(const Gemm::Args& args) {
  return args.y != nullptr && 4 * PanelsOf(args, kLargeRows) <= DeviceAttribute(cudaDevAttrMultiProcessorCount);
}

// Whether large panels end first: the smaller ones take 0.7 times as long.
bool WantsLargePanels(const Gemm::Args& args) {
  if (args.m <= kMiddleRows || args.y == nullptr) return args.m > kMiddleRows;
  const int64_t device = DeviceAttribute(cudaDevAttrMultiProcessorCount);
  return 10 * CeilDiv(PanelsOf(args, kLargeRows), device) <= 7 * CeilDiv(PanelsOf(args, kMiddleRows), device);
}

template <WeightFormat kFormat>
void LaunchMatrixGemm(const Gemm::Args& args) {
  if (ByOneRow(args)) return LaunchRows<ByMatrix<kFormat>, 1>(args);
  if constexpr (kFormat != WeightFormat::kBF16) {
    if (args.m <= 4 && DealServes<kFormat, 4>(args)) return LaunchDeal<kFormat, 4>(args);
    if (args.m <= kMostDealtRows && DealServes<kFormat, 8>(args)) return LaunchDeal<kFormat, 8>(args);
    if (args.m <= 4) return LaunchRows<ByMatrix<kFormat>, 4>(args);
  }
  if (args.m <= 8 || HasFewPanels(args)) return LaunchRows<ByMatrix<kFormat>, 8>(args);
  // Sums in place have blocks enough: fewer of them with more rows read less.
  if (args.m <= 16) return LaunchRows<ByMatrix<kFormat>, 16>(args);
  LaunchMatrixPanels<kFormat>(WantsLargePanels(args), args);
}

template <WeightFormat kFormat>
void LaunchMatrixExperts(const ExpertGemm::Args& args, const PackedMatrix& some, int64_t tiles) {
  if (!ExpertsFillPanels(args, [](const PackedMatrix&) { return true; })) {
    return LaunchPairs<ByMatrix<kFormat>>(args, some, tiles);
  }
  LaunchMatrixPanels<kFormat>(args.pairs / static_cast<int64_t>(args.w.size()) > kMiddleRows, args, tiles);
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
