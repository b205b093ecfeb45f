// SPDX-License-Identifier: Apache-2.0
// Matrices inside tensors of a checkpoint, read in bands of rows as floats, whichever way round they are stored.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace trivet::exporter {

/// A matrix [rows, cols] in a tensor: element (r, c) is the tensor's element first + r * row_step + c * col_step.
struct MatrixView {
  const checkpoint::TensorInfo* tensor = nullptr;
  int64_t first = 0;
  int64_t rows = 0, cols = 0;
  int64_t row_step = 0;  // 1 where columns of the matrix are rows of the tensor
  int64_t col_step = 1;
};

/// Takes rows [row, row + values.size() / cols) of a matrix, row-major.
using BandSink = std::function<Status(int64_t row, std::span<const float> values)>;

/// Reads a matrix of whole elements from top to bottom, `band` rows at a time, the last band perhaps less.
/// Errors:  those of Checkpoint::Read and `sink`; kInvalid for a value that is not finite.
Status ReadBands(const checkpoint::Checkpoint& checkpoint, const MatrixView& view, int64_t band, const BandSink& sink);

}  // namespace trivet::exporter
