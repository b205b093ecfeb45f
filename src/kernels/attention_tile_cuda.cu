// SPDX-License-Identifier: Apache-2.0
// Which tile a block of a GPU has, and how tiles are launched.
#include "kernels/attention_tile.h"
#include "kernels/attention_tile_walk.cuh"

namespace trivet::kernels {
namespace {

// The first query head whose KV head is `kv` or later.
__device__ int FirstHead(const Attention::Args& args, int64_t kv) {
  int low = 0, high = static_cast<int>(args.q_heads);
  while (low < high) {
    const int middle = (low + high) / 2;
    if (args.q_to_kv[middle] < kv) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The first token whose item of KV head `kv` is `item` or later.
__device__ int64_t FirstToken(const Attention::Args& args, int64_t item, int64_t kv) {
  return item / args.cache.kv_heads + (kv < item % args.cache.kv_heads ? 1 : 0);
}

// All queries of KV head `kv`, but for their span.
__device__ TileQueries QueriesOf(const Attention::Args& args, int64_t kv) {
  TileQueries queries{};
  queries.kv = kv;
  queries.token = FirstToken(args, args.begin, kv);
  queries.head = FirstHead(args, kv);
  queries.group = FirstHead(args, kv + 1) - queries.head;
  queries.end = (FirstToken(args, args.end, kv) - queries.token) * queries.group;
  return queries;
}

// The queries of tile number `number`, where each KV head's queries fill tiles of their own; none behind the last. By
// one warp.
template <int kRows>
__device__ TileQueries TileOf(const Attention::Args& args, int64_t number) {
  for (int64_t base = 0; base < args.cache.kv_heads; base += kWarp) {
    const int lane = static_cast<int>(threadIdx.x);
    int64_t end = 0;  // of the tiles of this lane's KV head and those before it
    if (base + lane < args.cache.kv_heads) end = CeilDiv(QueriesOf(args, base + lane).end, kRows);
    const int64_t tiles = end;
    for (int step = 1; step < kWarp; step *= 2) {
      const int64_t other = __shfl_up_sync(kAllLanes, end, step);
      end += lane >= step ? other : 0;
    }
    if (const uint32_t behind = __ballot_sync(kAllLanes, number < end); behind != 0) {
      const int owner = __ffs(static_cast<int>(behind)) - 1;
      TileQueries queries = QueriesOf(args, base + owner);
      queries.first = (number - __shfl_sync(kAllLanes, end - tiles, owner)) * kRows;
      queries.end = std::min(queries.end, queries.first + kRows);
      return queries;
    }
    number -= __shfl_sync(kAllLanes, end, kWarp - 1);
  }
  return {};
}

// A tile a block; those that see most begin first. A tile over a border of spans is one tile for each of them.
template <template <int> class Panels, int kRows>
__global__ void __launch_bounds__(kTileThreads, 1) TileKernel(const Attention::Args args) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<TileShared<kRows>*>(memory);
  TileQueries& queries = shared.queries;
  BeginKernel();
  if (threadIdx.y == 0) {
    const TileQueries found = TileOf<kRows>(args, static_cast<int64_t>(gridDim.x) - 1 - blockIdx.x);
    if (threadIdx.x == 0) queries = found;
  }
  __syncthreads();
  while (queries.first < queries.end) {
    if (TileThread() == 0) queries.FindSpan(args);
    __syncthreads();
    if (queries.span.count >= kTileTokens) Tile<Panels, kRows>(args, shared).Run();
    __syncthreads();
    if (TileThread() == 0) queries.first += queries.count;
    __syncthreads();
  }
}

// Calls visit.operator()<kRows>() for the rows that a tile may have.
template <class Visit>
auto ForTile(int rows, const Visit& visit) {
  switch (rows) {
    case 32:
      return visit.template operator()<32>();
    case 64:
      return visit.template operator()<64>();
    case 128:
      return visit.template operator()<128>();
    default:
      return visit.template operator()<256>();
  }
}

// Whether a tile of so many rows has columns for all channels and finds room.
bool Fits(const KvPages& cache, int rows) {
  const auto room = static_cast<size_t>(DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  return rows * cache.ValueDim() <= kTileOutputs &&
         ForTile(rows, [&]<int kRows>() { return TileShared<kRows>::Bytes(cache.head_dim); }) <= room;
}

// The most rows of a tile; 0 where there is none. Values are loaded in fours.
int MostRows(const KvPages& cache) {
  int rows = cache.ValueDim() % 4 == 0 ? kMostTileRows : 0;
  while (rows > 0 && !Fits(cache, rows)) rows = rows > kLeastTileRows ? rows / 2 : 0;
  return rows;
}

// Cycles that a tile's multiply-adds take for a page, 128 at a time. Where heads have fewer channels than a tile
// columns, some warps have none; of values, a warp's 64 x 64 links need a scheduler for so many cycles, and alone a
// quarter more.
int64_t PageCycles(const KvPages& cache, int rows) {
  const int64_t warps = rows / 32 * CeilDiv(cache.ValueDim(), kBlockKeys);
  return rows * cache.head_dim / 2 + (warps > 4 ? CeilDiv(warps, 4) * 4096 : 5120);
}

// The rows with which the device is done first: tiles of fewer fill it where queries are few.
int BestRows(const Attention::Args& args) {
  const int64_t blocks = DeviceAttribute(cudaDevAttrMultiProcessorCount), queries = TokensOf(args) * args.q_heads;
  int best = 0;
  int64_t least = 0;
  for (int rows = MostRows(args.cache); rows >= kLeastTileRows; rows /= 2) {
    const int64_t time = CeilDiv(CeilDiv(queries, rows), blocks) * PageCycles(args.cache, rows);
    if (Fits(args.cache, rows) && (best == 0 || time < least)) best = rows, least = time;
  }
  return best;
}

template <template <int> class Panels, int kRows>
void LaunchTiles(const Attention::Args& args) {
  const size_t bytes = TileShared<kRows>::Bytes(args.cache.head_dim);
  cudaFuncSetAttribute(TileKernel<Panels, kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  // Every KV head's last tile may be one more.
  const int64_t tiles = TokensOf(args) * args.q_heads / kRows + args.cache.kv_heads;
  const dim3 grid(static_cast<unsigned>(tiles)), block(kWarp, kTileThreads / kWarp);
  StartKernel({grid, block, bytes}, TileKernel<Panels, kRows>, args);
}

}  // namespace

bool TilesServe(const KvPages& cache) { return MostRows(cache) > 0; }

void AttentionByTiles(const Attention::Args& args) {
  CHECK(TilesServe(args.cache));
  const int rows = BestRows(args);
  ForTile(rows, [&]<int kRows>() {
    args.cache.key_codes != nullptr ? LaunchTiles<CodePanels, kRows>(args) : LaunchTiles<FloatPanels, kRows>(args);
  });
  CheckLaunch("attention/cuda tiles");
}

}  // namespace trivet::kernels
