// SPDX-License-Identifier: Apache-2.0
// A row is drawn from by one block, or by a cluster of up to eight that share its columns: a team. What a team adds up
// are integers, so that neither its size nor the order of its threads changes a token.
//
// Passes over a row, which comes from memory once at most and stays in the cache (a row of 248,320 logits is 1 MB):
//   by temperature alone   1, of which a short run is read once more
//   top-k                  6: coarse bins, three times finer ones, the cut's token among its equals, the draw
//   top-p                  7: the mass, then as top-k
//   both                  12
// Of these the mass, the coarse bins of top-p and the draw compute a weight of every logit, some 35 instructions; the
// others compare.
#include <cooperative_groups.h>

#include "kernels/cuda_launch.cuh"
#include "kernels/draw.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMostBlocks = 8;
constexpr int64_t kColumnsOfBlock = 16384;  // shorter rows are one block's
constexpr int kBins = 2048;
constexpr int kBinsOfThread = kBins / kThreads;
static_assert(kMostBlocks * kWarps <= kThreads, "a thread for the run of every warp of a team");

// Of one block. Bins are 64-bit sums, whose halves are added to apart: shared memory adds words of 32 bits.
struct Shared {
  uint32_t low[kBins], high[kBins];
  uint64_t sums[kWarps];   // of the runs of the block's warps
  uint64_t warps[kWarps];  // of a scan
  uint64_t before, total;
  int32_t found;
};

// The blocks of a row.
struct Team {
  int blocks, block;  // their number, and which of them this one is

  // Waits for the threads of all blocks.
  __device__ void Sync() const {
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) return cooperative_groups::this_cluster().sync();
#endif
    __syncthreads();
  }
  // The same variable in another block's shared memory.
  template <class T>
  __device__ const T* Of(const T* own, [[maybe_unused]] int other) const {
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) return cooperative_groups::this_cluster().map_shared_rank(own, static_cast<unsigned>(other));
#endif
    return own;
  }
};

// A row and what gives weights to its logits. Every warp of the team has a run of its columns.
struct Row {
  const float* logits;
  int64_t n;
  float best, scale;
  uint32_t min_weight;
  Team team;

  __device__ int64_t RunBegin(int run) const { return n * run / (team.blocks * kWarps); }
  __device__ uint32_t WeightAt(float logit) const {
    const float x = (logit - best) * scale;
    if (x < -22.0F) return 0;  // WeightOf is 0 below -21.49
    const uint32_t weight = WeightOf(logit, best, scale);
    return weight < min_weight ? 0 : weight;
  }
  // Bins for a search, best first: by the distance to the best logit, in equal steps to where weights end. The last bin
  // has all that is left.
  __device__ int CoarseBin(float logit) const {
    const float at = (best - logit) * scale * (kBins / 22.0F);
    return at < kBins - 1 ? static_cast<int>(at) : kBins - 1;  // -infinity may give a NaN
  }
};

// Logits in the order of ArgmaxKey.
__device__ uint32_t OrderOf(float logit) { return static_cast<uint32_t>(ArgmaxKey(logit, 0) >> 32); }

__device__ int Lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ int Warp() { return static_cast<int>(threadIdx.x) / kWarp; }

// Calls visit(logit, column) for the columns of this warp's run.
template <class Visit>
__device__ void VisitRun(const Row& row, const Visit& visit) {
  const int run = row.team.block * kWarps + Warp();
  const int64_t end = row.RunBegin(run + 1);
#pragma unroll 4
  for (int64_t c = row.RunBegin(run) + Lane(); c < end; c += kWarp) visit(row.logits[c], c);
}

// The sum of this thread's value and those of all threads of the block before it. Ends with the block in step.
__device__ uint64_t ScanBlock(uint64_t value, Shared& shared) {
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, value, distance);
    if (Lane() >= distance) value += other;
  }
  if (Lane() == kWarp - 1) shared.warps[Warp()] = value;
  __syncthreads();
  for (int warp = 0; warp < Warp(); ++warp) value += shared.warps[warp];
  __syncthreads();
  return value;
}

// Where a sum of values in a row passes a target.
struct Place {
  int32_t at;       // the first value with which the sum is above it; -1: it stays below
  uint64_t before;  // the sum of those before that one
  uint64_t total;
};

