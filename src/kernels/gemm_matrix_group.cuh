// SPDX-License-Identifier: Apache-2.0
// The product of many rows with BF16 weights by the matrix units of Hopper (wgmma): eight warps multiply a tile each,
// four together, with rows that the units read from shared memory, where four more warps put them, some columns ahead.
// A unit adds what mma.sync adds, in the same order of instructions, so the bits are those of gemm_matrix_parts.cuh;
// cuda_parity_test compares them.
#pragma once

#include "kernels/cuda_barrier.cuh"
#include "kernels/gemm_matrix_panel.cuh"

namespace trivet::kernels {

/// Columns of x that a stage of shared memory has: two blocks.
inline constexpr int kGroupColumns = 64;

/// Warps that prepare rows, before the kMatrixPanelWarps that multiply.
inline constexpr int kGroupProducers = 4;

/// Shared memory of a block for 8 * kEights rows.
template <int kEights>
struct GroupPanelShared {
  static constexpr int kRows = 8 * kEights;
  static constexpr int kStages = 3;

  /// What one instruction reads of 16 columns: two times eight columns of eight rows after eight, 128 bytes together.
  using Operand = uint32_t[2][kEights][8][4];

  // [stage][block][half of its columns][part]
  __align__(128) Operand x[kStages][2][2][kParts];
  int64_t totals[kRows][kMatrixPanelWarps * kWarp];
  uint64_t filled[kStages], emptied[kStages];
  const float* rows[kRows];
  float scales[kRows];
  int64_t outputs[kRows];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Where the units find 16 columns of rows in shared memory.
template <int kEights>
__device__ inline uint64_t OperandPlace(const typename GroupPanelShared<kEights>::Operand& operand) {
  constexpr uint64_t kEightColumns = kEights * 128 / 16, kEightRows = 128 / 16;  // steps, in 16 bytes
  const auto at = static_cast<uint64_t>(__cvta_generic_to_shared(&operand)) / 16;
  return at | kEightColumns << 16 | kEightRows << 32;
}

/// acc += 16 columns of four warps' 16 outputs times those of 8 * kEights rows.
template <int kEights>
__device__ inline void MultiplyGroup(float (&acc)[kEights * 4], const uint32_t (&w)[4], uint64_t x) {
  static_assert(kEights == 4 || kEights == 8);
  if constexpr (kEights == 4) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]),
          "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]),
          "+f"(acc[14]), "+f"(acc[15])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]),
          "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]),
          "+f"(acc[14]), "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]),
          "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]),
          "+f"(acc[28]), "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x));
  }
}

/// Weights of two blocks of 32 columns as a lane holds them for the units: [block][half of its columns][first or second
/// 16 outputs]. These are rows 2g and 2g + 1, and 16 more, so that what is loaded already stands in the order of an
/// instruction's registers: pairs 4t + 2 half and the next.
struct GroupWeights {
  uint32_t w[2][2][2][4];

  /// Loads the two blocks that begin at `column` of a tile of `end` columns; columns from `end` on are zeros.
  __device__ void Load(const std::byte* tile, int column, int end) {
    const std::byte* from = tile + (static_cast<uint32_t>(column) * 64 + LaneColumn() * 512 + LaneRow() * 8);
    const bool whole = column + kGroupColumns <= end;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t* to = w[block][pair / 2][i] + pair % 2 * 2;
          const bool inside =
              whole || column + block * kMatrixColumns + static_cast<int>(LaneColumn()) * 8 + pair * 2 < end;
          const std::byte* at = from + block * (kMatrixColumns * 64) + pair * 128 + i * 64;
          if (inside) {
            asm volatile("ld.global.nc.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(at));
          } else {
            to[0] = to[1] = 0;
          }
        }
      }
    }
  }
};

/// A stage of shared memory and the parity of its present use.
template <int kStages>
struct GroupStage {
  int number = 0;
  uint32_t parity = 0;

  __device__ void Next() {
    if (++number < kStages) return;
    number = 0;
    parity ^= 1;
  }
};

/// Fills stages; by the threads of kGroupProducers warps.
template <int kEights>
struct GroupProducer {
  using Shared = GroupPanelShared<kEights>;
  static constexpr int kThreads = kGroupProducers * kWarp;
  static constexpr int kLoads = Shared::kRows * kGroupColumns / 8 / kThreads;  // eights of columns
  static_assert(Shared::kRows * kGroupColumns / 8 % kThreads == 0);

  Shared& shared;
  int end;
  const float* from[kLoads];
  float next[kLoads][8];

  __device__ GroupProducer(const PanelProduct& product, Shared& s) : shared(s), end(static_cast<int>(product.w.k)) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) from[i] = shared.rows[Row(i)];
  }

  __device__ static int Thread() { return static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x); }
  // The row, the block and the eight of its columns that load number i is of. A warp has four eights of eight rows,
  // which stand together in an operand.
  __device__ static int Row(int i) { return (Thread() + i * kThreads) / 4 % Shared::kRows; }
  __device__ static int Block(int i) { return (Thread() + i * kThreads) / (4 * Shared::kRows); }
  __device__ static int Eight() { return Thread() % 4; }

  __device__ void Load(int column) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      ReadActivations(from[i], column + Block(i) * kMatrixColumns + Eight() * 8, end, next[i]);
    }
  }
  __device__ void Store(int stage) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      uint32_t parts[kParts][4];
      PartsOf(next[i], parts);
      const int row = Row(i);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          shared.x[stage][Block(i)][p / 2][part][p % 2][row / 8][row % 8][Eight()] = parts[part][p];
        }
      }
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __device__ void Run() {
    GroupStage<Shared::kStages> stage;
    Load(0);
#pragma unroll 1
    for (int column = 0; column < end; column += kGroupColumns, stage.Next()) {
      AwaitPhase(shared.emptied[stage.number], stage.parity ^ 1);
      Store(stage.number);
      ArriveAt(shared.filled[stage.number]);
      Load(column + kGroupColumns);
    }
  }
};

