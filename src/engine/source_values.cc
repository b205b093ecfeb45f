// SPDX-License-Identifier: Apache-2.0
#include "engine/source_values.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "engine/store_weight.h"
#include "engine/stored_slices.h"

namespace trivet::engine {
namespace {

// Bytes that one thread reads at a time: what its cache holds.
constexpr int64_t kReadBytes = int64_t{1} << 16;

// Evenly spaced rows and columns of a weight as the file has them, and where the values go.
class Reader {
 public:
  Reader(const checkpoint::Checkpoint& checkpoint, const checkpoint::StoredWeight& weight, const plan::Slice& piece,
         const ValuesAt& to)
      : checkpoint_(checkpoint), weight_(weight), piece_(piece), to_(to) {
    const int64_t unit = UnitColumns(weight), last = piece.src_col + (piece.cols - 1) * piece.col_step + 1;
    begin_ = piece.src_col / unit * unit;
    end_ = std::min((last + unit - 1) / unit * unit, weight.cols);
    row_bytes_ = CodeBytes(weight, weight.cols);
    wanted_ = CodeBytes(weight, end_ - begin_);
  }

  // Rows read at once: what lies between them is read with them where that is little.
  int64_t RowsAtOnce() const {
    const int64_t stride = piece_.row_step * row_bytes_;
    return stride > 4 * wanted_ ? 1 : std::max<int64_t>(1, kReadBytes / stride);
  }

  // Rows [begin, end) of the piece.
  Status Read(int64_t begin, int64_t end) {
    const int64_t first = piece_.src_row + begin * piece_.row_step, stride = piece_.row_step * row_bytes_;
    TRY(blocks_.Start(checkpoint_, weight_, first, (end - begin - 1) * piece_.row_step + 1));
    const auto size = static_cast<size_t>((end - begin - 1) * stride + wanted_);
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(size);
    const std::span<std::byte> bytes(memory.get(), size);
    TRY(checkpoint_.Read(*weight_.weight, first * row_bytes_ + CodeBytes(weight_, begin_), bytes));
    for (int64_t i = begin; i < end; ++i) {
      const std::span<const std::byte> codes =
          bytes.subspan(static_cast<size_t>((i - begin) * stride), static_cast<size_t>(wanted_));
      TRY_ASSIGN(const std::span<const float> values,
                 blocks_.Values(piece_.src_row + i * piece_.row_step, begin_, end_ - begin_, codes));
      Put(i, values.data() + piece_.src_col - begin_);
    }
    return {};
  }

 private:
  void Put(int64_t row, const float* values) const {
    float* out = to_.at + row * to_.row_stride;
    if (to_.col_stride == 1 && piece_.col_step == 1) {
      std::memcpy(out, values, static_cast<size_t>(piece_.cols) * sizeof(float));
      return;
    }
    for (int64_t j = 0; j < piece_.cols; ++j) out[j * to_.col_stride] = values[j * piece_.col_step];
  }

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::StoredWeight& weight_;
  const plan::Slice& piece_;
  const ValuesAt to_;
  int64_t begin_ = 0, end_ = 0;  // columns that are read: whole units
  int64_t row_bytes_ = 0, wanted_ = 0;
  RowBlocks blocks_;
};

}  // namespace

Status ReadValues(const checkpoint::Checkpoint& checkpoint, const checkpoint::StoredWeight& weight,
                  const plan::Slice& slice, const ValuesAt& to, ThreadPool* pool) {
  for (const plan::Slice& piece : StoredSlices(slice, *weight.weight)) {
    const int64_t down = piece.dst_row - slice.dst_row, right = piece.dst_col - slice.dst_col;
    const ValuesAt at = slice.transposed ? to.From(right, down) : to.From(down, right);
    const int64_t most = Reader(checkpoint, weight, piece, at).RowsAtOnce();
    const int64_t grain = std::clamp<int64_t>((piece.rows + pool->size() - 1) / pool->size(), 1, most);
    std::vector<Status> status(static_cast<size_t>((piece.rows + grain - 1) / grain));
    pool->ParallelFor(piece.rows, grain, [&](int64_t begin, int64_t end) {
      status[static_cast<size_t>(begin / grain)] = Reader(checkpoint, weight, piece, at).Read(begin, end);
    });
    for (Status& one : status) TRY(std::move(one));
  }
  return {};
}

}  // namespace trivet::engine