// kEach values of each thread, one behind the other; target(total) is the same in all threads of the block.
template <int kEach, class Target>
__device__ Place Find(const uint64_t (&values)[kEach], const Target& target, Shared& shared) {
  uint64_t sum = 0;
  for (const uint64_t value : values) sum += value;
  if (threadIdx.x == 0) shared.found = -1;
  const uint64_t end = ScanBlock(sum, shared);
  if (threadIdx.x == kThreads - 1) shared.total = end;
  __syncthreads();
  const uint64_t total = shared.total, wanted = target(total);
  uint64_t before = end - sum;
  if (before <= wanted && wanted < end) {  // of one thread
    int j = 0;
    while (before + values[j] <= wanted) before += values[j++];
    shared.found = static_cast<int32_t>(threadIdx.x) * kEach + j;
    shared.before = before;
  }
  __syncthreads();
  const Place place{shared.found, shared.before, total};
  __syncthreads();  // before they change again
  return place;
}

// Adds up value(logit, column) over every run of the team, and lets all blocks see it.
template <class Value>
__device__ void SumRuns(const Row& row, const Value& value, Shared& shared) {
  uint64_t sum = 0;
  VisitRun(row, [&](float logit, int64_t c) { sum += value(logit, c); });
  for (int distance = kWarp / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (Lane() == 0) shared.sums[Warp()] = sum;
  row.team.Sync();
}

__device__ uint64_t SumOfRun(const Row& row, int run, const Shared& shared) {
  return *row.team.Of(&shared.sums[run % kWarps], run / kWarps);
}

// The first column with which the sum of value(logit, column), in ascending order of columns, is above target(total).
template <class Value, class Target>
__device__ int64_t FindColumn(const Row& row, const Value& value, const Target& target, Shared& shared) {
  SumRuns(row, value, shared);
  const int run = static_cast<int>(threadIdx.x);
  const uint64_t of_run[1] = {run < row.team.blocks * kWarps ? SumOfRun(row, run, shared) : 0};
  uint64_t left = 0;
  const Place place = Find(
      of_run, [&](uint64_t total) { return left = target(total); }, shared);
  row.team.Sync();  // before the sums change again
  left -= place.before;
  // The run, by all threads of every block alike.
  const int64_t end = row.RunBegin(place.at + 1);
  for (int64_t begin = row.RunBegin(place.at); begin < end; begin += kThreads) {
    const int64_t c = begin + threadIdx.x;
    const uint64_t own[1] = {c < end ? value(row.logits[c], c) : 0};
    const Place found = Find(
        own, [&](uint64_t) { return left; }, shared);
    if (found.at >= 0) return begin + found.at;
    left -= found.total;
  }
  return -1;  // never: the run's sum is above what was left
}

// The sum of value(logit, column) over the row.
template <class Value>
__device__ uint64_t SumOf(const Row& row, const Value& value, Shared& shared) {
  SumRuns(row, value, shared);
  uint64_t total = 0;
  for (int run = 0; run < row.team.blocks * kWarps; ++run) total += SumOfRun(row, run, shared);
  row.team.Sync();  // before the sums change again
  return total;
}

// Adds value(logit) of the logits of which bin(logit) is not -1 to that bin, and finds the first bin with which the sum
// is above `wanted`.
template <class Bin, class Value>
__device__ Place FindBin(const Row& row, const Bin& bin, const Value& value, uint64_t wanted, Shared& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) shared.low[i] = shared.high[i] = 0;
  __syncthreads();
  VisitRun(row, [&](float logit, int64_t) {
    const int at = bin(logit);
    const uint32_t added = at < 0 ? 0 : value(logit);
    if (added == 0) return;
    // Whoever makes the lower half overflow carries.
    const uint32_t before = atomicAdd(&shared.low[at], added);
    if (before + added < before) atomicAdd(&shared.high[at], 1U);
  });
  row.team.Sync();
  uint64_t sums[kBinsOfThread] = {};
  for (int j = 0; j < kBinsOfThread; ++j) {
    const int at = static_cast<int>(threadIdx.x) * kBinsOfThread + j;
    for (int block = 0; block < row.team.blocks; ++block) {
      sums[j] += uint64_t{*row.team.Of(&shared.high[at], block)} << 32 | *row.team.Of(&shared.low[at], block);
    }
  }
  const Place place = Find(
      sums, [&](uint64_t) { return wanted; }, shared);
  row.team.Sync();  // before the bins change again
  return place;
}

