// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/mapped_heap.h"

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

namespace trivet {
namespace {

// A free piece; its size is that of its list.
struct Piece {
  Piece* next;
};

// Pieces of powers of two, at least a cache line. Behind each piece's begin its size class stands in a header.
struct Heap {
  static constexpr size_t kHeader = 64;
  std::mutex mutex;
  std::byte* begin = nullptr;
  std::byte* next = nullptr;
  std::byte* end = nullptr;
  Piece* free[64] = {};

  bool Holds(const void* pointer) const { return pointer >= begin && pointer < end; }

  void* Take(size_t bytes) {
    const std::lock_guard lock(mutex);
    const size_t whole = std::bit_ceil(bytes + kHeader);
    const int size_class = std::countr_zero(whole);
    std::byte* piece = nullptr;
    if (free[size_class] != nullptr) {
      piece = reinterpret_cast<std::byte*>(free[size_class]);
      free[size_class] = free[size_class]->next;
    } else if (static_cast<size_t>(end - next) >= whole) {
      piece = next;
      next += whole;
    } else {
      std::fprintf(stderr, "mapped heap: no %zu bytes left; give MapHeap more\n", whole);
      std::abort();
    }
    *reinterpret_cast<int*>(piece) = size_class;
    return piece + kHeader;
  }

  void GiveBack(void* pointer) {
    const std::lock_guard lock(mutex);
    auto* piece = reinterpret_cast<Piece*>(static_cast<std::byte*>(pointer) - kHeader);
    const int size_class = *reinterpret_cast<int*>(piece);
    piece->next = free[size_class];
    free[size_class] = piece;
  }
};

constinit Heap heap;

void* Allocate(size_t bytes) {
  if (heap.begin != nullptr) return heap.Take(bytes);
  void* pointer = std::malloc(bytes == 0 ? 1 : bytes);
  if (pointer == nullptr) std::abort();
  return pointer;
}

void Free(void* pointer) {
  if (pointer == nullptr) return;
  heap.Holds(pointer) ? heap.GiveBack(pointer) : std::free(pointer);
}

}  // namespace

bool MapHeap(size_t bytes) {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, bytes, cudaHostAllocMapped) != cudaSuccess) return false;
  heap.next = heap.begin = static_cast<std::byte*>(memory);
  heap.end = heap.begin + bytes;
  return true;
}

}  // namespace trivet

void* operator new(size_t bytes) { return trivet::Allocate(bytes); }
void* operator new[](size_t bytes) { return trivet::Allocate(bytes); }
void operator delete(void* pointer) noexcept { trivet::Free(pointer); }
void operator delete[](void* pointer) noexcept { trivet::Free(pointer); }
void operator delete(void* pointer, size_t) noexcept { trivet::Free(pointer); }
void operator delete[](void* pointer, size_t) noexcept { trivet::Free(pointer); }
