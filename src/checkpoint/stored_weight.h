// SPDX-License-Identifier: Apache-2.0
// StoredWeight: how the checkpoint holds one logical weight: under which name, packed how, with which tensor of scales.
// Plans speak of logical rows and columns only; this is where they meet the carriers.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/quant_config.h"

namespace trivet::checkpoint {

/// How a weight's elements are stored.
enum class Storage {
  kPlain,  // one tensor of the logical shape, of any dtype, block formats among them
  kFp8,    // E4M3 codes of the logical shape, and a tensor of scales to multiply with
  kMxfp4,  // two E2M1 codes a byte, low nibble first, and an E8M0 scale per 32 columns
};

/// Columns that one scale of kMxfp4 covers.
inline constexpr int64_t kMxColumns = 32;

/// A weight [rows, cols]: leading extents of its shape are folded into the rows.
struct StoredWeight {
  Storage storage = Storage::kPlain;
  const TensorInfo* weight = nullptr;
  const TensorInfo* scale = nullptr;  // null for kPlain
  int64_t rows = 0, cols = 0;         // logical
  int64_t matrix_rows = 0;            // rows of one matrix of a stack; scale grids begin anew with each
  int64_t scale_rows = 0;             // rows and columns that one FP8 scale covers; at least 1
  int64_t scale_cols = 0;

  /// Row of the tensor of scales that logical row `row` uses.
  int64_t ScaleRow(int64_t row) const {
    const int64_t grid = (matrix_rows + scale_rows - 1) / scale_rows;
    return row / matrix_rows * grid + row % matrix_rows / scale_rows;
  }
  /// Scales in one row of the tensor of scales.
  int64_t ScalesPerRow() const { return (cols + scale_cols - 1) / scale_cols; }
};

/// Whether the checkpoint holds a weight called `name`, as it is or packed.
bool HasWeight(const Checkpoint& checkpoint, const std::string& name);

/// Finds the weight called `name` of the given logical shape: as it is, or packed under the names that quantisers use
/// (X.weight_packed, X_blocks), with its scales (X.weight_scale_inv, X.weight_scale, X.scale, X_scales).
/// Errors:  kInvalid when it is missing, has another shape or contradicts the config; kUnsupported names the dtype.
Result<StoredWeight> FindWeight(const Checkpoint& checkpoint, const QuantConfig& config, const std::string& name,
                                std::span<const int64_t> shape);

}  // namespace trivet::checkpoint
