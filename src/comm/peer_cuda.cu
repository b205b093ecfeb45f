// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <string>

#include "base/check.h"
#include "comm/peer_cuda.h"

namespace trivet::comm::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kPollsALook = 64;     // polls between two looks at the clock, some 50 us
constexpr int kLooksAnAnswer = 16;  // looks between two at the host's memory, which is far away

// Accesses that other GPUs see as a whole, with the order that the model of PTX gives them.
__device__ void StoreRelease(uint32_t* at, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ uint32_t LoadAcquire(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ uint32_t LoadRelaxed(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ void StoreRelaxed(uint32_t* at, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// A word of a message in two halves, each beside the number of its call: whoever reads both numbers has the word.
__device__ void StorePacket(std::byte* at, uint64_t word, uint32_t epoch) {
  const uint64_t flag = static_cast<uint64_t>(epoch) << 32;
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"((word & UINT32_MAX) | flag),
               "l"((word >> 32) | flag)
               : "memory");
}
__device__ bool LoadPacket(const std::byte* at, uint32_t epoch, uint64_t* word) {
  uint64_t low, high;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(at) : "memory");
  *word = (low & UINT32_MAX) | high << 32;
  return (low >> 32) == epoch && (high >> 32) == epoch;
}

template <class Value>
__device__ Value* At(const Peers& peers, int64_t rank, int64_t offset) {
  return reinterpret_cast<Value*>(peers.memory[rank] + offset);
}

// One call on one rank, as a block sees it.
struct Call {
  const Peers& peers;
  uint32_t epoch;
  int64_t half;

  // False when an earlier call was given up: nothing is exchanged any more.
  __device__ explicit Call(const Peers& group) : peers(group) {
    const uint32_t* counter = At<uint32_t>(peers, peers.rank, PeerLayout::Counter(blockIdx.x));
    epoch = NextEpoch(*counter);
    half = HalfOf(epoch);
  }
  __device__ uint32_t* given_up() const { return At<uint32_t>(peers, peers.rank, PeerLayout::kGivenUp); }

  // Ends the call. Blocks share out the counters of blocks that it did not have.
  __device__ void End() const {
    __syncthreads();
    for (int64_t i = NextCounter(blockIdx.x, int64_t{gridDim.x} * threadIdx.x); i < kMaxBlocks;
         i = NextCounter(i, int64_t{gridDim.x} * blockDim.x)) {
      *At<uint32_t>(peers, peers.rank, PeerLayout::Counter(i)) = epoch;
    }
  }

  // Tells `to` that this block has come to `phase`, with all that it has written before.
  __device__ void Signal(Phase phase, int64_t to) const {
    StoreRelease(At<uint32_t>(peers, to, PeerLayout::Flag(phase, blockIdx.x, peers.rank)), epoch);
  }
  // Tells everybody.
  __device__ void SignalAll(Phase phase) const {
    __syncthreads();
    if (threadIdx.x < peers.layout.ranks && threadIdx.x != peers.rank) Signal(phase, threadIdx.x);
  }
  // Waits until the same block of every rank has come there; false: given up.
  __device__ bool AwaitAll(Phase phase) const;
};

// Polls until ready() says so; false when the host asks to leave or `from` has taken too long.
template <class Ready>
__device__ bool Await(const Call& call, int64_t from, const Ready& ready) {
  const Peers& peers = call.peers;
  uint64_t begin = 0;
  for (int look = 1;; ++look) {
    for (int i = 0; i < kPollsALook; ++i) {
      if (ready()) return true;
    }
    if (LoadRelaxed(call.given_up()) != 0) return false;
    const uint64_t now = NowNs();
    if (begin == 0) begin = now;
    const bool late = now - begin > static_cast<uint64_t>(peers.limit_ns);
    if (late) StoreRelaxed(&peers.signals->missing, 1 + static_cast<uint32_t>(from));
    if (late || (look % kLooksAnAnswer == 0 && LoadRelaxed(&peers.signals->stop) != 0)) {
      StoreRelaxed(call.given_up(), 1);
      return false;
    }
  }
}

__device__ bool Call::AwaitAll(Phase phase) const {
  bool come = true;
  if (threadIdx.x < peers.layout.ranks && threadIdx.x != peers.rank) {
    const uint32_t* flag = At<uint32_t>(peers, peers.rank, PeerLayout::Flag(phase, blockIdx.x, threadIdx.x));
    come = Await(*this, threadIdx.x, [&] { return HasCome(LoadAcquire(flag), epoch); });
  }
  return __syncthreads_and(come) != 0;
}

__device__ int64_t GlobalThread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t Threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// A Unit of memory as the values it holds.
template <class T, class Unit>
union Values {
  static constexpr int kCount = sizeof(Unit) / sizeof(T);
  Unit unit;
  T value[kCount];
  __device__ Values() {}
  __device__ explicit Values(const Unit& from) : unit(from) {}
  __device__ void Add(const Values& other) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) value[i] += other.value[i];
  }
};

