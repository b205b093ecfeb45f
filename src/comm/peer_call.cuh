// SPDX-License-Identifier: Apache-2.0
// What kernels that exchange with other ranks have in common: how a call begins, waits, and sends and adds packets, by
// the rules of peer_rules.h.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "comm/peer_cuda.h"

namespace trivet::comm::cuda {

inline constexpr int kPollsALook = 64;     // polls between two looks at the clock, some 50 us
inline constexpr int kLooksAnAnswer = 16;  // looks between two at the host's memory, which is far away

/// Accesses that other GPUs see as a whole, with the order that the model of PTX gives them.
__device__ inline void StoreRelease(uint32_t* at, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ inline uint32_t LoadAcquire(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ inline uint32_t LoadRelaxed(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ inline void StoreRelaxed(uint32_t* at, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ inline uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// A word of a message in two halves, each beside the number of its call: whoever reads both numbers has the word.
__device__ inline void StorePacket(std::byte* at, uint64_t word, uint32_t epoch) {
  const uint64_t flag = static_cast<uint64_t>(epoch) << 32;
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"((word & UINT32_MAX) | flag),
               "l"((word >> 32) | flag)
               : "memory");
}
__device__ inline bool LoadPacket(const std::byte* at, uint32_t epoch, uint64_t* word) {
  uint64_t low, high;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(at) : "memory");
  *word = (low & UINT32_MAX) | high << 32;
  return (low >> 32) == epoch && (high >> 32) == epoch;
}

template <class Value>
__device__ Value* At(const Peers& peers, int64_t rank, int64_t offset) {
  return reinterpret_cast<Value*>(peers.memory[rank] + offset);
}

/// One call on one rank, as a block sees it.
struct Call {
  const Peers& peers;
  const unsigned block, blocks;
  uint32_t epoch;
  int64_t half;

  __device__ explicit Call(const Peers& group) : Call(group, blockIdx.x, gridDim.x) {}
  __device__ Call(const Peers& group, unsigned number, unsigned count) : peers(group), block(number), blocks(count) {
    const uint32_t* counter = At<uint32_t>(peers, peers.rank, PeerLayout::Counter(block));
    epoch = NextEpoch(*counter);
    half = HalfOf(epoch);
  }
  // Not 0 when an earlier call was given up: nothing is exchanged any more.
  __device__ uint32_t* given_up() const { return At<uint32_t>(peers, peers.rank, PeerLayout::kGivenUp); }

  // Ends the call. Blocks share out the counters of blocks that it did not have.
  __device__ void End() const {
    __syncthreads();
    for (int64_t i = NextCounter(block, int64_t{blocks} * threadIdx.x); i < kMaxBlocks;
         i = NextCounter(i, int64_t{blocks} * blockDim.x)) {
      *At<uint32_t>(peers, peers.rank, PeerLayout::Counter(i)) = epoch;
    }
  }

  // Tells `to` that this block has come to `phase` of a chunk, with all that it has written before.
  __device__ void Signal(Phase phase, int64_t to, int64_t chunk = 0) const {
    StoreRelease(At<uint32_t>(peers, to, PeerLayout::Flag(phase, chunk, block, peers.rank)), epoch);
  }
  // Tells everybody.
  __device__ void SignalAll(Phase phase, int64_t chunk = 0) const {
    __syncthreads();
    if (threadIdx.x < peers.layout.ranks && threadIdx.x != peers.rank) Signal(phase, threadIdx.x, chunk);
  }
  // Waits until the same block of every rank has come there; false: given up.
  __device__ bool AwaitAll(Phase phase, int64_t chunk = 0) const;
};

/// Polls until ready() says so; false when the host asks to leave or `from` has taken too long.
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

__device__ inline bool Call::AwaitAll(Phase phase, int64_t chunk) const {
  bool come = true;
  if (threadIdx.x < peers.layout.ranks && threadIdx.x != peers.rank) {
    const uint32_t* flag = At<uint32_t>(peers, peers.rank, PeerLayout::Flag(phase, chunk, block, threadIdx.x));
    come = Await(*this, threadIdx.x, [&] { return HasCome(LoadAcquire(flag), epoch); });
  }
  return __syncthreads_and(come) != 0;
}

__device__ inline int64_t GlobalThread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t Threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// A Unit of memory as the values it holds.
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

/// Words of a message whose last one may be half.
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

/// Sends word `at` of this rank to all others.
__device__ inline void PushPackets(const Call& call, int64_t at, uint64_t word) {
  const Peers& peers = call.peers;
  for (int64_t step = 1; step < peers.layout.ranks; ++step) {  // everyone begins with another peer
    const int64_t to = (peers.rank + step) % peers.layout.ranks;
    StorePacket(At<std::byte>(peers, to, peers.layout.Packets(call.half, peers.rank)) + at * PeerLayout::kPacketBytes,
                word, call.epoch);
  }
}

inline constexpr int kTermsAtOnce = 4;  // packets that are waited for together

/// Adds word `at` of all ranks in ascending order, rank 0's first; false: given up.
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

}  // namespace trivet::comm::cuda
