// SPDX-License-Identifier: Apache-2.0
// The product of many rows by the matrix units of Hopper (wgmma): eight warps multiply a tile each, four together, with
// rows that the units read from shared memory, where four more warps put them, some columns ahead. A unit adds what
// mma.sync adds, in the same order of instructions, so the bits are those of gemm_matrix_parts.cuh and
// gemm_matrix_limbs.cuh; cuda_parity_test compares them. Here stands what all formats share;
// gemm_matrix_group_parts.cuh and gemm_matrix_group_limbs.cuh multiply.
#pragma once

#include "kernels/cuda_barrier.cuh"
#include "kernels/gemm_matrix_panel.cuh"

namespace trivet::kernels {

/// Columns of x that a stage of shared memory has: two blocks.
inline constexpr int kGroupColumns = 64;

/// Warps that prepare rows, before the kMatrixPanelWarps that multiply.
inline constexpr int kGroupProducers = 4;

/// Matrices that activations become: BF16 parts, or upper and lower limbs.
template <WeightFormat kFormat>
inline constexpr int kGroupInputs = kFormat == WeightFormat::kBF16 ? kParts : 2;

/// Shared memory of a block for 8 * kEights rows.
template <WeightFormat kFormat, int kEights>
struct GroupPanelShared {
  static constexpr int kRows = 8 * kEights;
  static constexpr int kStages = 3;

  /// What one instruction reads of 16 columns: two times eight columns of eight rows after eight, 128 bytes together.
  using Operand = uint32_t[2][kEights][8][4];

  // [stage][block][half of its columns][part or limb]
  __align__(128) Operand x[kStages][2][2][kGroupInputs<kFormat>];
  float limb_scales[kStages][2][kRows];  // [stage][block], where there are limbs
  int64_t totals[kRows][kMatrixPanelWarps * kWarp];
  uint64_t filled[kStages], emptied[kStages];
  const float* rows[kRows];
  float scales[kRows];
  int64_t outputs[kRows];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Where the units find 16 columns of 8 * kEights rows in shared memory.
template <int kEights>
__device__ inline uint64_t OperandPlace(const uint32_t (&operand)[2][kEights][8][4]) {
  constexpr uint64_t kEightColumns = kEights * 128 / 16, kEightRows = 128 / 16;  // steps, in 16 bytes
  const auto at = static_cast<uint64_t>(__cvta_generic_to_shared(&operand)) / 16;
  return at | kEightColumns << 16 | kEightRows << 32;
}

/// acc += 16 columns of four warps' 16 outputs times those of 32 or 64 rows that stand at x, both in BF16. Under way
/// until AwaitGroup.
__device__ inline void MultiplyParts(float (&acc)[16], const uint32_t (&w)[4], uint64_t x) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x));
}
__device__ inline void MultiplyParts(float (&acc)[32], const uint32_t (&w)[4], uint64_t x) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]), "+f"(acc[21]),
        "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]), "+f"(acc[28]),
        "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x));
}

/// The same in F16; where kFirst says so, acc held nothing before.
template <bool kFirst>
__device__ inline void MultiplyLimbs(float (&acc)[16], const uint32_t (&w)[4], uint64_t x) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %21, 0; "
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, adds, 1, 1, 0; }"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x), "n"(kFirst ? 0 : 1));
}
template <bool kFirst>
__device__ inline void MultiplyLimbs(float (&acc)[32], const uint32_t (&w)[4], uint64_t x) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %37, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, adds, 1, 1, 0; }"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]),
        "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]),
        "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]), "+f"(acc[21]),
        "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]), "+f"(acc[28]),
        "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x), "n"(kFirst ? 0 : 1));
}

/// Before the first of some products, whose registers were written by other instructions.
__device__ inline void BeginGroup() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// After the last of them.
__device__ inline void EndGroup() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits for all products that are under way.
__device__ inline void AwaitGroup() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
/// Behind AwaitGroup: nobody reads these sums before it.
template <int kSums>
__device__ inline void HaveSums(float (&acc)[kSums]) {
#pragma unroll
  for (float& sum : acc) asm volatile("" : "+f"(sum));
}

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

/// Fills stages; by the threads of kGroupProducers warps. A warp has four eights of columns of eight rows, which stand
/// together in an operand.
template <WeightFormat kFormat, int kEights>
struct GroupProducer {
  using Shared = GroupPanelShared<kFormat, kEights>;
  static constexpr int kThreads = kGroupProducers * kWarp;
  static constexpr int kLoads = Shared::kRows * kGroupColumns / 8 / kThreads;  // eights of columns
  static_assert(Shared::kRows * kGroupColumns / 8 % kThreads == 0 && Shared::kRows % 8 == 0);

  Shared& shared;
  int end;
  bool aligned = true;  // all rows, to 16 bytes
  const float* from[kLoads];
  float next[kLoads][8];

