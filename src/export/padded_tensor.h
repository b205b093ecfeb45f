// SPDX-License-Identifier: Apache-2.0
// Tensors of a model whose axes were filled up. Where elements move is not decided here: it follows from two shard maps
// of one rank, that of the model in the padded layout and that of the padded model, whose local tensors are the same.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "export/output_model.h"
#include "plan/shard_map.h"

namespace trivet::exporter {

/// rows x cols elements of a tensor, every row_step-th row and col_step-th column, and where they come to in the padded
/// tensor, in the same steps. Both are seen as matrices, as plan::Slice has it.
struct Rectangle {
  int64_t src_row = 0, src_col = 0;
  int64_t dst_row = 0, dst_col = 0;
  int64_t rows = 0, cols = 0;
  int64_t row_step = 1, col_step = 1;
};

/// By tensor: what of `real`'s source goes where in the source of `padded`. A part of a local tensor that no slice of
/// `real` fills is a pad and has no rectangle.
std::map<std::string, std::vector<Rectangle>> ComposeRectangles(const plan::ShardMap& real,
                                                                const plan::ShardMap& padded);

/// A tensor of `shape` that holds the rectangles of one of the checkpoint's, which outlives it, and zeros.
///   rectangles  do not overlap and lie within both
OutputTensor PaddedTensor(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& info,
                          std::vector<int64_t> shape, std::vector<Rectangle> rectangles);

}  // namespace trivet::exporter
