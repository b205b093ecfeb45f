// SPDX-License-Identifier: Apache-2.0
#include "engine/stored_slices.h"

namespace trivet::engine {
namespace {

// Evenly spaced stored rows or columns: `count` from `from` on, which are the slice's from number `at` on.
struct Run {
  int64_t from = 0, at = 0, count = 1, step = 1;
};

// Rows or columns begin, begin + step, ... as they are stored, in the longest runs that ascend.
std::vector<Run> RunsOf(const checkpoint::StoredOrder& order, int64_t begin, int64_t count, int64_t step) {
  if (order.outer == 1) return {{begin, 0, count, step}};
  std::vector<Run> runs;
  int64_t previous = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t stored = order.Stored(begin + i * step);
    const int64_t ahead = stored - previous;
    previous = stored;
    if (!runs.empty() && ahead > 0 && (runs.back().count == 1 || ahead == runs.back().step)) {
      runs.back().step = ahead;
      ++runs.back().count;
    } else {
      runs.push_back({stored, i});
    }
  }
  return runs;
}

}  // namespace

std::vector<plan::Slice> StoredSlices(const plan::Slice& slice, const checkpoint::TensorInfo& info) {
  std::vector<plan::Slice> pieces;
  const std::vector<Run> cols = RunsOf(info.col_order, slice.src_col, slice.cols, slice.col_step);
  for (const Run& row : RunsOf(info.row_order, slice.src_row, slice.rows, slice.row_step)) {
    for (const Run& col : cols) {
      plan::Slice piece = slice;
      piece.src_row = row.from;
      piece.rows = row.count;
      piece.row_step = row.step;
      piece.src_col = col.from;
      piece.cols = col.count;
      piece.col_step = col.step;
      piece.dst_row += slice.transposed ? col.at : row.at;
      piece.dst_col += slice.transposed ? row.at : col.at;
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

}  // namespace trivet::engine