// The key of the last of the fewest tokens, best first, whose value(logit) add up to `wanted`, from 1 to what all have.
template <class Value>
__device__ uint64_t FindCut(const Row& row, const Value& value, uint64_t wanted, Shared& shared) {
  // The last bin, which may have nearly all columns, is the one when no other is.
  const Place coarse = FindBin(
      row,
      [&](float logit) {
        const int at = row.CoarseBin(logit);
        return at < kBins - 1 ? at : -1;
      },
      value, wanted - 1, shared);
  const int chosen = coarse.at < 0 ? kBins - 1 : coarse.at;
  wanted -= coarse.at < 0 ? coarse.total : coarse.before;
  // In it, by the bits of the logits' order: 11, 11 and 10.
  uint32_t least = 0, most = UINT32_MAX;
  for (const int shift : {21, 10, 0}) {
    const Place fine = FindBin(
        row,
        [&](float logit) {
          if (row.CoarseBin(logit) != chosen) return -1;
          const uint32_t order = OrderOf(logit);
          return order < least || order > most ? -1 : static_cast<int>((most - order) >> shift);
        },
        value, wanted - 1, shared);
    wanted -= fine.before;
    most -= static_cast<uint32_t>(fine.at) << shift;
    least = most - ((1U << shift) - 1);
  }
  // All that are left have one logit and one value.
  const float logit = ArgmaxLogit(uint64_t{most} << 32);
  const uint64_t each = value(logit), behind = (wanted + each - 1) / each - 1;
  const int64_t column = FindColumn(
      row, [&](float other, int64_t) { return OrderOf(other) == most ? uint64_t{1} : uint64_t{0}; },
      [&](uint64_t) { return behind; }, shared);
  return ArgmaxKey(logit, column);
}

// The key of the token that the rule draws.
__device__ uint64_t DrawFrom(const Row& row, const DrawRule& rule, Shared& shared) {
  uint64_t cut = 0;
  if (rule.top_k > 0 && rule.top_k < row.n) {
    cut = FindCut(
        row, [](float) { return 1U; }, static_cast<uint64_t>(rule.top_k), shared);
  }
  const auto kept = [&](float logit, int64_t column) -> uint64_t {
    return ArgmaxKey(logit, column) < cut ? 0 : row.WeightAt(logit);
  };
  if (rule.top_p < kDrawOne) {
    const uint64_t wanted = FractionAbove(SumOf(row, kept, shared), rule.top_p);
    cut = FindCut(
        row, [&](float logit) { return row.WeightAt(logit); }, wanted, shared);
  }
  const int64_t column = FindColumn(
      row, kept, [&](uint64_t total) { return FractionOf(total, rule.uniform); }, shared);
  return ArgmaxKey(row.logits[column], column);
}

__global__ void __launch_bounds__(kThreads) DrawKernel(const Draw::Args args) {
  BeginKernel();
  __shared__ Shared shared;
  const Team team{static_cast<int>(gridDim.z), static_cast<int>(blockIdx.z)};
  const int64_t i = args.begin + blockIdx.x, number = args.rows[i];
  if (number < 0) return;
  const DrawRule rule = args.rules[i];
  if (rule.TakesBest()) return;
  uint64_t* keys = args.keys + i * args.parts;
  uint64_t key = 0;
  for (int64_t part = 0; part < args.parts; ++part) key = keys[part] > key ? keys[part] : key;
  team.Sync();  // all have read it
  if (CanDraw(key)) {
    const Row row{args.logits + number * args.stride, args.n, ArgmaxLogit(key), rule.scale, rule.min_weight, team};
    key = DrawFrom(row, rule, shared);
  }
  if (team.block != 0) return;
  for (int64_t part = threadIdx.x; part < args.parts; part += kThreads) keys[part] = part == 0 ? key : 0;
}

void DrawCuda(const Draw::Args& args) {
  if (args.begin >= args.end) return;
  const int64_t most = IsHopperOrLater() ? kMostBlocks : 1;
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(args.n, kColumnsOfBlock), 1, most));
  StartKernel({dim3(static_cast<unsigned>(args.end - args.begin), 1, blocks), kThreads, 0, blocks}, DrawKernel, args);
  CheckLaunch("draw/cuda");
}

}  // namespace

std::span<const KernelRow<Draw>> Draw::CudaRows() {
  static constexpr KernelRow<Draw> kRows[] = {{"draw/cuda", kCudaTarget, DrawCuda}};
  return kRows;
}

}  // namespace trivet::kernels
