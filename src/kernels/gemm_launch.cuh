// SPDX-License-Identifier: Apache-2.0
// Launches of the product for one weight format.
#pragma once

#include "kernels/expert_gemm.h"
#include "kernels/gemm_panel.cuh"

namespace trivet::kernels {

/// How the leaves of a tile are shared: by `splits` blocks, and inside each by `ways` warps, one or all that may.
struct Sharing {
  int64_t splits = 1, ways = 1;
};

/// What ends first of `rows` times `tiles` tiles of `w` on this device. A warp takes as long as its leaves, and as 3 in
/// a hundred of them to begin.
template <class Way, int kRows>
Sharing SharingOf(const PackedMatrix& w, int64_t rows, int64_t tiles, bool in_place) {
  const int64_t capacity = int64_t{Way::Resident(kRows)} * DeviceAttribute(cudaDevAttrMultiProcessorCount);
  const int64_t leaves = std::max<int64_t>(1, CeilDiv(w.k, w.leaf));
  Sharing best;
  double least = 0;
  for (const int64_t ways : {1, Way::MostWays(kRows)}) {
    const int64_t blocks = rows * CeilDiv(tiles * ways, +Way::kWarps);
    // A cluster has at most eight blocks. It needs room for all of them in one part of the device: some stays empty.
    for (int64_t splits = 1; splits <= std::min<int64_t>(leaves, in_place ? 64 : 8); ++splits) {
      const int64_t of_block = CeilDiv(leaves, splits), of_warp = CeilDiv(of_block, ways);
      if (ways > 1 && (in_place || of_block * w.leaf > Way::Held(kRows))) continue;
      const int64_t room = in_place || splits == 1 ? capacity : capacity - capacity / 8;
      const auto rounds = static_cast<double>(CeilDiv(blocks * splits, room));
      const double time = rounds * (static_cast<double>(of_warp) / static_cast<double>(leaves) + 0.03);
      const bool first = ways == 1 && splits == 1;
      if (first || time < least || (in_place && time == least)) best = {splits, ways}, least = time;
    }
  }
  return best;
}

/// A launch of blocks of `warps` warps, those along z as a cluster where that is asked for.
struct TileLaunch {
  dim3 grid;
  bool cluster;
  int64_t warps, ways;

  template <class... Parameters, class... Arguments>
  void Run(void (*kernel)(Parameters...), const Arguments&... arguments) const {
    StartKernel({grid, dim3(kWarp, static_cast<unsigned>(warps)), 0, cluster ? grid.z : 1}, kernel, arguments...);
  }
};

/// The launch for `rows` groups of kRows rows and `tiles` tiles of `w`.
template <class Way, int kRows>
TileLaunch TileLaunchOf(const PackedMatrix& w, int64_t rows, int64_t tiles, bool in_place) {
  const bool shareable = in_place || IsHopperOrLater();
  const Sharing sharing = shareable ? SharingOf<Way, kRows>(w, rows, tiles, in_place) : Sharing{};
  const int64_t blocks = CeilDiv(tiles * sharing.ways, +Way::kWarps);
  return {dim3(static_cast<unsigned>(rows), static_cast<unsigned>(blocks), static_cast<unsigned>(sharing.splits)),
          sharing.splits > 1 && !in_place, Way::kWarps, sharing.ways};
}

/// Whether rows of x can be read four columns at a time.
inline bool RowsAreAligned(const float* x, int64_t stride) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && stride % 4 == 0;
}

