// SPDX-License-Identifier: Apache-2.0
// The product of many rows with two tiles of weights by one block: weights are decoded once for all rows, into shared
// memory beside the rows' columns, and every thread follows the chains of kRowsEach * 4 outputs. Chains, leaves and
// sums are those of gemm_tile.cuh.
#pragma once

#include "kernels/gemm_tile.cuh"

namespace trivet::kernels {

inline constexpr int kPanelThreads = 256;
inline constexpr int kPanelTiles = 2;
inline constexpr int kPanelOutputs = kPanelTiles * static_cast<int>(kTileRows);  // 64: 16 threads of 4 outputs
inline constexpr int kPanelColumns = 32;                                         // columns in shared memory at once

/// Shared memory of a block for 16 * kRowsEach rows.
template <int kRowsEach>
struct PanelShared {
  static constexpr int kRows = 16 * kRowsEach;
  // Four more columns put the rows that two threads read at once into different banks.
  float x[kRows][kPanelColumns + 4];
  float w[kPanelColumns][kPanelOutputs];
  int64_t totals[kRowsEach * 4][kPanelThreads];
  const float* rows[kRows];
  float scales[kRows];
  int64_t outputs[kRows];
};

/// What a block multiplies: rows as its shared memory names them.
struct PanelProduct {
  PackedMatrix w;
  int64_t tile_bytes = 0;
  int64_t tile = 0, tile_end = 0;
  int rows = 0;
  bool scaled = false;  // rows have scales that are not all 1
};

/// One thread's part of the work.
template <WeightFormat kFormat, int kRowsEach>
struct Panel {
  using Reader = ChunkReader<kFormat>;
  using Shared = PanelShared<kRowsEach>;
  static constexpr int kChunks = kPanelColumns / Reader::kColumns;  // of a tile
  static constexpr int kLoads = Shared::kRows * kPanelColumns / 4 / kPanelThreads;
  static_assert(kPanelColumns % Reader::kColumns == 0 && kChunks * kPanelTiles <= kPanelThreads / kWarp);

  const PanelProduct& product;
  Shared& shared;
  float sums[kRowsEach][4] = {};
  float4 next_x[kLoads > 0 ? kLoads : 1];
  Reader next_w;

  __device__ static int Thread() { return static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x); }
  // Row 0 .. 15 and output column 0 .. 15 of this thread; its rows are 16 apart, its outputs neighbours.
  __device__ static int Row() { return Thread() / 16; }
  __device__ static int Column() { return Thread() % 16 * 4; }

  // Whether this warp decodes, and what.
  __device__ static bool Decodes() { return threadIdx.y < kChunks * kPanelTiles; }
  __device__ const std::byte* Tile() const {
    const int64_t tile = product.tile + threadIdx.y / kChunks;
    return product.w.data + (tile < product.tile_end ? tile : product.tile) * product.tile_bytes;
  }

