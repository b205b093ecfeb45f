// SPDX-License-Identifier: Apache-2.0
// A look at every weight byte of a checkpoint: numbers that are none, and scales that no weights can have.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace trivet::engine {

/// Tensors that hold scales, by name.
struct ScaleTensors {
  std::set<std::string> bytes;  // E8M0, stored as bytes (dtype U8)
  std::set<std::string> fp8;    // of blocks of FP8 codes, which they multiply
};

/// A sentence for each tensor with something in it.
///   defects  NaN or infinity, E8M0 scales of 0xFF, FP8 scales below zero: no block has those
///   notices  FP8 scales of zero, which make a block zero, and those beyond kOutlyingScale times the median
struct ScanFindings {
  std::vector<std::string> defects, notices;
};
/// A block's scale follows its largest weight, and a matrix whose blocks differ by more than this has been damaged or
/// scaled by mistake: blocks of trained models differ by a few hundred.
inline constexpr float kOutlyingScale = 1e4F;

/// Reads every tensor once, in file order and in pieces of a few megabytes.
///   progress  called with bytes read and bytes in all; may be empty
/// Errors:     those of Checkpoint::Read.
Result<ScanFindings> ScanTensors(const checkpoint::Checkpoint& checkpoint, const ScaleTensors& scales,
                                 const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace trivet::engine