/// What the blocks of a grid as TileLaunchOf makes it multiply, with a tile for kWays of their warps.
template <class Way, int kWays>
__device__ TileProduct ProductOf(const PackedMatrix& w, int64_t tile_begin, int64_t tile_end, bool in_place) {
  using Reader = ChunkReader<Way::kFormat>;
  const int leaves = static_cast<int>(CeilDiv(w.k, w.leaf)), split = static_cast<int>(blockIdx.z);
  const int splits = static_cast<int>(gridDim.z);
  TileProduct product{w, TileBytes<Way::kFormat>(w.phase + w.k)};
  product.tile = tile_begin + static_cast<int64_t>(blockIdx.y) * (Way::kWarps / kWays);
  product.tile_end = tile_end;
  product.leaf_begin = leaves * split / splits;
  product.leaf_end = leaves * (split + 1) / splits;
  product.whole_chunks = w.leaf % Reader::kColumns == 0 && w.phase % Reader::kColumns == 0;
  product.cluster = splits > 1 && !in_place;
  return product;
}

/// Rows [blockIdx.x * most, ...) of a product.
__device__ inline TileRows RowsOfBlock(const Gemm::Args& args, int64_t most) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * most;
  TileRows rows;
  rows.count = static_cast<int>(std::min<int64_t>(most, args.m - first));
  rows.x = args.x;
  rows.x_rows = args.x_rows == nullptr ? nullptr : args.x_rows + first;
  rows.first = rows.y_first = first;
  rows.x_stride = args.x_stride;
  rows.scales = args.row_scale == nullptr ? nullptr : args.row_scale + first;
  rows.y_rows = args.y_rows == nullptr ? nullptr : args.y_rows + first;
  rows.y_stride = args.y_stride;
  return rows;
}

/// How tiles meet a few rows: by chains of multiply-adds. Another way is in gemm_matrix_cuda.cu.
///   kWarps           warps of a block
///   MostWays(rows)   warps that may share a tile, of which a block then holds all columns at once
///   Held(rows)       columns that it holds at once
///   Resident(rows)   blocks that a multiprocessor should hold
///   Multiply         the product; it calls AwaitPrevious before it reads rows
template <WeightFormat kWeights>
struct ByChains {
  static constexpr WeightFormat kFormat = kWeights;
  static constexpr int kWarps = kTileWarps;
  static constexpr int MostWays(int) { return 1; }
  static constexpr int Held(int) { return 0; }
  static constexpr int Resident(int rows) { return rows == 1 ? 8 : 5; }
  template <int kRows, int kWays>
  static __device__ void Multiply(const TileProduct& product, const TileRows& rows, const TileOutput& out) {
    MultiplyTiles<kFormat, kRows>(product, rows, out);
  }
};

/// kRows rows with a tile for kWays warps.
template <class Way, int kRows, int kWays>
__global__ void __launch_bounds__(Way::kWarps* kWarp, Way::Resident(kRows))
    GemmKernel(const Gemm::Args args, const PackedMatrix w) {
  LetNextBegin();
  const TileProduct product = ProductOf<Way, kWays>(w, args.tile_begin, args.tile_end, args.y == nullptr);
  Way::template Multiply<kRows, kWays>(product, RowsOfBlock(args, kRows), {args.y, args.sums_fixed, args.flags});
}

/// Launches with kRows rows a block.
template <class Way, int kRows>
void LaunchRows(const Gemm::Args& args) {
  const TileLaunch launch =
      TileLaunchOf<Way, kRows>(*args.w, CeilDiv(args.m, kRows), args.tile_end - args.tile_begin, args.y == nullptr);
  if (launch.ways == 1) return launch.Run(GemmKernel<Way, kRows, 1>, args, *args.w);
  launch.Run(GemmKernel<Way, kRows, Way::MostWays(kRows)>, args, *args.w);
}