  __device__ GroupProducer(const PanelProduct& product, Shared& s) : shared(s), end(static_cast<int>(product.w.k)) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      from[i] = shared.rows[EightRows(i) * 8 + Row()];
      aligned &= reinterpret_cast<uintptr_t>(from[i]) % 16 == 0;
    }
    aligned = __all_sync(kAllLanes, aligned);
  }

  // What load number i is of: which eight rows, and of which block of columns.
  __device__ static int EightRows(int i) { return (static_cast<int>(threadIdx.y) + i * kGroupProducers) % kEights; }
  __device__ static int Block(int i) { return (static_cast<int>(threadIdx.y) + i * kGroupProducers) / kEights; }
  // This thread's row of the eight, and its eight of the block's columns: neighbours read a line together.
  __device__ static int Row() { return static_cast<int>(threadIdx.x) / 4; }
  __device__ static int Eight() { return static_cast<int>(threadIdx.x) % 4; }

  __device__ void Load(int column) {
    const bool whole = aligned && column + kGroupColumns <= end;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int first = column + Block(i) * kMatrixColumns + Eight() * 8;
      if (whole) {
        ReadAligned(from[i] + first, next[i]);
      } else {
        ReadActivations(from[i], first, end, next[i]);
      }
    }
  }
  __device__ void Store(int stage) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      constexpr int kInputs = kGroupInputs<kFormat>;
      uint32_t words[kInputs][4];
      if constexpr (kFormat == WeightFormat::kBF16) {
        PartsOf(next[i], words);
      } else {
        const uint32_t most = LimbsOf(next[i], words);
        if (Eight() == 0) shared.limb_scales[stage][Block(i)][EightRows(i) * 8 + Row()] = LimbScale<kFormat>(most);
      }
#pragma unroll
      for (int input = 0; input < kInputs; ++input) {
        if constexpr (kFormat == WeightFormat::kFp8) {  // a pair's words are one thread's
          auto& operand = shared.x[stage][Block(i)][Eight() / 2][input];
          *reinterpret_cast<uint4*>(operand[Eight() % 2][EightRows(i)][Row()]) =
              make_uint4(words[input][0], words[input][1], words[input][2], words[input][3]);
        } else {
#pragma unroll
          for (int p = 0; p < 4; ++p) {
            shared.x[stage][Block(i)][p / 2][input][p % 2][EightRows(i)][Row()][Eight()] = words[input][p];
          }
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

/// What a thread of the warps behind them has of a product, whatever the format. Sums are numbered sixteen outputs
/// after sixteen, of each as the units have them.
template <WeightFormat kFormat, int kEights>
struct GroupPart {
  using Shared = GroupPanelShared<kFormat, kEights>;
  static constexpr int kSums = kEights * 4;  // of 16 outputs

  const PanelProduct& product;
  Shared& shared;
  GroupStage<Shared::kStages> stage;
  int64_t number;  // of the tile
  const std::byte* tile;
  int end, leaf;  // columns, and blocks of a leaf
  int left;       // blocks of the leaf that are still to come
  uint32_t flags = kInRange;

  __device__ GroupPart(const PanelProduct& p, Shared& s)
      : product(p),
        shared(s),
        number(p.tile + threadIdx.y - kGroupProducers),
        tile(p.w.data + (number < p.tile_end ? number : p.tile_end - 1) * p.tile_bytes),
        end(static_cast<int>(p.w.k)),
        leaf(static_cast<int>(p.w.leaf) / kMatrixColumns),
        left(leaf) {
#pragma unroll 1
    for (int v = 0; v < Shared::kRows; ++v) shared.totals[v][Thread()] = 0;
  }

  __device__ static int Thread() {
    return (static_cast<int>(threadIdx.y) - kGroupProducers) * kWarp + static_cast<int>(threadIdx.x);
  }
  // The row of x of value v.
  __device__ static int RowOf(int v) { return v % kSums / 4 * 8 + static_cast<int>(LaneColumn()) * 2 + v % 2; }

  __device__ void AwaitStage() { AwaitPhase(shared.filled[stage.number], stage.parity); }
  __device__ void LeaveStage() {
    __syncwarp();  // one lane speaks for all, which have read their scales
    if (threadIdx.x == 0) ArriveAt(shared.emptied[stage.number]);
    stage.Next();
  }
  __device__ void EndLeaf(float (&sums)[2][kSums]) {
    EndPanelLeaf<2 * kSums>(
        product, shared, Thread(), [](int v) { return RowOf(v); },
        [&sums](int v) -> float& { return sums[v / kSums][v % kSums]; }, &flags);
    left = leaf;
  }
};

#endif

/// Multiplies with what stages hold and writes the product; by the threads of kMatrixPanelWarps warps:
///   GroupConsumer(product, shared)  then Run() and Write(out)
template <WeightFormat kFormat, int kEights>
struct GroupConsumer;

/// Multiplies; every thread of a block of (32, kGroupProducers + kMatrixPanelWarps) calls it, with rows, scales and
/// outputs in shared memory. Leaves are whole blocks of 32 columns. Only where the device has these instructions.
template <WeightFormat kFormat, int kEights>
__device__ void MultiplyGroupPanel([[maybe_unused]] const PanelProduct& product,
                                   [[maybe_unused]] GroupPanelShared<kFormat, kEights>& shared,
                                   [[maybe_unused]] const TileOutput& out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    for (uint64_t& barrier : shared.filled) InitBarrier(barrier, kGroupProducers * kWarp);
    for (uint64_t& barrier : shared.emptied) InitBarrier(barrier, kMatrixPanelWarps);
  }
  __syncthreads();
  // Registers go to those who multiply: 4 * 72 + 8 * 216 are the 12 * 168 of the launch.
  if (threadIdx.y < kGroupProducers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    GroupProducer<kFormat, kEights>(product, shared).Run();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    GroupConsumer<kFormat, kEights> consumer(product, shared);
    consumer.Run();
    consumer.Write(out);
  }
#else
  __trap();
#endif
}

}  // namespace trivet::kernels
