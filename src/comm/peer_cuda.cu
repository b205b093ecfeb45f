// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "comm/peer_call.cuh"
#include "comm/peer_cuda.h"
#include "kernels/cuda_launch.cuh"

namespace trivet::comm::cuda {
namespace {

constexpr int kThreads = 512;

template <class T>
__global__ void __launch_bounds__(kThreads) OneShotKernel(const Peers peers, const Message<T> message) {
  const Call call(peers);
  if (*call.given_up() != 0) return;
  const int64_t words = message.words();
  for (int64_t i = GlobalThread(); i < words; i += Threads()) {
    PushPackets(call, i, message.Load(i).unit);
  }
  for (int64_t i = GlobalThread(); i < words; i += Threads()) {
    Values<T, uint64_t> sum;
    if (!SumPackets<T>(call, i, message.Load(i).unit, &sum)) break;
    message.Store(i, sum);
  }
  call.End();
}

// What a block moves of `count` units, and of that in a chunk. Few enough for 32 bits, whose divisions are cheap.
__device__ Share Cut(uint32_t count, uint32_t parts, uint32_t i) {
  return {count * i / parts, count * (i + 1) / parts};
}

// Units of `rank`'s share that this block moves in a chunk, counted from the begin of the message.
__device__ Share BlockPart(const Shares& shares, int64_t rank, int64_t chunks, int64_t chunk) {
  const uint32_t first = shares.begin[rank];
  const Share block = Cut(shares.begin[rank + 1] - first, gridDim.x, blockIdx.x);
  const Share part =
      Cut(static_cast<uint32_t>(block.end - block.begin), static_cast<uint32_t>(chunks), static_cast<uint32_t>(chunk));
  return {first + block.begin + part.begin, first + block.begin + part.end};
}

// Who has no share still tells and waits for the others, as peer_rules.h promises about every call.
template <class T>
__global__ void __launch_bounds__(kThreads)
    TwoShotKernel(const Peers peers, uint4* values, const Shares shares, int64_t chunks) {
  const Call call(peers);
  if (*call.given_up() != 0) return;
  const int64_t ranks = peers.layout.ranks, me = peers.rank;
  const auto push_parts = [&](int64_t chunk) {
    for (int64_t step = 1; step < ranks; ++step) {
      const int64_t to = (me + step) % ranks, first = shares.begin[to];
      const Share part = BlockPart(shares, to, chunks, chunk);
      auto* there = At<uint4>(peers, to, peers.layout.Part(call.half, me));
#pragma unroll 4
      for (int64_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) there[i - first] = values[i];
    }
    call.SignalAll(kBegun, chunk);
  };
  const auto push_totals = [&](int64_t chunk) {
    const Share own = BlockPart(shares, me, chunks, chunk);
    const int64_t first = shares.begin[me];
#pragma unroll 2
    for (int64_t i = own.begin + threadIdx.x; i < own.end; i += kThreads) {
      Values<T, uint4> sum;
      for (int64_t from = 0; from < ranks; ++from) {
        const Values<T, uint4> term(from == me ? values[i]
                                               : At<uint4>(peers, me, peers.layout.Part(call.half, from))[i - first]);
        if (from == 0) {
          sum = term;
        } else {
          sum.Add(term);
        }
      }
      values[i] = sum.unit;
      for (int64_t step = 1; step < ranks; ++step) {
        At<uint4>(peers, (me + step) % ranks, peers.layout.Total(call.half))[i] = sum.unit;
      }
    }
    call.SignalAll(kDone, chunk);
  };
  const auto take_totals = [&](int64_t chunk) {
    const uint4* total = At<uint4>(peers, me, peers.layout.Total(call.half));
    for (int64_t step = 1; step < ranks; ++step) {
      const Share part = BlockPart(shares, (me + step) % ranks, chunks, chunk);
#pragma unroll 4
      for (int64_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) values[i] = total[i];
    }
  };
  push_parts(0);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk + 1 < chunks) push_parts(chunk + 1);
    if (!call.AwaitAll(kBegun, chunk)) return;
    push_totals(chunk);
    if (chunk == 0) continue;
    if (!call.AwaitAll(kDone, chunk - 1)) return;
    take_totals(chunk - 1);
  }
  if (!call.AwaitAll(kDone, chunks - 1)) return;
  take_totals(chunks - 1);
  call.End();
}

