// SPDX-License-Identifier: Apache-2.0
// Values of the checkpoint as float32, straight from its bytes: what loading stores, without its packing.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/stored_weight.h"
#include "plan/shard_map.h"

namespace trivet::engine {

/// Where a matrix of values goes: element (row, col) to at[row * row_stride + col * col_stride].
struct ValuesAt {
  float* at = nullptr;
  int64_t row_stride = 0, col_stride = 1;

  /// Where the part of the matrix goes that begins at (row, col).
  ValuesAt From(int64_t row, int64_t col) const {
    return {at + row * row_stride + col * col_stride, row_stride, col_stride};
  }
};

/// Reads a slice of `weight` from the checkpoint.
///   to    of the slice's own elements: where its first one goes, and its strides
///   pool  whose threads share the rows
/// Errors:  kIo; kInvalid for scales or codes that are no numbers.
Status ReadValues(const checkpoint::Checkpoint& checkpoint, const checkpoint::StoredWeight& weight,
                  const plan::Slice& slice, const ValuesAt& to, ThreadPool* pool);

}  // namespace trivet::engine
