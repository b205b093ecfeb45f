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

// A rank's share of a message, and a block's part of it; items count from the share's begin.
__device__ Share BlockPart(int64_t units, int64_t ranks, int64_t rank) {
  const Share share = ShareOf(units, ranks, rank);
  return ShareOf(share.end - share.begin, gridDim.x, blockIdx.x);
}

template <class T>
__global__ void __launch_bounds__(kThreads) TwoShotKernel(const Peers peers, uint4* values, int64_t units) {
  const Call call(peers);
  if (*call.given_up() != 0) return;
  const int64_t ranks = peers.layout.ranks, me = peers.rank;
  const auto begin_of = [&](int64_t rank) { return ShareOf(units, ranks, rank).begin; };
  for (int64_t step = 1; step < ranks; ++step) {
    const int64_t to = (me + step) % ranks;
    const Share part = BlockPart(units, ranks, to);
    const uint4* from = values + begin_of(to);
    auto* there = At<uint4>(peers, to, peers.layout.Part(call.half, me));
#pragma unroll 4
    for (int64_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) there[i] = from[i];
  }
  call.SignalAll(kBegun);
  if (!call.AwaitAll(kBegun)) return;
  const Share own = BlockPart(units, ranks, me);
  const int64_t first = begin_of(me);
#pragma unroll 2
  for (int64_t i = own.begin + threadIdx.x; i < own.end; i += kThreads) {
    Values<T, uint4> sum;
    for (int64_t from = 0; from < ranks; ++from) {
      const Values<T, uint4> term(from == me ? values[first + i]
                                             : At<uint4>(peers, me, peers.layout.Part(call.half, from))[i]);
      if (from == 0) {
        sum = term;
      } else {
        sum.Add(term);
      }
    }
    values[first + i] = sum.unit;
    for (int64_t step = 1; step < ranks; ++step) {
      At<uint4>(peers, (me + step) % ranks, peers.layout.Total(call.half))[first + i] = sum.unit;
    }
  }
  call.SignalAll(kDone);
  if (!call.AwaitAll(kDone)) return;
  const uint4* total = At<uint4>(peers, me, peers.layout.Total(call.half));
  for (int64_t step = 1; step < ranks; ++step) {
    const int64_t of = (me + step) % ranks;
    const Share part = BlockPart(units, ranks, of);
#pragma unroll 4
    for (int64_t i = begin_of(of) + part.begin + threadIdx.x; i < begin_of(of) + part.end; i += kThreads) {
      values[i] = total[i];
    }
  }
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
void TwoShot(const Peers& peers, int64_t blocks, T* values, int64_t count) {
  TwoShotKernel<T><<<Grid(blocks), kThreads>>>(peers, reinterpret_cast<uint4*>(values),
                                               count * static_cast<int64_t>(sizeof(T) / 4) / 4);
  kernels::CheckLaunch("all-reduce");
}

template void OneShot(const Peers&, int64_t, int64_t*, int64_t);
template void OneShot(const Peers&, int64_t, float*, int64_t);
template void OneShot(const Peers&, int64_t, uint32_t*, int64_t);
template void TwoShot(const Peers&, int64_t, int64_t*, int64_t);
template void TwoShot(const Peers&, int64_t, float*, int64_t);
template void TwoShot(const Peers&, int64_t, uint32_t*, int64_t);

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

}  // namespace trivet::comm::cuda