/// The slot and the first position of block number `block`, where every slot's positions fill blocks of `rows`; slot -1
/// behind the last. By one warp.
__device__ inline int2 PanelOf(const ExpertGemm::Args& args, int block, int rows) {
  const int slots = static_cast<int>(args.w.size()), lane = static_cast<int>(threadIdx.x);
  for (int base = 0; base < slots; base += kWarp) {
    const int slot = base + lane;
    const int first = slot < slots ? args.offsets[slot] : 0, last = slot < slots ? args.offsets[slot + 1] : 0;
    const int blocks = (last - first + rows - 1) / rows;
    int end = blocks;  // of the blocks of this slot and those before it
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, end, step);
      end += lane >= step ? other : 0;
    }
    const uint32_t behind = __ballot_sync(kAllLanes, block < end);
    if (behind != 0) {
      const int owner = __ffs(static_cast<int>(behind)) - 1;
      const int at = first + (block - (end - blocks)) * rows;
      return make_int2(base + owner, __shfl_sync(kAllLanes, at, owner));
    }
    block -= __shfl_sync(kAllLanes, end, kWarp - 1);
  }
  return make_int2(-1, 0);
}

/// What panels multiply: a matrix, or where it has none (data is null), the experts' matrices.
struct PanelJob {
  Gemm::Args gemm;
  PackedMatrix w;
  ExpertGemm::Args experts;
  // Whole leaves of a block, where several along z share a sum.
  int columns = std::numeric_limits<int>::max();
};

/// Rows of a plain product that block `block` multiplies.
template <int kRows, class Shared>
__device__ PanelProduct PlainRows(const Gemm::Args& args, const PackedMatrix& w, Shared& shared, int thread) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  PanelProduct product{w};
  product.tile = args.tile_begin;
  product.tile_end = args.tile_end;
  product.rows = static_cast<int>(std::min<int64_t>(kRows, args.m - first));
  product.scaled = args.row_scale != nullptr;
  if (thread < kRows) {
    const int64_t m = first + min(thread, product.rows - 1);
    shared.rows[thread] = args.x + (args.x_rows == nullptr ? m : args.x_rows[m]) * args.x_stride;
    shared.scales[thread] = args.row_scale == nullptr ? 1.0F : args.row_scale[m];
    shared.outputs[thread] = (args.y_rows == nullptr ? m : args.y_rows[m]) * args.y_stride;
  }
  return product;
}

/// Positions of one slot that block `block` multiplies; none behind the last slot's.
template <int kRows, class Shared>
__device__ PanelProduct ExpertRows(const ExpertGemm::Args& args, Shared& shared, int thread) {
  PanelProduct product{};
  const int2 found = PanelOf(args, static_cast<int>(blockIdx.x), kRows);
  if (found.x < 0) return product;
  product.w = args.w_device[found.x];
  product.tile = args.tile_begin;
  product.tile_end = std::min(args.tile_end, CeilDiv(product.w.n, kTileRows));
  product.rows = min(kRows, args.offsets[found.x + 1] - found.y);
  product.scaled = args.y == nullptr;
  if (thread < kRows) {
    const int64_t position = found.y + min(thread, product.rows - 1), pair = args.order[position];
    const int64_t token = pair / args.top_k;
    const bool sums = args.y == nullptr;
    shared.rows[thread] = args.x + (sums ? position : token) * args.x_stride;
    shared.scales[thread] = sums ? args.weights[pair] : 1.0F;
    shared.outputs[thread] = (sums ? token : position) * args.y_stride;
  }
  return product;
}

/// Narrows a product to the block's columns: the `columns` that begin at blockIdx.z times as many. Its phase then
/// counts from the tile's begin, so that it may exceed a storage block.
template <class Shared>
__device__ void TakeColumns(PanelProduct& product, int columns, Shared& shared, int thread) {
  const int begin = blockIdx.z == 0 ? 0 : static_cast<int>(blockIdx.z) * columns;
  product.w.phase += begin;
  product.w.k = min(columns, static_cast<int>(product.w.k) - begin);
  if (thread < Shared::kRows) shared.rows[thread] += begin;
}

