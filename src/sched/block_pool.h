// SPDX-License-Identifier: Apache-2.0
// BlockPool: which of the ids 0..N-1 are in use. It hands out KV pages and state slots; the memory behind an id belongs
// to the cache module.
#pragma once

#include <cstdint>
#include <vector>

namespace trivet::sched {

/// Ids 0..size-1. The last id freed is the next one given, which is deterministic and keeps the working set small.
class BlockPool {
 public:
  /// All ids free; the first allocation gives 0, 1, 2, ...
  explicit BlockPool(int32_t size);

  /// Appends `count` free ids to `ids`, or leaves everything as it was and returns false when there are fewer.
  [[nodiscard]] bool Allocate(int32_t count, std::vector<int32_t>* ids);
  /// Takes back all `ids`, last one first, and empties the vector. An id that is not in use is a bug of the caller.
  void Free(std::vector<int32_t>* ids);

  /// Number of ids.
  int32_t size() const { return static_cast<int32_t>(used_.size()); }
  /// Number of ids not in use.
  int32_t free() const { return static_cast<int32_t>(free_.size()); }

 private:
  std::vector<int32_t> free_;  // a stack
  std::vector<bool> used_;
};

}  // namespace trivet::sched
