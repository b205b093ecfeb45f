// SPDX-License-Identifier: Apache-2.0
// A sum over ranks, the end of a residual branch and the norm in front of the next as one kernel: the row that a decode
// step sums is short, and what it waits for is mostly kernels that begin and end.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "comm/peer_call.cuh"
#include "comm/peer_cuda.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/fixed_point.h"
#include "kernels/norm_lanes.cuh"

namespace trivet::comm::cuda {
namespace {

using kernels::kLanes;

constexpr int kMostThreads = 1024;
constexpr int kHeld = 2;                                              // words of a thread
constexpr int kBlockLanes = static_cast<int>(kLanes / kNormBlocks);   // of the sum of squares, in a block
constexpr int kStride = static_cast<int>(kNormLongest / kLanes) + 4;  // between the squares of two lanes
static_assert(kHeld * kMostThreads * kNormBlocks >= kNormLongest);

__device__ float FloatOf(int64_t sum) { return kernels::FromGrid(sum); }
__device__ float FloatOf(float sum) { return sum; }

// A word of what this rank sends: its sums as they stand, or rounded to float32.
template <class T>
__device__ uint64_t WordOf(const int64_t* sums, int64_t word) {
  using Word = Values<T, uint64_t>;
  Word parts(0);
#pragma unroll
  for (int v = 0; v < Word::kCount; ++v) {
    const int64_t sum = sums[word * Word::kCount + v];
    if constexpr (std::is_same_v<T, float>) {
      parts.value[v] = kernels::FromGrid(sum);
    } else {
      parts.value[v] = sum;
    }
  }
  return parts.unit;
}

// A row's words as the blocks of a cluster share them out: every block has two lanes of the sum of squares, so that a
// lane's chain of additions never leaves a block.
template <class T>
struct RowWords {
  static constexpr int kValues = Values<T, uint64_t>::kCount;  // of a word
  static constexpr int kBlockWords = kBlockLanes / kValues;    // of a block among those of all lanes
  static constexpr int kLineWords = static_cast<int>(kLanes) / kValues;

  __device__ static int Word(int item, int block) {
    return item / kBlockWords * kLineWords + block * kBlockWords + item % kBlockWords;
  }
  static int64_t Items(int64_t n) { return kernels::CeilDiv(n / kValues, kLineWords) * kBlockWords; }
};

// Sends the words of a row that stand side by side in this block's part.
template <class T>
__device__ void PushRow(const Call& call, const int64_t* row, int64_t first, int64_t words) {
  const Share part = ShareOf(words, kNormBlocks, blockIdx.z);
  for (int64_t i = part.begin + threadIdx.x; i < part.end; i += blockDim.x) {
    PushPackets(call, first + i, WordOf<T>(row, i));
  }
}

// The sum of this block's two lanes goes to all blocks of the cluster; every thread gets the total.
__device__ float ClusterSquares(const float* squares, float* lanes, int n) {
  float total = 0;
#if __CUDA_ARCH__ >= 900
  const auto cluster = cooperative_groups::this_cluster();
  const int thread = static_cast<int>(threadIdx.x), lane = static_cast<int>(blockIdx.z) * kBlockLanes + thread;
  float sum = 0;
  if (thread < kBlockLanes && lane < n) {
    sum = kernels::LaneSum(squares + thread * kStride, kernels::CeilDiv(n - lane, kLanes));
  }
  cluster.barrier_wait();  // all blocks have begun, so that their memory is there
  if (thread < kBlockLanes) {
    for (unsigned block = 0; block < kNormBlocks; ++block) cluster.map_shared_rank(lanes, block)[lane] = sum;
  }
  cluster.sync();  // from here on every block reads its own memory alone, and may leave before others
  float all[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) all[i] = lanes[i];
  total = kernels::HalvingSum(all, kLanes);
#endif
  return total;
}

// Blocks (row, 0, part of the row), for parts that travel as T. No thread leaves before the cluster has met: others
// write to its block's memory.
template <class T>
__global__ void __launch_bounds__(kMostThreads) SumAddNormKernel(const Peers peers, const kernels::AddNorm::Args args) {
  using Words = RowWords<T>;
  using Word = Values<T, uint64_t>;
  __shared__ __align__(16) float squares[kBlockLanes * kStride];
  __shared__ float lanes[kLanes];
#if __CUDA_ARCH__ >= 900
  cooperative_groups::this_cluster().barrier_arrive();
#endif
  const int block = static_cast<int>(blockIdx.z), n = static_cast<int>(args.n), words = n / Words::kValues;
  const auto word_of = [&](int held) {
    return Words::Word(static_cast<int>(threadIdx.x) + held * static_cast<int>(blockDim.x), block);
  };
  float weight[kHeld][Words::kValues], x[kHeld][Words::kValues];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int word = word_of(j);
    for (int v = 0; v < Words::kValues; ++v)
      weight[j][v] = word < words ? args.weight[word * Words::kValues + v] : 0.0F;
  }
  kernels::AwaitPrevious();

  const Call call(peers, blockIdx.x * kNormBlocks + blockIdx.z, gridDim.x * kNormBlocks);
  const int64_t first = int64_t{blockIdx.x} * words, at = int64_t{blockIdx.x} * n;
  int64_t* row = args.sums_fixed + at;
  bool come = *call.given_up() == 0;
  if (come) PushRow<T>(call, row, first, words);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int word = word_of(j);
    if (word >= words) continue;
    Word sum(0);
    come = come && SumPackets<T>(call, first + word, WordOf<T>(row, word), &sum);
    for (int v = 0; v < Words::kValues; ++v) {
      const int i = word * Words::kValues + v;
      x[j][v] = args.x[at + i] + FloatOf(sum.value[v]);
      squares[(i % static_cast<int>(kLanes) - block * kBlockLanes) * kStride + i / static_cast<int>(kLanes)] =
          x[j][v] * x[j][v];
    }
  }
  come = __syncthreads_and(come) != 0;
  kernels::LetNextBegin();  // no other rank is waited for any more
  const float inverse = 1.0F / std::sqrt(ClusterSquares(squares, lanes, n) / static_cast<float>(n) + args.eps);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int word = word_of(j);
    if (word >= words || !come) continue;
    for (int v = 0; v < Words::kValues; ++v) {
      const int64_t i = at + word * Words::kValues + v;
      args.sums_fixed[i] = 0;  // all blocks have sent what they read of it
      args.x[i] = x[j][v];
      args.y[i] = x[j][v] * inverse * (args.offset + weight[j][v]);
    }
  }
  call.End();
}

template <class T>
void Start(const Peers& peers, const kernels::AddNorm::Args& args) {
  const int64_t items = RowWords<T>::Items(args.n);
  const int64_t threads = std::min<int64_t>(kernels::CeilDiv(items, kernels::kWarp) * kernels::kWarp, kMostThreads);
  kernels::StartKernel(
      {dim3(static_cast<unsigned>(args.end), 1, kNormBlocks), static_cast<unsigned>(threads), 0, kNormBlocks},
      SumAddNormKernel<T>, peers, args);
  kernels::CheckLaunch("all-reduce with norm");
}

}  // namespace

void SumAddNorm(const Peers& peers, const kernels::AddNorm::Args& args) {
  if (args.sums_fast == nullptr) return Start<int64_t>(peers, args);
  Start<float>(peers, args);
}

}  // namespace trivet::comm::cuda
