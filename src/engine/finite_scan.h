// SPDX-License-Identifier: Apache-2.0
// A look at every weight byte of a checkpoint: numbers that are none.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace trivet::engine {

/// Reads every tensor once, in file order and in pieces of a few megabytes, and returns one sentence for each that
/// holds NaN or infinity, or E8M0 scales of 0xFF.
///   byte_scales   names of E8M0 scales that are stored as bytes (dtype U8)
///   progress      called with bytes read and bytes in all; may be empty
/// Errors:         those of Checkpoint::Read.
Result<std::vector<std::string>> NonFiniteTensors(const checkpoint::Checkpoint& checkpoint,
                                                  const std::set<std::string>& byte_scales,
                                                  const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace trivet::engine
