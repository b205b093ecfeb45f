// SPDX-License-Identifier: Apache-2.0
// Products of activations with a packed weight matrix, the one place where the engine multiplies weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "kernels/fixed_point.h"
#include "kernels/kernel.h"
#include "kernels/weight_format.h"

namespace trivet::kernels {

/// For every row m and output n, with the columns divided into leaves at absolute positions:
///   leaf  = fma chain over the leaf's columns in ascending order, in float32, starting at 0; or, where MxServes
///           (mx_block.h) says so, the fma chain of blocks of 32 columns: the exact integer sum of code * q, rounded to
///           float32, times (scale of the weights * factor of the activations)
///   part  = leaf, or row_scale[m] * leaf (rounded to float32)
///   exact: total = sum of ToGrid(part) over leaves;  y = FromGrid(total), or sums_fixed += total
///   fast:  total = float32 sum of leaves, ascending;  y = total, or sums_fast += row_scale[m] * total; rows of a
///          processor alone (WithinRank)
/// A row's bits depend on nothing but the row and the matrix: not on m, M, N, the tile or the range of tiles.
///   x           [*, K] float32, row stride x_stride
///   x_rows      [M] row of x that m reads; null: m itself
///   y           [*, N] float32, row stride y_stride; or null, and one of the sums is given
///   sums_*      [*, N] accumulated in place, row stride y_stride
///   y_rows      [M] row of y or of the sums that m writes; null: m itself. No two m may name the same row.
///   row_scale   [M] float32, or null for 1; only with sums
///   tile range  the 32-row tiles of the matrix this call computes: how threads share the work
///   flags       RangeFlags of the parts are added to it (exact only)
/// Ranks:    local. When ranks hold parts of K, their sums are added afterwards.
struct Gemm {
  struct Args {
    const float* x = nullptr;
    int64_t x_stride = 0;
    const int32_t* x_rows = nullptr;
    int64_t m = 0;
    const PackedMatrix* w = nullptr;
    float* y = nullptr;
    int64_t* sums_fixed = nullptr;
    float* sums_fast = nullptr;
    int64_t y_stride = 0;
    const int32_t* y_rows = nullptr;
    const float* row_scale = nullptr;
    Numerics numerics = Numerics::kExact;
    int64_t tile_begin = 0;
    int64_t tile_end = 0;
    std::atomic<uint32_t>* flags = nullptr;
  };
  static constexpr std::string_view kName = "gemm";
  static std::span<const KernelRow<Gemm>> Rows();
  static std::span<const KernelRow<Gemm>> CudaRows();
};

}  // namespace trivet::kernels
