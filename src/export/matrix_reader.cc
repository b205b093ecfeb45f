// SPDX-License-Identifier: Apache-2.0
#include "export/matrix_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/convert.h"
#include "quant/quantize.h"

namespace trivet::exporter {
namespace {

// Runs of consecutive elements of a tensor as floats.
class RunReader {
 public:
  RunReader(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& tensor)
      : checkpoint_(checkpoint), tensor_(tensor), element_(tensor::UnitOf(tensor.dtype).bytes) {
    CHECK(tensor::UnitOf(tensor.dtype).elements == 1);
  }
  Status Read(int64_t first, std::span<float> values) {
    bytes_.resize(values.size() * static_cast<size_t>(element_));
    TRY(checkpoint_.Read(tensor_, first * element_, bytes_));
    return quant::DecodeToFloat(tensor_.dtype, bytes_, values);
  }

 private:
  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::TensorInfo& tensor_;
  const int64_t element_;
  std::vector<std::byte> bytes_;
};

}  // namespace

Status ReadBands(const checkpoint::Checkpoint& checkpoint, const MatrixView& view, int64_t band, const BandSink& sink) {
  const bool by_rows = view.col_step == 1;
  CHECK(by_rows || view.row_step == 1);
  RunReader reader(checkpoint, *view.tensor);
  std::vector<float> values(static_cast<size_t>(std::min(band, view.rows) * view.cols));
  std::vector<float> column;
  for (int64_t row = 0; row < view.rows; row += band) {
    const int64_t rows = std::min(band, view.rows - row);
    const std::span<float> piece = std::span(values).first(static_cast<size_t>(rows * view.cols));
    if (by_rows && view.row_step == view.cols) {
      TRY(reader.Read(view.first + row * view.row_step, piece));
    } else if (by_rows) {
      for (int64_t r = 0; r < rows; ++r) {
        TRY(reader.Read(view.first + (row + r) * view.row_step,
                        piece.subspan(static_cast<size_t>(r * view.cols), static_cast<size_t>(view.cols))));
      }
    } else {
      column.resize(static_cast<size_t>(rows));
      for (int64_t c = 0; c < view.cols; ++c) {
        TRY(reader.Read(view.first + row + c * view.col_step, column));
        for (int64_t r = 0; r < rows; ++r) {
          piece[static_cast<size_t>(r * view.cols + c)] = column[static_cast<size_t>(r)];
        }
      }
    }
    if (!std::isfinite(quant::LargestMagnitude(piece))) {
      return MakeError(Code::kInvalid, fmt::format("{}: expected finite weights, found an infinity or NaN; the "
                                                   "checkpoint is damaged",
                                                   view.tensor->name));
    }
    TRY(sink(row, piece));
  }
  return {};
}

}  // namespace trivet::exporter
