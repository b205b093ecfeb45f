// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_formats.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/expert_gemm.h"
#include "kernels/gemm_tile.cuh"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 256;

// A pair's position is the number of pairs that stand before it: those of lower slots, and earlier ones of its own;
// -1, as an unsigned number, is the highest slot. One pair a thread; the threads behind them count offsets.
__global__ void GroupPairsKernel(const GroupPairs::Args args) {
  const int64_t i = GlobalThread();
  const bool is_pair = i < args.pairs;
  const int64_t offset = i - args.pairs;  // of slot `offset`
  if (offset > args.slots_total) return;
  const auto slot = static_cast<uint32_t>(is_pair ? args.slots[i] : static_cast<int32_t>(offset));
  int32_t before = 0;
  for (int64_t p = 0; p < args.pairs; ++p) {
    const auto other = static_cast<uint32_t>(args.slots[p]);
    before += other < slot || (is_pair && other == slot && p < i) ? 1 : 0;
  }
  if (is_pair) {
    args.order[before] = static_cast<int32_t>(i);
    args.slot_at[before] = static_cast<int32_t>(slot);
  } else {
    args.offsets[offset] = before;
  }
}

void GroupPairsCuda(const GroupPairs::Args& args) {
  GroupPairsKernel<<<BlocksFor(args.pairs + args.slots_total + 1, kThreads), kThreads>>>(args);
  CheckLaunch("group_pairs/cuda");
}

// The product of the pair at position `i` with one tile of its expert.
template <WeightFormat kFormat>
__device__ void MultiplyPair(const ExpertGemm::Args& args, int64_t i, int64_t tile) {
  const int32_t slot = args.slot_at[i];
  if (slot < 0) return;
  const PackedMatrix& w = args.w_device[slot];
  if (tile >= CeilDiv(w.n, kTileRows)) return;
  const int64_t tile_bytes = TileBytes<kFormat>(w.phase + w.k);
  const int32_t pair = args.order[i];
  const int64_t token = pair / args.top_k;
  TileRows<1> row;
  row.count = 1;
  row.x[0] = args.x + (args.y == nullptr ? i : token) * args.x_stride;
  row.scale[0] = args.y == nullptr ? args.weights[pair] : 1.0F;
  row.at[0] = (args.y == nullptr ? token : i) * args.y_stride;
  MultiplyTile<kFormat, 1>({w, w.data + tile * tile_bytes, tile, args.numerics}, row,
                           {args.y, args.sums_fixed, args.sums_fast, args.flags});
}

// One position and tile a block.
template <WeightFormat kFormat>
__global__ void __launch_bounds__(kTileThreads) ExpertGemmKernel(const ExpertGemm::Args args, int64_t first) {
  MultiplyPair<kFormat>(args, first + blockIdx.y, args.tile_begin + blockIdx.x);
}

// One token and tile a block, its positions in ascending order: float sums.
template <WeightFormat kFormat>
__global__ void __launch_bounds__(kTileThreads) ExpertSumsKernel(const ExpertGemm::Args args, int64_t first) {
  const int64_t token = first + blockIdx.y;
  for (int64_t i = 0; i < args.pairs; ++i) {
    if (args.order[i] / args.top_k != token) continue;
    MultiplyPair<kFormat>(args, i, args.tile_begin + blockIdx.x);
    __syncthreads();
  }
}

void ExpertGemmCuda(const ExpertGemm::Args& args) {
  const auto some = std::find_if(args.w.begin(), args.w.end(), [](const PackedMatrix& w) { return w.n > 0; });
  if (some == args.w.end() || args.tile_begin >= args.tile_end || args.pairs == 0) return;
  int64_t tiles = 0;
  for (const PackedMatrix& w : args.w) {
    CHECK(w.n == 0 || w.format == some->format);  // the experts of a layer are stored alike
    tiles = std::max(tiles, w.tiles());
  }
  const auto width = static_cast<unsigned>(std::min(args.tile_end, tiles) - args.tile_begin);
  const dim3 block(kWarp, kTileWarps);
  const bool ordered = args.sums_fast != nullptr;
  ForFormat(some->format, [&]<WeightFormat kFormat>() {
    ForRows(0, ordered ? args.pairs / args.top_k : args.pairs, [&](int64_t first, unsigned count) {
      if (ordered) {
        ExpertSumsKernel<kFormat><<<dim3(width, count), block>>>(args, first);
      } else {
        ExpertGemmKernel<kFormat><<<dim3(width, count), block>>>(args, first);
      }
    });
  });
  CheckLaunch("expert_gemm/cuda");
}

}  // namespace

std::span<const KernelRow<GroupPairs>> GroupPairs::CudaRows() {
  static constexpr KernelRow<GroupPairs> kRows[] = {{"group_pairs/cuda", kCudaTarget, GroupPairsCuda}};
  return kRows;
}
std::span<const KernelRow<ExpertGemm>> ExpertGemm::CudaRows() {
  static constexpr KernelRow<ExpertGemm> kRows[] = {{"expert_gemm/cuda", kCudaTarget, ExpertGemmCuda}};
  return kRows;
}

}  // namespace trivet::kernels
