// SPDX-License-Identifier: Apache-2.0
// From slices as a plan has them, in logical rows and columns, to slices in the order in which a file has them.
#pragma once

#include <vector>

#include "checkpoint/tensor_info.h"
#include "plan/shard_map.h"

namespace trivet::engine {

/// The slice in pieces whose rows and columns are evenly spaced in the file, by ascending place in the local tensor's
/// rows. The slice itself where the file has the logical order.
std::vector<plan::Slice> StoredSlices(const plan::Slice& slice, const checkpoint::TensorInfo& info);

}  // namespace trivet::engine
