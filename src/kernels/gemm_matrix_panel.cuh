// SPDX-License-Identifier: Apache-2.0
// The product of many rows by matrix units: every warp has a tile of its own and meets the same rows, whose parts stand
// in shared memory.
#pragma once

#include "kernels/gemm_matrix.cuh"
#include "kernels/gemm_panel.cuh"

namespace trivet::kernels {

/// Warps of a block that multiplies many rows.
inline constexpr int kMatrixPanelWarps = 8;

/// Shared memory of a block for 8 * kEights rows.
template <WeightFormat kFormat, int kEights>
struct MatrixPanelShared {
  static constexpr int kRows = 8 * kEights;
  static constexpr int kColumns = kFormat == WeightFormat::kBF16 && kEights == 8 ? 64 : 128;  // of x, held at once

  // What is multiplied and what comes next.
  HeldActivations<kFormat, kRows, kColumns / kMatrixColumns> held[2];
  int64_t totals[kRows][kMatrixPanelWarps * kWarp];
  const float* rows[kRows];
  float scales[kRows];
  int64_t outputs[kRows];
};

/// Adds a leaf's sums to a thread's totals, and zeroes them.
///   row_of(v)  the row of sum number v
///   sum(v)     a reference to it
template <int kSums, class Shared, class RowOf, class Sum>
__device__ inline void EndPanelLeaf(const PanelProduct& product, Shared& shared, int thread, const RowOf& row_of,
                                    const Sum& sum, uint32_t* flags) {
  if (product.scaled) {
#pragma unroll
    for (int v = 0; v < kSums; ++v) sum(v) *= shared.scales[row_of(v)];
  }
  LimitLeaf<kSums>([&](int v) { return row_of(v) < product.rows; }, sum, flags);
#pragma unroll
  for (int v = 0; v < kSums; ++v) shared.totals[v][thread] += ToGridInRange(sum(v));
#pragma unroll
  for (int v = 0; v < kSums; ++v) sum(v) = 0;
}

/// Writes a thread's totals of tile `number`, which Part::RowOf, OutputOf and Thread place, and what they met.
template <class Part, class Shared>
__device__ inline void WritePanel(const PanelProduct& product, const Shared& shared, int64_t number, uint32_t flags,
                                  const TileOutput& out) {
  if (number >= product.tile_end) return;
  if (flags != kInRange) atomicOr(reinterpret_cast<uint32_t*>(out.flags), flags);
#pragma unroll 1
  for (int v = 0; v < Shared::kRows; ++v) {
    const int row = Part::RowOf(v);
    const int64_t n = number * kTileRows + Part::OutputOf(v);
    if (row >= product.rows || n >= product.w.n) continue;
    WriteTotal(out, shared.outputs[row] + n, shared.totals[v][Part::Thread()]);
  }
}

/// One thread's part of the work.
template <WeightFormat kFormat, int kEights>
struct MatrixPanel {
  using Shared = MatrixPanelShared<kFormat, kEights>;
  static constexpr int kThreads = kMatrixPanelWarps * kWarp;
  static constexpr int kPerRow = Shared::kColumns / 8;
  static constexpr int kLoads = Shared::kRows * kPerRow / kThreads;  // eights of columns
  static_assert(Shared::kRows * kPerRow % kThreads == 0);

  const PanelProduct& product;
  Shared& shared;
  LeafSums<kFormat, Shared::kRows> sums;
  float next[kLoads][8];
  uint32_t flags = kInRange;

  __device__ static int Thread() { return static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x); }
  // The row of the tile and the row of x of value v, as MatrixSums says.
  __device__ static int OutputOf(int v) { return static_cast<int>(threadIdx.x) / 4 * 4 + v % 8 / 2; }
  __device__ static int RowOf(int v) { return v / 8 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + v % 2; }

  __device__ void Load(int column) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = Thread() + i * kThreads;
      ReadActivations(shared.rows[at / kPerRow], column + at % kPerRow * 8, static_cast<int>(product.w.k), next[i]);
    }
  }
  __device__ void Store(int buffer) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = Thread() + i * kThreads;
      shared.held[buffer].Put(at / kPerRow, at % kPerRow, next[i]);
    }
  }

  __device__ void EndLeaf() {
    EndPanelLeaf<Shared::kRows>(
        product, shared, Thread(), [](int v) { return RowOf(v); }, [this](int v) -> float& { return sums.Value(v); },
        &flags);
  }
};

/// Multiplies; every thread of a block of (32, kMatrixPanelWarps) calls it, with rows, scales and outputs in shared
/// memory. Leaves are whole blocks of 32 columns.
template <WeightFormat kFormat, int kEights>
__device__ void MultiplyMatrixPanel(const PanelProduct& product, MatrixPanelShared<kFormat, kEights>& shared,
                                    const TileOutput& out) {
  using P = MatrixPanel<kFormat, kEights>;
  using Shared = MatrixPanelShared<kFormat, kEights>;
  P panel{product, shared};
#pragma unroll 1
  for (int v = 0; v < Shared::kRows; ++v) shared.totals[v][P::Thread()] = 0;
  const int end = static_cast<int>(product.w.k), phase = static_cast<int>(product.w.phase);
  const int leaf = static_cast<int>(product.w.leaf) / kMatrixColumns;
  const int64_t number = product.tile + threadIdx.y;
  const std::byte* tile =
      product.w.data + (number < product.tile_end ? number : product.tile_end - 1) * product.tile_bytes;
  MatrixFormat<kFormat, false> next(tile, phase);
  typename MatrixFormat<kFormat, false>::Stored coming;
  next.Load(coming, end);
  panel.Load(0);
  int left = leaf, buffer = 0;
#pragma unroll 1
  for (int column = 0; column < end; column += Shared::kColumns, buffer ^= 1) {
    panel.Store(buffer);
    __syncthreads();
    if (column + Shared::kColumns < end) panel.Load(column + Shared::kColumns);
    const int blocks = CeilDiv(min(Shared::kColumns, end - column), kMatrixColumns);
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      const typename LeafSums<kFormat, Shared::kRows>::Weights weights(coming);
      next.Next();
      const int columns = end - column - (block + 1) * kMatrixColumns;
      if (columns > 0) next.Load(coming, columns);
      panel.sums.Add(panel.sums.Multiply(weights, shared.held[buffer], block));
      if (--left == 0) {
        panel.EndLeaf();
        left = leaf;
      }
    }
  }
  if (left != leaf) panel.EndLeaf();
  WritePanel<P>(product, shared, number, panel.flags, out);
}

}  // namespace trivet::kernels