__global__ void __launch_bounds__(kThreads) GatherKernel(const Peers peers, const Columns columns) {
  const Call call(peers);
  if (*call.given_up() != 0) return;
  // Only rank 0 gets anything, yet all wait for all: that is what peer_rules.h promises about a call of any kind.
  call.SignalAll(kBegun);
  if (!call.AwaitAll(kBegun)) return;
  auto* matrix = At<float>(peers, 0, peers.layout.Matrix());
  const Share part = ShareOf(columns.columns, gridDim.x, blockIdx.x);
  for (int64_t row = 0; row < columns.rows; ++row) {
    const float* from = columns.from + row * columns.stride;
    float* to = matrix + row * columns.full_columns + columns.begin;
#pragma unroll 4
    for (int64_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) to[i] = from[i];
  }
  __syncthreads();
  if (peers.rank != 0 && threadIdx.x == 0) call.Signal(kDone, 0);
  if (peers.rank == 0 && !call.AwaitAll(kDone)) return;
  call.End();
}

__global__ void PingPongKernel(const Peers peers, int64_t peer, uint32_t first, uint32_t rounds) {
  const Call call(peers);
  auto* there = At<uint32_t>(peers, peer, PeerLayout::Ping(peers.rank));
  const auto* here = At<uint32_t>(peers, peers.rank, PeerLayout::Ping(peer));
  for (uint32_t i = first; i < first + rounds; ++i) {
    const auto come = [&] { return LoadAcquire(here) == i; };
    if (peers.rank > peer && !Await(call, peer, come)) return;
    StoreRelease(there, i);
    if (peers.rank < peer && !Await(call, peer, come)) return;
  }
}

__global__ void __launch_bounds__(kThreads) CopyKernel(uint4* to, const uint4* from, int64_t units) {
#pragma unroll 4
  for (int64_t i = GlobalThread(); i < units; i += Threads()) to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads) CopyToAllKernel(const Peers peers, int64_t at, int64_t units) {
  const auto* from = At<uint4>(peers, peers.rank, at);
  for (int64_t i = GlobalThread(); i < units; i += Threads()) {
    const uint4 unit = from[i];
    for (int64_t step = 1; step < peers.layout.ranks; ++step) {
      At<uint4>(peers, (peers.rank + step) % peers.layout.ranks, at)[i] = unit;
    }
  }
}

unsigned Grid(int64_t blocks) { return static_cast<unsigned>(blocks); }

void Copy(std::byte* to, const std::byte* from) {
  CopyKernel<<<Grid(kMaxBlocks), kThreads>>>(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4*>(from),
                                             kPeerPieceBytes / static_cast<int64_t>(sizeof(uint4)));
  kernels::CheckLaunch("copy between GPUs");
}

}  // namespace

int64_t Processors() {
  int device = 0, count = 0;
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess);
  return count;
}

template <class T>
void OneShot(const Peers& peers, int64_t blocks, T* values, int64_t count) {
  OneShotKernel<T><<<Grid(blocks), kThreads>>>(peers, {values, count});
  kernels::CheckLaunch("all-reduce");
}

template <class T>
void TwoShot(const Peers& peers, int64_t blocks, T* values, const Shares& shares, int64_t chunks) {
  TwoShotKernel<T><<<Grid(blocks), kThreads>>>(peers, reinterpret_cast<uint4*>(values), shares, chunks);
  kernels::CheckLaunch("all-reduce");
}

template void OneShot(const Peers&, int64_t, int64_t*, int64_t);
template void OneShot(const Peers&, int64_t, float*, int64_t);
template void OneShot(const Peers&, int64_t, uint32_t*, int64_t);
template void TwoShot(const Peers&, int64_t, int64_t*, const Shares&, int64_t);
template void TwoShot(const Peers&, int64_t, float*, const Shares&, int64_t);
template void TwoShot(const Peers&, int64_t, uint32_t*, const Shares&, int64_t);

void Gather(const Peers& peers, int64_t blocks, const Columns& columns) {
  GatherKernel<<<Grid(blocks), kThreads>>>(peers, columns);
  kernels::CheckLaunch("gather");
}

void PingPong(const Peers& peers, int64_t peer, uint32_t first, uint32_t rounds) {
  PingPongKernel<<<1, 1>>>(peers, peer, first, rounds);
  kernels::CheckLaunch("ping-pong");
}

void Push(const Peers& peers, int64_t peer) {
  const int64_t at = peers.layout.Matrix();
  Copy(peers.memory[peer] + at, peers.memory[peers.rank] + at);
}

void Pull(const Peers& peers, int64_t peer) {
  const int64_t at = peers.layout.Matrix();
  Copy(peers.memory[peers.rank] + at, peers.memory[peer] + at);
}

void PushAll(const Peers& peers) {
  CopyToAllKernel<<<Grid(kMaxBlocks), kThreads>>>(peers, peers.layout.Matrix(),
                                                  kPeerPieceBytes / static_cast<int64_t>(sizeof(uint4)));
  kernels::CheckLaunch("copy to all GPUs");
}

}  // namespace trivet::comm::cuda