/// How tiles meet many rows: by chains of multiply-adds. Another way is in gemm_matrix_cuda.cu.
///   Shared     a block's shared memory, which names its rows
///   kTiles     tiles of a block
///   kResident  blocks that a multiprocessor should hold
template <WeightFormat kWeights, int kRowsEach>
struct PanelsByChains {
  static constexpr WeightFormat kFormat = kWeights;
  using Shared = PanelShared<kRowsEach>;
  static constexpr int kThreads = kPanelThreads, kTiles = kPanelTiles, kResident = 2;
  static __device__ void Multiply(const PanelProduct& product, Shared& shared, const TileOutput& out) {
    MultiplyPanel<kFormat, kRowsEach>(product, shared, out);
  }
};

/// Rows or positions, as many as a block's shared memory names, with some tiles.
template <class Way>
__global__ void __launch_bounds__(Way::kThreads, Way::kResident) PanelKernel(const PanelJob job) {
  BeginKernel();
  using Shared = typename Way::Shared;
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int thread = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x);
  const bool plain = job.w.data != nullptr;
  PanelProduct product = plain ? PlainRows<Shared::kRows>(job.gemm, job.w, shared, thread)
                               : ExpertRows<Shared::kRows>(job.experts, shared, thread);
  product.tile_bytes = TileBytes<Way::kFormat>(product.w.phase + product.w.k);
  product.tile += static_cast<int64_t>(blockIdx.y) * Way::kTiles;
  if (product.tile >= product.tile_end) return;
  TakeColumns(product, job.columns, shared, thread);
  __syncthreads();
  const TileOutput out = plain ? TileOutput{job.gemm.y, job.gemm.sums_fixed, job.gemm.flags}
                               : TileOutput{job.experts.y, job.experts.sums_fixed, job.experts.flags};
  Way::Multiply(product, shared, out);
}

/// Launches panels on a grid of that many, `tiles` tiles and `splits` blocks that share the job's columns.
template <class Way>
void LaunchPanels(const PanelJob& job, int64_t panels, int64_t tiles, int64_t splits = 1) {
  constexpr size_t kShared = sizeof(typename Way::Shared);
  // A device that has less refuses the launch, which CheckLaunch reports.
  cudaFuncSetAttribute(PanelKernel<Way>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared));
  const dim3 grid(static_cast<unsigned>(panels), BlocksFor(tiles, Way::kTiles), static_cast<unsigned>(splits));
  StartKernel({grid, dim3(kWarp, Way::kThreads / kWarp), kShared}, PanelKernel<Way>, job);
}

/// Columns of each block where `blocks` panels add to sums in place and more of them may share leaves: what ends first.
/// A block takes as long as its columns, and as kEnds more to begin and to add to sums.
template <class Way>
int64_t PanelColumns(const PackedMatrix& w, int64_t blocks) {
  constexpr int64_t kEnds = 768, kMostSplits = 16;
  const int64_t capacity = int64_t{Way::kResident} * DeviceAttribute(cudaDevAttrMultiProcessorCount);
  int64_t best = w.k, least = 0;
  for (int64_t splits = 1; splits <= kMostSplits; ++splits) {
    const int64_t columns = CeilDiv(CeilDiv(w.k, splits), w.leaf) * w.leaf;
    const int64_t time = CeilDiv(blocks * CeilDiv(w.k, columns), capacity) * (columns + kEnds);
    if (splits == 1 || time < least) best = columns, least = time;
  }
  return best;
}

/// Launches panels of the rows of a product.
template <class Way>
void LaunchPanels(const Gemm::Args& args) {
  const int64_t panels = CeilDiv(args.m, Way::Shared::kRows), tiles = args.tile_end - args.tile_begin;
  PanelJob job{args, *args.w, {}};
  if (args.y != nullptr || args.w->k == 0) return LaunchPanels<Way>(job, panels, tiles);
  const int64_t columns = PanelColumns<Way>(*args.w, panels * BlocksFor(tiles, Way::kTiles));
  job.columns = static_cast<int>(columns);
  LaunchPanels<Way>(job, panels, tiles, CeilDiv(args.w->k, columns));
}

