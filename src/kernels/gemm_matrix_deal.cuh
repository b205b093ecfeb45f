// SPDX-License-Identifier: Apache-2.0
// Products of two and more rows by matrix units. A block has up to eight of them, fills a multiprocessor, and holds its
// rows' columns once, for all tiles that it meets. The leaves of these tiles, one tile's behind the other's, are dealt
// out to the warps of a group of blocks, as many to each, wherever tiles end: whoever meets a tile's first leaf adds up
// what the next warps have of it. Totals are integers, so that their bytes do not depend on the deal.
#pragma once

#include "kernels/gemm_matrix.cuh"

namespace trivet::kernels {

/// Warps of a block, which has a multiprocessor for itself.
constexpr int DealtWarps(int rows) { return rows <= 4 ? 16 : 12; }

/// Columns of the rows that a block holds.
constexpr int DealtColumns(int rows) { return 40960 / rows; }

/// Shared memory of a block.
template <WeightFormat kFormat, int kRows>
struct DealtShared {
  static constexpr int kWarps = DealtWarps(kRows), kColumns = DealtColumns(kRows);
  using Totals = int64_t[kWarps][kRows][kWarp];

  union {
    HeldActivations<kFormat, kRows, kColumns / kMatrixColumns> held;
    Totals last;  // of a warp's last tile, where it is not whole; once nobody needs the rows
  };
  Totals first;  // of its first one, likewise; where sums are made in place, a tile's on its way out
  float turned[kWarps][kRows][kWarp];  // other outputs on their way out
};

/// What a group of blocks multiplies: leaves [leaf_begin, leaf_end) of tiles [tile, tile_end).
struct LeafDeal {
  int64_t tile, tile_end;
  int leaf_begin, leaf_end;
  int warps;  // of the group

  __device__ int Leaves() const { return leaf_end - leaf_begin; }
  /// Leaves, tile after tile, in front of those of warp number `warp`.
  __device__ int Before(int warp) const { return static_cast<int>((tile_end - tile) * Leaves() * warp / warps); }
};

/// Waits for all blocks of a group, where they are one output's: a cluster, or one alone.
__device__ inline void SyncGroup() {
  if (gridDim.z > 1) {
    SyncCluster();
  } else {
    __syncthreads();
  }
}

/// One warp's leaves.
template <WeightFormat kFormat, int kRows>
struct DealtLeaves {
  using Totals = MatrixTotals<kFormat, kRows>;
  using Sums = LeafSums<kFormat, kRows>;
  using Ring = BlockRing<kFormat, false, SomeTiles>;
  using Shared = DealtShared<kFormat, kRows>;

  const LeafDeal& deal;
  const PackedMatrix& w;
  const TileRows& rows;
  const TileOutput& out;
  Shared& shared;
  int warp, leaves, tile, leaf;  // of the group's; leaves of a tile; where this warp stands
  bool whole;                    // whether it has met all leaves of the tile so far

  __device__ DealtLeaves(const LeafDeal& d, const PackedMatrix& matrix, const TileRows& r, const TileOutput& o,
                         Shared& s)
      : deal(d), w(matrix), rows(r), out(o), shared(s) {
    warp = static_cast<int>(blockIdx.z) * Shared::kWarps + static_cast<int>(threadIdx.y);
    leaves = deal.Leaves();
    tile = deal.Before(warp) / leaves;
    leaf = deal.Before(warp) % leaves;
    whole = leaf == 0;
  }

  __device__ Ring Begin(int64_t tile_bytes) const {
    const int width = static_cast<int>(w.leaf), columns = leaves * width;
    const int at = static_cast<int>(w.phase) + (deal.leaf_begin + leaf) * width;
    constexpr int kUnit = kMatrixUnit * kMatrixColumns;
    const SomeTiles path{(leaves - leaf) * width / kUnit, columns / kUnit, tile_bytes - TileBytes<kFormat>(columns)};
    return Ring(w.data + (deal.tile + tile) * tile_bytes, at, (deal.Before(warp + 1) - deal.Before(warp)) * width,
                path);
  }