/// Multiplies; by the threads of the warps behind them.
template <int kEights>
struct GroupConsumer {
  using Shared = GroupPanelShared<kEights>;

  const PanelProduct& product;
  Shared& shared;
  GroupStage<Shared::kStages> stage;
  int64_t number;  // of the tile
  const std::byte* tile;
  int end, leaf;  // columns, and blocks of a leaf
  int left;       // blocks of the leaf that are still to come
  float sums[2][kEights * 4] = {};
  uint32_t flags = kInRange;

  __device__ GroupConsumer(const PanelProduct& p, Shared& s)
      : product(p),
        shared(s),
        number(p.tile + threadIdx.y - kGroupProducers),
        end(static_cast<int>(p.w.k)),
        leaf(static_cast<int>(p.w.leaf) / kMatrixColumns),
        left(leaf) {
    tile = product.w.data + (number < product.tile_end ? number : product.tile_end - 1) * product.tile_bytes +
           TileBytes<WeightFormat::kBF16>(product.w.phase);
  }

  __device__ static int Thread() {
    return (static_cast<int>(threadIdx.y) - kGroupProducers) * kWarp + static_cast<int>(threadIdx.x);
  }
  // The row of the tile and the row of x of value v: four by four after the first 16 outputs' and the second's.
  __device__ static int OutputOf(int v) { return static_cast<int>(LaneRow()) * 2 + v % 8 / 4 * 16 + v % 4 / 2; }
  __device__ static int RowOf(int v) { return v / 8 * 8 + static_cast<int>(LaneColumn()) * 2 + v % 2; }

  // Lets the units multiply a block of the stage.
  __device__ void Multiply(const uint32_t (&w)[2][2][4], int block) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint64_t x = OperandPlace<kEights>(shared.x[stage.number][block][half][part]);
#pragma unroll
        for (int i = 0; i < 2; ++i) MultiplyGroup<kEights>(sums[i], w[half][i], x);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  __device__ static void AwaitUnits() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

  // Multiplies the columns from `column` on, while the next weights are under way.
  __device__ void Step(int column, const GroupWeights& weights, GroupWeights* coming) {
    AwaitPhase(shared.filled[stage.number], stage.parity);
    const bool two = column + kMatrixColumns < end, last = column + kGroupColumns >= end;
    Multiply(weights.w[0], 0);
    if (two && left == 1) {
      AwaitUnits();
      EndLeaf();
      left += leaf;
    }
    if (two) Multiply(weights.w[1], 1);
    left -= two ? 2 : 1;
    if (!last) coming->Load(tile, column + kGroupColumns, end);
    AwaitUnits();
    if (threadIdx.x == 0) ArriveAt(shared.emptied[stage.number]);
    stage.Next();
    if (left == 0 || last) {
      EndLeaf();
      left = leaf;
    }
  }
  __device__ void EndLeaf() {
    EndPanelLeaf<Shared::kRows>(
        product, shared, Thread(), [](int v) { return RowOf(v); },
        [this](int v) -> float& { return sums[v % 8 / 4][v / 8 * 4 + v % 4]; }, &flags);
  }
  __device__ void Run() {
#pragma unroll 1
    for (int v = 0; v < Shared::kRows; ++v) shared.totals[v][Thread()] = 0;
    GroupWeights weights[2];
    weights[0].Load(tile, 0, end);
#pragma unroll 1
    for (int column = 0; column < end; column += 2 * kGroupColumns) {
      Step(column, weights[0], &weights[1]);
      if (column + kGroupColumns < end) Step(column + kGroupColumns, weights[1], &weights[0]);
    }
  }
  __device__ void Write(const TileOutput& out) const { WritePanel<GroupConsumer>(product, shared, number, flags, out); }
};

#endif

/// Multiplies; every thread of a block of (32, kGroupProducers + kMatrixPanelWarps) calls it, with rows, scales and
/// outputs in shared memory. Leaves are whole blocks of 32 columns. Only where the device has these instructions.
template <int kEights>
__device__ void MultiplyGroupPanel([[maybe_unused]] const PanelProduct& product,
                                   [[maybe_unused]] GroupPanelShared<kEights>& shared,
                                   [[maybe_unused]] const TileOutput& out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    for (uint64_t& barrier : shared.filled) InitBarrier(barrier, GroupProducer<kEights>::kThreads);
    for (uint64_t& barrier : shared.emptied) InitBarrier(barrier, kMatrixPanelWarps);
  }
  __syncthreads();
  // Registers go to those who multiply: 4 * 88 + 8 * 208 are the 12 * 168 of the launch.
  if (threadIdx.y < kGroupProducers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
    GroupProducer<kEights>(product, shared).Run();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    GroupConsumer<kEights> consumer(product, shared);
    consumer.Run();
    consumer.Write(out);
  }
#else
  __trap();
#endif
}

}  // namespace trivet::kernels
