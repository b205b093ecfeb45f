// SPDX-License-Identifier: Apache-2.0
#include "sched/block_pool.h"

#include <fmt/format.h>

#include "base/check.h"

namespace trivet::sched {

BlockPool::BlockPool(int32_t size) {
  CHECK_MSG(size >= 0, fmt::format("size {}", size));
  used_.resize(static_cast<size_t>(size), false);
  free_.reserve(used_.size());
  for (int32_t id = size - 1; id >= 0; --id) free_.push_back(id);
}

bool BlockPool::Allocate(int32_t count, std::vector<int32_t>* ids) {
  CHECK_MSG(count >= 0, fmt::format("count {}", count));
  if (count > free()) return false;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t id = free_.back();
    free_.pop_back();
    used_[static_cast<size_t>(id)] = true;
    ids->push_back(id);
  }
  return true;
}

void BlockPool::Free(std::vector<int32_t>* ids) {
  for (; !ids->empty(); ids->pop_back()) {
    const int32_t id = ids->back();
    CHECK_MSG(id >= 0 && id < size() && used_[static_cast<size_t>(id)], fmt::format("id {} is not in use", id));
    used_[static_cast<size_t>(id)] = false;
    free_.push_back(id);
  }
}

}  // namespace trivet::sched