  // Writes a tile's totals by rows, whose outputs lie side by side: a lane has one of each.
  __device__ void Write(const Totals& totals) const {
    auto& sums = shared.first[threadIdx.y];
    auto& outputs = shared.turned[threadIdx.y];
#pragma unroll
    for (int v = 0; v < kRows; ++v) {
      const int row = Totals::RowOf(v), n = Totals::OutputOf(v);
      if (out.y == nullptr) {
        sums[row][n] = totals.totals[v];
      } else {
        outputs[row][n] = FromGrid(totals.totals[v]);
      }
    }
    __syncwarp();
    const int lane = static_cast<int>(threadIdx.x);
    const int64_t n = (deal.tile + tile) * kTileRows + lane;
    // Rows of a tile beyond the matrix hold zeros or the rest of a block: they raise nothing.
#pragma unroll 1
    for (int row = 0; row < rows.count && n < w.n; ++row) {
      const int64_t at = rows.Output(row) + n;
      if (out.y == nullptr) {
        AddTotal(out, at, sums[row][lane]);
      } else {
        out.y[at] = outputs[row][lane];
      }
    }
    __syncwarp();
  }
  // Puts what this warp has of a tile where others of the group find it.
  __device__ void Show(const Totals& totals, typename Shared::Totals& to) const {
#pragma unroll
    for (int v = 0; v < kRows; ++v) to[threadIdx.y][v][threadIdx.x] = totals.totals[v];
  }

  __device__ void EndTile(Totals& totals) {
    if (whole || out.y == nullptr) {
      Write(totals);
    } else {
      Show(totals, shared.first);
    }
#pragma unroll
    for (int v = 0; v < kRows; ++v) totals.totals[v] = 0;
    ++tile;
    leaf = 0;
    whole = true;
  }

  __device__ void Multiply(Ring& ring, Totals& totals) {
    constexpr int kPlaces = Ring::kPlaces;
    const int of_leaf = static_cast<int>(w.leaf) / kMatrixColumns;
    const int blocks = (deal.Before(warp + 1) - deal.Before(warp)) * of_leaf;
    Sums sums;
    int left = of_leaf, at = leaf * of_leaf;
#pragma unroll 1
    for (int place = 0; place < blocks; place += kPlaces) {
#pragma unroll
      for (int i = 0; i < kPlaces; i += Sums::kTogether) {
        if (place + i >= blocks) break;
        typename Sums::Product products[Sums::kTogether];
#pragma unroll
        for (int j = 0; j < Sums::kTogether; ++j) {
          const typename Sums::Weights weights(ring.blocks[i + j]);
          ring.LoadAhead(i + j);
          products[j] = sums.Multiply(weights, shared.held, at + j);
        }
#pragma unroll
        for (int j = 0; j < Sums::kTogether; ++j) sums.Add(products[j]);
        at += Sums::kTogether;
        left -= Sums::kTogether;
        if (left > 0) continue;
        left = of_leaf;
        totals.EndLeaf(sums);
        if (++leaf < leaves) continue;
        at = 0;
        EndTile(totals);
      }
    }
  }

  // Adds what the next warps have of this warp's last tile, and writes it.
  __device__ void Join(Totals& totals) const {
    const int end = (tile + 1) * leaves;
#pragma unroll 1
    for (int other = warp + 1; deal.Before(other) < end; ++other) {
      if (deal.Before(other) == deal.Before(other + 1)) continue;
      const bool ends = deal.Before(other + 1) >= end;
      const Shared* block = &shared;
#if __CUDA_ARCH__ >= 900
      const auto number = static_cast<unsigned>(other / Shared::kWarps);
      if (gridDim.z > 1) block = cooperative_groups::this_cluster().map_shared_rank(&shared, number);
#endif
      const typename Shared::Totals& from = ends ? block->first : block->last;
#pragma unroll
      for (int v = 0; v < kRows; ++v) totals.totals[v] += from[other % Shared::kWarps][v][threadIdx.x];
    }
    Write(totals);
  }

  __device__ void End(Totals& totals) {
    if (totals.flags != kInRange) atomicOr(reinterpret_cast<uint32_t*>(out.flags), totals.flags);
    const bool open = leaf != 0;
    if (out.y == nullptr) {
      if (open) Write(totals);
      return;
    }
    SyncGroup();
    if (open) Show(totals, shared.last);
    SyncGroup();
    if (open && whole) Join(totals);
    SyncGroup();  // nobody leaves while others read
  }
};

/// Multiplies; every thread of a block of (32, kWarps) calls it. Leaves are whole units, and so is the phase.
template <WeightFormat kFormat, int kRows>
__device__ void MultiplyDeal(const LeafDeal& deal, const PackedMatrix& w, const TileRows& rows, const TileOutput& out,
                             DealtShared<kFormat, kRows>& shared) {
  DealtLeaves<kFormat, kRows> dealt(deal, w, rows, out, shared);
  const int width = static_cast<int>(w.leaf);
  auto ring = dealt.Begin(TileBytes<kFormat>(w.phase + w.k));
  AwaitPrevious();
  HoldRows<kRows, DealtShared<kFormat, kRows>::kWarps>(rows, deal.leaf_begin * width, deal.leaf_end * width,
                                                       shared.held);
  MatrixTotals<kFormat, kRows> totals(rows);
  __syncthreads();
  dealt.Multiply(ring, totals);
  dealt.End(totals);
}

}  // namespace trivet::kernels
