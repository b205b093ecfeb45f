// SPDX-License-Identifier: Apache-2.0
#include "export/padded_tensor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace trivet::exporter {
namespace {

// A tensor as a matrix.
struct Extents {
  int64_t rows = 1, cols = 1;
};

Extents MatrixOf(const std::vector<int64_t>& shape) {
  Extents extents;
  if (shape.size() >= 2) extents.cols = shape.back();
  for (size_t i = 0; i + (shape.size() >= 2 ? 1 : 0) < shape.size(); ++i) extents.rows *= shape[i];
  return extents;
}

// Where a slice's source rows, or columns, begin in the local tensor.
int64_t LocalRow(const plan::Slice& slice) { return slice.transposed ? slice.dst_col : slice.dst_row; }
int64_t LocalCol(const plan::Slice& slice) { return slice.transposed ? slice.dst_row : slice.dst_col; }

// Whether two slices of one local tensor have an element in common.
bool Overlap(const plan::Slice& a, const plan::Slice& b) {
  return a.dst_row < b.dst_row + b.dst_rows() && b.dst_row < a.dst_row + a.dst_rows() &&
         a.dst_col < b.dst_col + b.dst_cols() && b.dst_col < a.dst_col + a.dst_cols();
}

// What two slices that overlap have in common, as a move from one source to the other.
Rectangle Common(const plan::Slice& from, const plan::Slice& to) {
  CHECK_MSG(from.source == to.source && from.transposed == to.transposed, from.source);
  CHECK_MSG(from.row_step == to.row_step && from.col_step == to.col_step, from.source);
  const int64_t row = std::max(LocalRow(from), LocalRow(to)), col = std::max(LocalCol(from), LocalCol(to));
  Rectangle common;
  common.rows = std::min(LocalRow(from) + from.rows, LocalRow(to) + to.rows) - row;
  common.cols = std::min(LocalCol(from) + from.cols, LocalCol(to) + to.cols) - col;
  common.row_step = from.row_step;
  common.col_step = from.col_step;
  common.src_row = from.src_row + (row - LocalRow(from)) * from.row_step;
  common.src_col = from.src_col + (col - LocalCol(from)) * from.col_step;
  common.dst_row = to.src_row + (row - LocalRow(to)) * to.row_step;
  common.dst_col = to.src_col + (col - LocalCol(to)) * to.col_step;
  return common;
}

// Writes a padded tensor band by band.
class Padder {
 public:
  Padder(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& info,
         const std::vector<int64_t>& shape)
      : checkpoint_(checkpoint),
        info_(info),
        element_(tensor::UnitOf(info.dtype).bytes),
        from_(MatrixOf(info.shape)),
        to_(MatrixOf(shape)) {
    CHECK_MSG(tensor::UnitOf(info.dtype).elements == 1, info.name);
  }

  Status Write(const std::vector<Rectangle>& rectangles, const Sink& sink) {
    const int64_t row_bytes = to_.cols * element_;
    const int64_t at_once = std::max<int64_t>(1, kStagingBytes / std::max<int64_t>(1, row_bytes));
    for (band_row_ = 0; band_row_ < to_.rows; band_row_ += at_once) {
      const int64_t rows = std::min(at_once, to_.rows - band_row_);
      band_.assign(static_cast<size_t>(rows * row_bytes), std::byte{0});
      for (const Rectangle& rectangle : rectangles) TRY(Fill(rectangle, rows));
      TRY(sink(band_));
    }
    return {};
  }

 private:
  std::byte* At(int64_t row, int64_t col) {
    return band_.data() + static_cast<size_t>(((row - band_row_) * to_.cols + col) * element_);
  }

  // The rows of a rectangle that fall into the band.
  Status Fill(const Rectangle& r, int64_t band_rows) {
    const int64_t before = std::max<int64_t>(0, band_row_ - r.dst_row);
    const int64_t begin = (before + r.row_step - 1) / r.row_step;
    const int64_t after = std::max<int64_t>(0, band_row_ + band_rows - r.dst_row);
    const int64_t end = std::min(r.rows, (after + r.row_step - 1) / r.row_step);
    if (begin >= end) return {};
    if (r.row_step == 1 && r.col_step == 1 && r.cols == from_.cols && r.cols == to_.cols) {
      return Read(r.src_row + begin, 0,
                  {At(r.dst_row + begin, 0), static_cast<size_t>((end - begin) * r.cols * element_)});
    }
    const int64_t span = ((r.cols - 1) * r.col_step + 1) * element_;
    run_.resize(static_cast<size_t>(span));
    for (int64_t i = begin; i < end; ++i) {
      TRY(Read(r.src_row + i * r.row_step, r.src_col, run_));
      std::byte* out = At(r.dst_row + i * r.row_step, r.dst_col);
      if (r.col_step == 1) {
        std::memcpy(out, run_.data(), run_.size());
        continue;
      }
      for (int64_t j = 0; j < r.cols; ++j) {
        const int64_t at = j * r.col_step * element_;
        std::memcpy(out + at, run_.data() + at, static_cast<size_t>(element_));
      }
    }
    return {};
  }

  Status Read(int64_t row, int64_t col, std::span<std::byte> bytes) const {
    return checkpoint_.Read(info_, (row * from_.cols + col) * element_, bytes);
  }

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::TensorInfo& info_;
  const int64_t element_;
  const Extents from_, to_;
  int64_t band_row_ = 0;
  std::vector<std::byte> band_, run_;
};

}  // namespace

std::map<std::string, std::vector<Rectangle>> ComposeRectangles(const plan::ShardMap& real,
                                                                const plan::ShardMap& padded) {
  std::map<std::string, const plan::LocalTensor*> locals;
  for (const plan::LocalTensor& local : padded.tensors) locals.emplace(local.name, &local);
  std::map<std::string, std::vector<Rectangle>> rectangles;
  for (const plan::LocalTensor& local : real.tensors) {
    const auto found = locals.find(local.name);
    CHECK_MSG(found != locals.end(), local.name);
    for (const plan::Slice& from : local.slices) {
      for (const plan::Slice& to : found->second->slices) {
        if (Overlap(from, to)) rectangles[from.source].push_back(Common(from, to));
      }
    }
  }
  return rectangles;
}

OutputTensor PaddedTensor(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& info,
                          std::vector<int64_t> shape, std::vector<Rectangle> rectangles) {
  checkpoint::TensorDecl decl = {info.name, info.dtype, shape};
  return {std::move(decl), [&checkpoint, &info, shape = std::move(shape), rectangles = std::move(rectangles)](
                               const Sink& sink) { return Padder(checkpoint, info, shape).Write(rectangles, sink); }};
}

}  // namespace trivet::exporter