/// Launches panels of the positions of a product of experts. Every slot wastes less than one panel.
template <class Way>
void LaunchPanels(const ExpertGemm::Args& args, int64_t tiles) {
  const auto slots = static_cast<int64_t>(args.w.size());
  LaunchPanels<Way>({{}, {}, args}, args.pairs / Way::Shared::kRows + slots, tiles);
}

/// One position a block, with some tiles of its expert; every block of a cluster takes part.
template <class Way, int kWays>
__global__ void __launch_bounds__(Way::kWarps* kWarp, Way::Resident(1)) ExpertGemmKernel(const ExpertGemm::Args args) {
  BeginKernel();
  const int64_t i = blockIdx.x;
  const int32_t slot = args.slot_at[i];
  if (slot < 0) return;
  const PackedMatrix w = args.w_device[slot];
  const bool sums = args.y == nullptr;
  const int64_t end = std::min(args.tile_end, CeilDiv(w.n, kTileRows));
  const TileProduct product = ProductOf<Way, kWays>(w, args.tile_begin, end, sums);
  if (product.tile >= product.tile_end) return;
  const int32_t pair = args.order[i];
  const int64_t token = pair / args.top_k;
  TileRows row;
  row.count = 1;
  row.x = args.x;
  row.x_rows = nullptr;
  row.first = sums ? i : token;
  row.x_stride = args.x_stride;
  row.scales = sums ? args.weights + pair : nullptr;
  row.y_rows = nullptr;
  row.y_first = sums ? token : i;
  row.y_stride = args.y_stride;
  Way::template Multiply<1, kWays>(product, row, {args.y, args.sums_fixed, args.flags});
}

/// Launches a product of experts by positions, `some` of whose matrices is given.
template <class Way>
void LaunchPairs(const ExpertGemm::Args& args, const PackedMatrix& some, int64_t tiles) {
  const TileLaunch launch = TileLaunchOf<Way, 1>(some, args.pairs, tiles, args.y == nullptr);
  if (launch.ways == 1) return launch.Run(ExpertGemmKernel<Way, 1>, args);
  launch.Run(ExpertGemmKernel<Way, Way::MostWays(1)>, args);
}

/// Whether the experts' positions fill panels, and all matrices fit them.
template <class Fits>
bool ExpertsFillPanels(const ExpertGemm::Args& args, const Fits& fits) {
  return args.pairs > 4 * static_cast<int64_t>(args.w.size()) &&
         std::all_of(args.w.begin(), args.w.end(), [&](const PackedMatrix& w) { return w.n == 0 || fits(w); });
}

/// Launches the product of a matrix in kFormat.
template <WeightFormat kFormat>
void LaunchGemm(const Gemm::Args& args) {
  if (args.m == 1) return LaunchRows<ByChains<kFormat>, 1>(args);
  if (args.m <= 4) return LaunchRows<ByChains<kFormat>, 4>(args);
  if (args.m <= 16 || !FitsPanels<kFormat>(*args.w) || !RowsAreAligned(args.x, args.x_stride)) {
    return LaunchRows<ByChains<kFormat>, 8>(args);
  }
  if (args.m <= 64) return LaunchPanels<PanelsByChains<kFormat, 2>>(args);
  LaunchPanels<PanelsByChains<kFormat, 8>>(args);
}

/// Launches a product of experts in kFormat with `tiles` tiles, `some` of whose matrices is given.
template <WeightFormat kFormat>
void LaunchExpertGemm(const ExpertGemm::Args& args, const PackedMatrix& some, int64_t tiles) {
  if (!RowsAreAligned(args.x, args.x_stride) || !ExpertsFillPanels(args, FitsPanels<kFormat>)) {
    return LaunchPairs<ByChains<kFormat>>(args, some, tiles);
  }
  const auto slots = static_cast<int64_t>(args.w.size());
  if (args.pairs <= 64 * slots) return LaunchPanels<PanelsByChains<kFormat, 2>>(args, tiles);
  LaunchPanels<PanelsByChains<kFormat, 8>>(args, tiles);
}

}  // namespace trivet::kernels
