// SPDX-License-Identifier: Apache-2.0
// Tensors without a file: pseudo-random weights of sane magnitude, so that a model can be measured from its config
// alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace trivet::checkpoint {

/// How dummy weights of large products are stored; everything else is BF16.
enum class DummyFormat { kBF16, kFp8, kMxfp4 };

/// "bf16", "fp8" or "mxfp4".  Errors: kUsage.
Result<DummyFormat> ParseDummyFormat(const std::string& name);

/// A weight to make up.
struct DummyWeight {
  std::string name;
  std::vector<int64_t> shape;
  bool product = false;  // of a large product: stored in the format, with scales as quantisers write them
};

/// A checkpoint of `weights`. Reading fills in bytes that are a function of name and place alone.
/// Errors:  kInvalid when a size overflows; kUnsupported when a width is no multiple of the format's block.
Result<Checkpoint> MakeDummy(std::span<const DummyWeight> weights, DummyFormat format);

/// Bytes [offset, offset + dst.size()) of a dummy tensor. Elements lie within 1/16, scales make quantised ones so;
/// codes are never a NaN.
void FillDummy(const TensorInfo& info, int64_t offset, std::span<std::byte> dst);

}  // namespace trivet::checkpoint