  // Loads columns [column, column + 32), all of them there.
  __device__ void Load(int column) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = Thread() + i * kPanelThreads;
      next_x[i] = *reinterpret_cast<const float4*>(shared.rows[at / 8] + column + at % 8 * 4);
    }
    if (!Decodes()) return;
    const int chunk = (static_cast<int>(product.w.phase) + column) / Reader::kColumns;
    next_w.Load(Tile(), chunk + static_cast<int>(threadIdx.y) % kChunks);
  }

  template <int q, bool kUsual>
  __device__ void StoreFours(int first, int output) {
    if constexpr (q < Reader::kColumns / 4) {
      float weights[4];
      next_w.template Four<q, kUsual>(weights);
#pragma unroll
      for (int i = 0; i < 4; ++i) shared.w[first + 4 * q + i][output] = weights[i];
      StoreFours<q + 1, kUsual>(first, output);
    }
  }

  // Puts what was loaded into shared memory.
  __device__ void Store() {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = Thread() + i * kPanelThreads;
      *reinterpret_cast<float4*>(&shared.x[at / 8][at % 8 * 4]) = next_x[i];
    }
    if (!Decodes()) return;
    const int first = static_cast<int>(threadIdx.y) % kChunks * Reader::kColumns;
    const int output = static_cast<int>(threadIdx.y) / kChunks * static_cast<int>(kTileRows) +
                       Reader::RowOf(static_cast<int>(threadIdx.x));
    next_w.Begin();
    if (next_w.Usual()) {
      StoreFours<0, true>(first, output);
    } else {
      StoreFours<0, false>(first, output);
    }
  }

  // Puts columns [column, end) into shared memory one by one, and zeros behind them, which add nothing.
  __device__ void StoreTail(int column, int end) {
    for (int at = Thread(); at < Shared::kRows * kPanelColumns; at += kPanelThreads) {
      const int k = column + at % kPanelColumns;
      shared.x[at / kPanelColumns][at % kPanelColumns] = k < end ? shared.rows[at / kPanelColumns][k] : 0.0F;
    }
    for (int at = Thread(); at < kPanelOutputs * kPanelColumns; at += kPanelThreads) {
      const int k = column + at / kPanelOutputs, output = at % kPanelOutputs;
      const int64_t tile = product.tile + output / kTileRows;
      const bool real = k < end && tile < product.tile_end;
      const std::byte* data = product.w.data + tile * product.tile_bytes;
      shared.w[at / kPanelOutputs][output] =
          real ? LoadElement<kFormat>(data, output % kTileRows, product.w.phase + k) : 0.0F;
    }
  }

  // Follows the chains over what shared memory holds.
  __device__ void Multiply() {
#pragma unroll 2
    for (int k = 0; k < kPanelColumns; k += 4) {
      float4 w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = *reinterpret_cast<const float4*>(&shared.w[k + i][Column()]);
#pragma unroll
      for (int r = 0; r < kRowsEach; ++r) {
        const float4 x = *reinterpret_cast<const float4*>(&shared.x[Row() + 16 * r][k]);
        const float columns[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[r][0] = std::fma(columns[i], w[i].x, sums[r][0]);
          sums[r][1] = std::fma(columns[i], w[i].y, sums[r][1]);
          sums[r][2] = std::fma(columns[i], w[i].z, sums[r][2]);
          sums[r][3] = std::fma(columns[i], w[i].w, sums[r][3]);
        }
      }
    }
  }

  // Ends a leaf: its sums join the totals; returns what they raise.
  __device__ uint32_t EndLeaf() {
    uint32_t flags = kInRange;
#pragma unroll
    for (int r = 0; r < kRowsEach; ++r) {
      const int row = Row() + 16 * r;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t n = product.tile * kTileRows + Column() + i;
        uint32_t met = kInRange;
        AddLeaf(shared.scales[row], sums[r][i], &shared.totals[r * 4 + i][Thread()], &met);
        if (row < product.rows && n < product.w.n && n < product.tile_end * kTileRows) flags |= met;
        sums[r][i] = 0;
      }
    }
    return flags;
  }
};

/// Whether a matrix can be multiplied in panels: its leaves are whole panels, and chunks begin where panels do.
template <WeightFormat kFormat>
constexpr bool FitsPanels(const PackedMatrix& w) {
  return w.leaf % kPanelColumns == 0 && w.phase % ChunkReader<kFormat>::kColumns == 0;
}

/// Multiplies; every thread of a block of (32, 8) calls it, with rows, scales and outputs in shared memory. Leaves are
/// whole panels of columns, and rows of x are aligned to 16 bytes.
template <WeightFormat kFormat, int kRowsEach>
__device__ void MultiplyPanel(const PanelProduct& product, PanelShared<kRowsEach>& shared, const TileOutput& out) {
  using P = Panel<kFormat, kRowsEach>;
  P panel{product, shared};
  for (int o = 0; o < kRowsEach * 4; ++o) shared.totals[o][P::Thread()] = 0;
  const int end = static_cast<int>(product.w.k), leaf = static_cast<int>(product.w.leaf);
  uint32_t flags = kInRange;
  if (end >= kPanelColumns) panel.Load(0);
#pragma unroll 1
  for (int column = 0; column < end; column += kPanelColumns) {
    const int next = column + kPanelColumns;
    __syncthreads();
    if (next <= end) {
      panel.Store();
    } else {
      panel.StoreTail(column, end);
    }
    __syncthreads();
    if (next + kPanelColumns <= end) panel.Load(next);
    panel.Multiply();
    if (next % leaf == 0 || next >= end) flags |= panel.EndLeaf();
  }
  if (flags != kInRange) atomicOr(reinterpret_cast<uint32_t*>(out.flags), flags);
#pragma unroll 1
  for (int o = 0; o < kRowsEach * 4; ++o) {
    const int row = P::Row() + o / 4 * 16;
    const int64_t n = product.tile * kTileRows + P::Column() + o % 4;
    if (row >= product.rows || n >= product.w.n || n >= product.tile_end * kTileRows) continue;
    WriteTotal(out, shared.outputs[row] + n, shared.totals[o][P::Thread()]);
  }
}

}  // namespace trivet::kernels
