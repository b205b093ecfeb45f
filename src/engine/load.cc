// SPDX-License-Identifier: Apache-2.0
#include "engine/load.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <semaphore>
#include <thread>
#include <utility>

#include "kernels/weight_format.h"
#include "quant/convert.h"

namespace trivet::engine {
namespace {

// A part of one slice that fits a staging buffer: the bytes [offset, offset + bytes) of the source, in which the
// element for row i, column j of the destination begins at i * row_stride + j * col_stride.
struct Piece {
  const checkpoint::TensorInfo* source = nullptr;
  model::LoadedTensor* tensor = nullptr;
  int64_t offset = 0, bytes = 0;
  int64_t row_stride = 0, col_stride = 0;
  int64_t rows = 0, cols = 0;  // of the destination
  int64_t dst_row = 0, dst_col = 0;
};

int64_t ElementBytes(const checkpoint::TensorInfo& info) { return tensor::DTypeBits(info.dtype) / 8; }

// Columns of a source seen as a matrix (plan::Slice).
int64_t SourceCols(const checkpoint::TensorInfo& info) { return info.shape.size() < 2 ? 1 : info.shape.back(); }

// The format of a local tensor: that of its sources when they agree, else the one that holds both exactly.
Result<kernels::WeightFormat> FormatOf(const checkpoint::Checkpoint& checkpoint, const plan::LocalTensor& local) {
  kernels::WeightFormat format = kernels::WeightFormat::kBF16;
  for (const plan::Slice& slice : local.slices) {
    const checkpoint::TensorInfo* info = checkpoint.Find(slice.source);
    CHECK(info != nullptr);
    const kernels::WeightFormatRow* row = kernels::FormatFor(info->dtype);
    if (row == nullptr) {
      return MakeError(Code::kUnsupported,
                       fmt::format("{}: expected BF16, F16 or F32, found {}; convert the checkpoint", slice.source,
                                   tensor::DTypeName(info->dtype)));
    }
    if (row->format == kernels::WeightFormat::kF32) format = row->format;
  }
  return format;
}

// Cuts a slice into pieces. Rows that are wanted whole, or nearly, are read in one go with what lies between them;
// narrow columns of long rows are read row by row.
void AddPieces(const checkpoint::TensorInfo& info, const plan::Slice& slice, model::LoadedTensor* tensor,
               std::vector<Piece>* pieces) {
  const int64_t element = ElementBytes(info), row_bytes = SourceCols(info) * element;
  const int64_t row_stride = slice.row_step * row_bytes, col_stride = slice.col_step * element;
  const int64_t wanted = slice.cols * element;
  const bool together = row_stride <= 4 * wanted || row_stride <= 4096;
  const int64_t rows_at_once = together ? std::max<int64_t>(1, kStagingBytes / row_stride) : 1;
  // Columns at once: a row longer than a staging buffer goes in parts.
  const int64_t cols_at_once = std::min(slice.cols, std::max<int64_t>(1, kStagingBytes / col_stride));
  for (int64_t row = 0; row < slice.rows; row += rows_at_once) {
    for (int64_t col = 0; col < slice.cols; col += cols_at_once) {
      const int64_t rows = std::min(rows_at_once, slice.rows - row), cols = std::min(cols_at_once, slice.cols - col);
      Piece piece{&info,
                  tensor,
                  (slice.src_row * row_bytes + slice.src_col * element) + row * row_stride + col * col_stride,
                  (rows - 1) * row_stride + (cols - 1) * col_stride + element,
                  row_stride,
                  col_stride,
                  rows,
                  cols,
                  slice.dst_row + row,
                  slice.dst_col + col};
      if (slice.transposed) {
        std::swap(piece.row_stride, piece.col_stride);
        std::swap(piece.rows, piece.cols);
        piece.dst_row = slice.dst_row + col;
        piece.dst_col = slice.dst_col + row;
      }
      pieces->push_back(piece);
    }
  }
}

// Memory that storing a piece goes through.
struct Scratch {
  std::vector<std::byte> row;  // a row whose elements stand apart, brought together
  std::vector<float> values;   // widened to float32
};

// The elements of row `i` of a piece, one behind the other.
std::span<const std::byte> RowOf(const Piece& piece, std::span<const std::byte> bytes, int64_t i, Scratch* scratch) {
  const int64_t element = ElementBytes(*piece.source);
  const std::byte* from = bytes.data() + i * piece.row_stride;
  const auto size = static_cast<size_t>(piece.cols * element);
  if (piece.col_stride == element) return {from, size};
  scratch->row.resize(size);
  for (int64_t j = 0; j < piece.cols; ++j) {
    std::memcpy(scratch->row.data() + j * element, from + j * piece.col_stride, static_cast<size_t>(element));
  }
  return scratch->row;
}

// Puts a piece where it belongs.
Status Store(const Piece& piece, std::span<const std::byte> bytes, Scratch* scratch) {
  model::LoadedTensor& tensor = *piece.tensor;
  const bool vector = tensor.role == plan::Role::kVector;
  const bool widen =
      vector || (tensor.format == kernels::WeightFormat::kF32 && piece.source->dtype != tensor::DType::kF32);
  scratch->values.resize(static_cast<size_t>(piece.cols));
  const model::Matrix matrix{tensor.format, tensor.rows, tensor.cols, tensor.leaf, tensor.buffer.data()};
  for (int64_t i = 0; i < piece.rows; ++i) {
    std::span<const std::byte> row = RowOf(piece, bytes, i, scratch);
    if (widen) {
      TRY(quant::DecodeToFloat(piece.source->dtype, row, scratch->values));
      row = std::as_bytes(std::span<const float>(scratch->values));
    }
    const int64_t at = piece.dst_row + i;
    if (vector) {
      std::copy(scratch->values.begin(), scratch->values.end(),
                tensor.buffer.As<float>().begin() + at * tensor.cols + piece.dst_col);
    } else {
      std::byte* tile = tensor.buffer.data() + at / kernels::kTileRows * matrix.tile_bytes();
      kernels::FormatRow(tensor.format).store(row.data(), piece.cols, tile, at % kernels::kTileRows, piece.dst_col);
    }
  }
  return {};
}

// Reads pieces in order into two staging buffers on a thread of its own, one ahead of the caller.
class ReadAhead {
 public:
  ReadAhead(const checkpoint::Checkpoint& checkpoint, const std::vector<Piece>& pieces)
      : checkpoint_(checkpoint), pieces_(pieces) {
    int64_t largest = 0;
    for (const Piece& piece : pieces) largest = std::max(largest, piece.bytes);
    for (std::vector<std::byte>& buffer : staging_) buffer.resize(static_cast<size_t>(largest));
    thread_ = std::thread([this] { Run(); });
  }
  ~ReadAhead() {
    stop_ = true;
    free_.release(2);
    thread_.join();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The bytes of piece `index`; calls go up by one. The previous piece's bytes are given back.
  Result<std::span<const std::byte>> Next(size_t index) {
    if (index > 0) free_.release();
    full_.acquire();
    const Status& status = status_[index % 2];
    if (!status.ok()) return status.error();
    return std::span<const std::byte>(staging_[index % 2].data(), static_cast<size_t>(pieces_[index].bytes));
  }

 private:
  void Run() {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      free_.acquire();
      if (stop_) return;
      status_[i % 2] = checkpoint_.Read(*pieces_[i].source, pieces_[i].offset,
                                        std::span(staging_[i % 2]).first(static_cast<size_t>(pieces_[i].bytes)));
      full_.release();
    }
  }

