// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_formats.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm.h"
#include "kernels/gemm_tile.cuh"

namespace trivet::kernels {
namespace {

// Rows [blockIdx.y * kRows, ...) of one tile a block.
template <WeightFormat kFormat, int kRows>
__global__ void __launch_bounds__(kTileThreads)
    GemmKernel(const Gemm::Args args, const PackedMatrix w, int64_t tile_bytes) {
  const int64_t tile = args.tile_begin + blockIdx.x, first = static_cast<int64_t>(blockIdx.y) * kRows;
  TileProduct product{w, w.data + tile * tile_bytes, tile};
  product.numerics = args.numerics;
  TileRows<kRows> rows;
  rows.count = static_cast<int>(std::min<int64_t>(kRows, args.m - first));
  for (int i = 0; i < kRows; ++i) {
    const int64_t m = first + (i < rows.count ? i : 0);
    rows.x[i] = args.x + (args.x_rows == nullptr ? m : args.x_rows[m]) * args.x_stride;
    rows.scale[i] = args.row_scale == nullptr ? 1.0F : args.row_scale[m];
    rows.at[i] = (args.y_rows == nullptr ? m : args.y_rows[m]) * args.y_stride;
  }
  MultiplyTile<kFormat, kRows>(product, rows, {args.y, args.sums_fixed, args.sums_fast, args.flags});
}

void GemmCuda(const Gemm::Args& args) {
  const PackedMatrix& w = *args.w;
  const int64_t tiles = std::min(args.tile_end, w.tiles()) - args.tile_begin;
  if (tiles <= 0 || args.m == 0) return;
  ForFormat(w.format, [&]<WeightFormat kFormat>() {
    const dim3 block(kWarp, kTileWarps);
    if (args.m == 1) {
      GemmKernel<kFormat, 1><<<dim3(static_cast<unsigned>(tiles), 1), block>>>(args, w, w.tile_bytes());
    } else {
      constexpr int kRows = 4;
      const dim3 grid(static_cast<unsigned>(tiles), BlocksFor(args.m, kRows));
      GemmKernel<kFormat, kRows><<<grid, block>>>(args, w, w.tile_bytes());
    }
  });
  CheckLaunch("gemm/cuda");
}

}  // namespace

std::span<const KernelRow<Gemm>> Gemm::CudaRows() {
  static constexpr KernelRow<Gemm> kRows[] = {{"gemm/cuda", kCudaTarget, GemmCuda}};
  return kRows;
}

}  // namespace trivet::kernels