// Words of a message whose last one may be half.
template <class T>
struct Message {
  using Word = Values<T, uint64_t>;
  T* values;
  int64_t count;

  __device__ int64_t words() const { return (count + Word::kCount - 1) / Word::kCount; }
  __device__ bool whole(int64_t word) const { return (word + 1) * Word::kCount <= count; }
  __device__ Word Load(int64_t word) const {
    if (whole(word)) return Word(reinterpret_cast<const uint64_t*>(values)[word]);
    Word last(0);
    last.value[0] = values[word * Word::kCount];
    return last;
  }
  __device__ void Store(int64_t word, const Word& sum) const {
    if (whole(word)) {
      reinterpret_cast<uint64_t*>(values)[word] = sum.unit;
    } else {
      values[word * Word::kCount] = sum.value[0];
    }
  }
};

constexpr int kTermsAtOnce = 4;  // packets that are waited for together

// Adds word `at` of all ranks in ascending order, rank 0's first; false: given up.
template <class T>
__device__ bool SumPackets(const Call& call, int64_t at, uint64_t own, Values<T, uint64_t>* sum) {
  const Peers& peers = call.peers;
  const int64_t ranks = peers.layout.ranks;
  for (int64_t first = 0; first < ranks; first += kTermsAtOnce) {
    uint64_t terms[kTermsAtOnce];
    int64_t missing = 0;
    const auto load = [&] {
      bool all = true;
#pragma unroll
      for (int i = 0; i < kTermsAtOnce; ++i) {
        const int64_t from = first + i;
        if (from >= ranks || from == peers.rank) continue;
        const std::byte* packet =
            peers.memory[peers.rank] + peers.layout.Packets(call.half, from) + at * PeerLayout::kPacketBytes;
        if (!LoadPacket(packet, call.epoch, &terms[i])) all = false, missing = from;
      }
      return all;
    };
    if (!load() && !Await(call, missing, load)) return false;
#pragma unroll
    for (int i = 0; i < kTermsAtOnce; ++i) {
      const int64_t from = first + i;
      if (from >= ranks) break;
      const Values<T, uint64_t> term(from == peers.rank ? own : terms[i]);
      if (from == 0) {
        *sum = term;
      } else {
        sum->Add(term);
      }
    }
  }
  return true;
}

template <class T>
__global__ void __launch_bounds__(kThreads) OneShotKernel(const Peers peers, const Message<T> message) {
  const Call call(peers);
  if (*call.given_up() != 0) return;
  const int64_t ranks = peers.layout.ranks, words = message.words();
  for (int64_t i = GlobalThread(); i < words; i += Threads()) {
    const uint64_t word = message.Load(i).unit;
    for (int64_t step = 1; step < ranks; ++step) {  // everyone begins with another peer
      const int64_t to = (peers.rank + step) % ranks;
      StorePacket(At<std::byte>(peers, to, peers.layout.Packets(call.half, peers.rank)) + i * PeerLayout::kPacketBytes,
                  word, call.epoch);
    }
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

void CheckLaunch(const char* what) {
  const cudaError_t error = cudaGetLastError();
  CHECK_MSG(error == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(error));
}

unsigned Grid(int64_t blocks) { return static_cast<unsigned>(blocks); }

void Copy(std::byte* to, const std::byte* from) {
  CopyKernel<<<Grid(kMaxBlocks), kThreads>>>(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4*>(from),
                                             kPeerPieceBytes / static_cast<int64_t>(sizeof(uint4)));
  CheckLaunch("copy between GPUs");
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
  CheckLaunch("all-reduce");
}

template <class T>
void TwoShot(const Peers& peers, int64_t blocks, T* values, int64_t count) {
  TwoShotKernel<T><<<Grid(blocks), kThreads>>>(peers, reinterpret_cast<uint4*>(values),
                                               count * static_cast<int64_t>(sizeof(T) / 4) / 4);
  CheckLaunch("all-reduce");
}

template void OneShot(const Peers&, int64_t, int64_t*, int64_t);
template void OneShot(const Peers&, int64_t, float*, int64_t);
template void OneShot(const Peers&, int64_t, uint32_t*, int64_t);
template void TwoShot(const Peers&, int64_t, int64_t*, int64_t);
template void TwoShot(const Peers&, int64_t, float*, int64_t);
template void TwoShot(const Peers&, int64_t, uint32_t*, int64_t);

void Gather(const Peers& peers, int64_t blocks, const Columns& columns) {
  GatherKernel<<<Grid(blocks), kThreads>>>(peers, columns);
  CheckLaunch("gather");
}

void PingPong(const Peers& peers, int64_t peer, uint32_t first, uint32_t rounds) {
  PingPongKernel<<<1, 1>>>(peers, peer, first, rounds);
  CheckLaunch("ping-pong");
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