  const checkpoint::Checkpoint& checkpoint_;
  const std::vector<Piece>& pieces_;
  std::vector<std::byte> staging_[2];
  Status status_[2];
  std::counting_semaphore<4> free_{2}, full_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Allocates a local tensor: zeros are the neutral fill of every format in the table.
Result<model::LoadedTensor> Allocate(const checkpoint::Checkpoint& checkpoint, const plan::LocalTensor& local) {
  model::LoadedTensor tensor;
  tensor.role = local.role;
  tensor.rows = local.rows;
  tensor.cols = local.cols;
  tensor.leaf = local.leaf;
  int64_t bytes = local.rows * local.cols * static_cast<int64_t>(sizeof(float));
  if (local.role != plan::Role::kVector) {
    TRY_ASSIGN(tensor.format, FormatOf(checkpoint, local));
    bytes = model::Matrix{tensor.format, tensor.rows, tensor.cols, tensor.leaf, nullptr}.bytes();
  }
  TRY_ASSIGN(tensor.buffer, device::Buffer::Make(bytes, local.name));
  return tensor;
}

}  // namespace

Result<model::LoadedTensors> LoadShard(const checkpoint::Checkpoint& checkpoint, const plan::ShardMap& map,
                                       const LoadProgress& progress, const LoadCheck& check) {
  model::LoadedTensors tensors;
  std::vector<Piece> pieces;
  int64_t total = 0, done = 0;
  for (const plan::LocalTensor& local : map.tensors) {
    TRY_ASSIGN(model::LoadedTensor allocated, Allocate(checkpoint, local));
    model::LoadedTensor& tensor = tensors.emplace(local.name, std::move(allocated)).first->second;
    for (const plan::Slice& slice : local.slices) AddPieces(*checkpoint.Find(slice.source), slice, &tensor, &pieces);
  }
  for (const Piece& piece : pieces) total += piece.bytes;
  Scratch scratch;
  ReadAhead reader(checkpoint, pieces);
  for (size_t i = 0; i < pieces.size(); ++i) {
    TRY_ASSIGN(const std::span<const std::byte> bytes, reader.Next(i));
    TRY(Store(pieces[i], bytes, &scratch));
    done += pieces[i].bytes;
    if (progress) progress(done, total);
    if (check) TRY(check());
  }
  return tensors;
}

}  // namespace trivet::engine
