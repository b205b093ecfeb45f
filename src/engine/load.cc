// SPDX-License-Identifier: Apache-2.0
#include "engine/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <semaphore>
#include <thread>

#include "base/check.h"
#include "checkpoint/stored_weight.h"
#include "engine/find_weights.h"
#include "engine/store_weight.h"
#include "engine/stored_slices.h"
#include "kernels/weight_format.h"
#include "quant/convert.h"

namespace trivet::engine {
namespace {

// Bytes [begin, begin + bytes) of a tensor's buffer that are put together at once: some tiles, or all of it.
struct Band {
  model::LoadedTensor* tensor = nullptr;
  int64_t begin = 0, bytes = 0;
};

// Where a band is put together.
struct BandPlace {
  std::byte* data = nullptr;
  int64_t begin = 0, bytes = 0;

  // The byte at `offset` of the tensor's buffer, which the band has.
  std::byte* At(int64_t offset) const {
    CHECK(offset >= begin && offset < begin + bytes);
    return data + (offset - begin);
  }
};

// A run of rows and columns of one slice that fits a staging buffer, widened to whole storage units: the bytes
// [offset, offset + bytes) of the source, in which row i's columns begin at i * row_stride.
struct Piece {
  const checkpoint::StoredWeight* source = nullptr;
  const plan::Slice* slice = nullptr;
  model::LoadedTensor* tensor = nullptr;
  const model::LoadedPart* part = nullptr;  // null for vectors
  size_t band = 0;
  int64_t offset = 0, bytes = 0;
  int64_t row_stride = 0;
  int64_t row = 0, rows = 0;  // of the slice
  int64_t col = 0, cols = 0;  // of the source, whole units
  bool in_order = true;       // whole units of the source are whole in the destination
};

// A local tensor whose slices are in the order in which the checkpoint has them.
struct StoredTensor {
  plan::LocalTensor local;
  bool shared_units = false;  // slices side by side take columns of one unit

  // Whether a slice's columns stand in order in the destination, too, so that blocks can stay as they are.
  bool KeepsOrder(const plan::Slice& slice) const { return slice.col_step == 1 && !slice.transposed && !shared_units; }
};

StoredTensor InStoredOrder(const plan::LocalTensor& local, const StoredWeights& weights) {
  StoredTensor stored{local, false};
  stored.local.slices.clear();
  for (const plan::Slice& slice : local.slices) {
    const checkpoint::StoredWeight& weight = weights.at(slice.source);
    const int64_t unit = UnitColumns(weight);
    for (plan::Slice& piece : StoredSlices(slice, *weight.weight)) {
      const int64_t last = piece.src_col + piece.cols;
      const bool begins = piece.dst_col == 0 || piece.src_col % unit == 0;
      const bool ends = piece.dst_col + piece.cols == local.cols || last % unit == 0 || last == weight.cols;
      if (!piece.transposed && piece.col_step == 1 && !(begins && ends)) stored.shared_units = true;
      stored.local.slices.push_back(std::move(piece));
    }
  }
  return stored;
}

// The format of a slice in its local tensor. Blocks whose columns come apart become float32, which is exact.
kernels::WeightFormat SliceFormat(const StoredTensor& stored, const checkpoint::StoredWeight& weight,
                                  const plan::Slice& slice, Backend backend) {
  if (!IsElement(weight) && !stored.KeepsOrder(slice)) return kernels::WeightFormat::kF32;
  return kernels::FormatOn(backend, FormatOf(weight));
}

// Where in its block a slice begins, which is where the part's column 0 is stored.
int64_t PhaseOf(const StoredTensor& stored, const checkpoint::StoredWeight& weight, const plan::Slice& slice) {
  const int64_t unit = UnitColumns(weight);
  if (!stored.KeepsOrder(slice)) return 0;
  const int64_t phase = (slice.src_col - slice.dst_col) % unit;
  return phase < 0 ? phase + unit : phase;
}

// Cuts rows [row, row_end) of a slice into pieces. Rows that are wanted whole, or nearly, are read in one go with what
// lies between them; narrow columns of long rows are read row by row.
void AddPieces(const Piece& model, int64_t row, int64_t row_end, std::vector<Piece>* pieces) {
  const checkpoint::StoredWeight& source = *model.source;
  const plan::Slice& slice = *model.slice;
  const int64_t unit = UnitColumns(source), last = slice.src_col + (slice.cols - 1) * slice.col_step + 1;
  const int64_t begin = slice.src_col / unit * unit, end = std::min((last + unit - 1) / unit * unit, source.cols);
  const int64_t row_bytes = CodeBytes(source, source.cols), row_stride = slice.row_step * row_bytes;
  const bool together = row_stride <= 4 * CodeBytes(source, end - begin) || row_stride <= 4096;
  const int64_t rows_at_once = together ? std::max<int64_t>(1, kStagingBytes / row_stride) : 1;
  // A row longer than a staging buffer goes in parts, if it may.
  const int64_t units_at_once = std::max<int64_t>(1, kStagingBytes / std::max<int64_t>(1, CodeBytes(source, unit)));
  const int64_t cols_at_once = model.in_order ? std::min(end - begin, units_at_once * unit) : end - begin;
  for (; row < row_end; row += rows_at_once) {
    for (int64_t col = begin; col < end; col += cols_at_once) {
      Piece piece = model;
      piece.row = row;
      piece.rows = std::min(rows_at_once, row_end - row);
      piece.col = col;
      piece.cols = std::min(cols_at_once, end - col);
      piece.row_stride = row_stride;
      piece.offset = slice.src_row * row_bytes + row * row_stride + CodeBytes(source, col);
      piece.bytes = (piece.rows - 1) * row_stride + CodeBytes(source, piece.cols);
      pieces->push_back(piece);
    }
  }
}

// Puts pieces where they belong: vectors as float32, matrices as their format stores them.
class Store {
 public:
  Store(const checkpoint::Checkpoint& checkpoint, const BandPlace& place) : checkpoint_(checkpoint), place_(place) {}

  // Rows [begin, end) of the piece. Rows of different calls meet in no byte, so threads may share a piece.
  Status Put(const Piece& piece, std::span<const std::byte> bytes, int64_t begin, int64_t end) {
    const plan::Slice& slice = *piece.slice;
    const int64_t first = slice.src_row + piece.row * slice.row_step;
    TRY(blocks_.Start(checkpoint_, *piece.source, first + begin * slice.row_step,
                      (end - begin - 1) * slice.row_step + 1));
    const auto wanted = static_cast<size_t>(CodeBytes(*piece.source, piece.cols));
    for (int64_t i = begin; i < end; ++i) {
      int64_t count = 0;
      const auto codes = bytes.subspan(static_cast<size_t>(i * piece.row_stride), wanted);
      TRY_ASSIGN(const auto row, blocks_.Row(first + i * slice.row_step, piece.col, piece.cols, codes, &count));
      if (piece.part == nullptr) {
        TRY(PutVector(piece, piece.row + i, row));
      } else if (piece.in_order) {
        const int64_t k = piece.col - slice.src_col + slice.dst_col + piece.part->phase;
        PutColumns(piece, slice.dst_row + piece.row + i, k, {row, count});
      } else {
        TRY(PutElements(piece, piece.row + i, {row, count}));
      }
    }
    return {};
  }

 private:
  // Columns of a row as a format stores them.
  struct Columns {
    std::span<const std::byte> bytes;
    int64_t count = 0;
  };

  void PutColumns(const Piece& piece, int64_t row, int64_t k, const Columns& columns) const {
    const int64_t at = row - piece.part->row, tile_bytes = piece.tensor->Packed(*piece.part).tile_bytes();
    std::byte* tile = place_.At(piece.part->offset + at / kernels::kTileRows * tile_bytes);
    kernels::FormatRow(piece.part->format).store(columns.bytes.data(), columns.count, tile, at % kernels::kTileRows, k);
  }

  Status PutVector(const Piece& piece, int64_t i, std::span<const std::byte> row) {
    const plan::Slice& slice = *piece.slice;
    values_.resize(static_cast<size_t>(piece.cols));
    TRY(quant::DecodeToFloat(piece.source->weight->dtype, row, values_));
    if (piece.source->weight->negated_exp) TRY(UndoNegatedExp(piece.source->weight->name));
    auto* const out = reinterpret_cast<float*>(place_.At(0));
    for (int64_t j = 0; j * slice.col_step < piece.cols; ++j) {
      const int64_t col = (piece.col - slice.src_col) / slice.col_step + j;
      const int64_t dst_row = slice.dst_row + (slice.transposed ? col : i);
      const int64_t dst_col = slice.dst_col + (slice.transposed ? i : col);
      out[dst_row * piece.tensor->cols + dst_col] = values_[static_cast<size_t>(j * slice.col_step)];
    }
    return {};
  }

  // The logarithms, in double and rounded once, of what is stored with its sign changed.
  Status UndoNegatedExp(const std::string& name) {
    for (float& value : values_) {
      if (!(value < 0) || std::isinf(value)) {
        return MakeError(Code::kInvalid, fmt::format("{}: expected numbers below 0, found {}; the file is damaged, "
                                                     "fetch it again",
                                                     name, value));
      }
      value = static_cast<float>(std::log(-static_cast<double>(value)));
    }
    return {};
  }

  // Elements whose order changes, one by one.
  Status PutElements(const Piece& piece, int64_t i, Columns row) {
    const plan::Slice& slice = *piece.slice;
    int64_t element = tensor::UnitOf(piece.source->weight->dtype).bytes;
    if (!IsElement(*piece.source)) {
      values_.resize(static_cast<size_t>(row.count));
      quant::DecodeBlocks(BlocksOf(*piece.source), row.bytes, values_);
      row.bytes = std::as_bytes(std::span<const float>(values_));
      element = static_cast<int64_t>(sizeof(float));
    }
    for (int64_t j = 0; j < slice.cols; ++j) {
      const int64_t from = slice.src_col - piece.col + j * slice.col_step;
      const Columns one{row.bytes.subspan(static_cast<size_t>(from * element)), 1};
      slice.transposed ? PutColumns(piece, slice.dst_row + j, slice.dst_col + i, one)
                       : PutColumns(piece, slice.dst_row + i, slice.dst_col + j, one);
    }
    return {};
  }

  const checkpoint::Checkpoint& checkpoint_;
  BandPlace place_;
  RowBlocks blocks_;
  std::vector<float> values_;
};

// Stores a piece with all threads; the error is that of the first rows that have one.
Status PutPiece(const checkpoint::Checkpoint& checkpoint, const Piece& piece, std::span<const std::byte> bytes,
                const BandPlace& place, ThreadPool* pool) {
  // Less than half a tile would have threads write to one line of the cache.
  const int64_t grain = std::max(kernels::kTileRows / 2, piece.rows / (4 * pool->size()));
  std::vector<Status> status(static_cast<size_t>((piece.rows + grain - 1) / grain));
  pool->ParallelFor(piece.rows, grain, [&](int64_t begin, int64_t end) {
    status[static_cast<size_t>(begin / grain)] = Store(checkpoint, place).Put(piece, bytes, begin, end);
  });
  for (Status& one : status) TRY(std::move(one));
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
      status_[i % 2] = checkpoint_.Read(*pieces_[i].source->weight, pieces_[i].offset,
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

// The parts of a packed tensor, whose slices come in the order of their rows: a new one begins where a slice has
// another format or another phase. Rows without a slice belong to the part above them.
std::vector<model::LoadedPart> PartsOf(const StoredTensor& stored, const StoredWeights& weights, Backend backend) {
  const plan::LocalTensor& local = stored.local;
  std::vector<model::LoadedPart> parts;
  for (const plan::Slice& slice : local.slices) {
    const checkpoint::StoredWeight& weight = weights.at(slice.source);
    model::LoadedPart part;
    part.format = SliceFormat(stored, weight, slice, backend);
    part.phase = PhaseOf(stored, weight, slice);
    if (!parts.empty() && parts.back().format == part.format && parts.back().phase == part.phase) continue;
    part.row = parts.empty() ? 0 : slice.dst_row;
    parts.push_back(part);
  }
  if (parts.empty()) parts.emplace_back();
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].rows = (i + 1 < parts.size() ? parts[i + 1].row : local.rows) - parts[i].row;
  }
  return parts;
}

// Allocates a local tensor: zeros are the neutral fill of every format in the table.
Result<model::LoadedTensor> Allocate(const StoredTensor& stored, const StoredWeights& weights,
                                     const device::Device& device) {
  constexpr int64_t kAlignment = 64;
  const plan::LocalTensor& local = stored.local;
  model::LoadedTensor tensor;
  tensor.role = local.role;
  tensor.rows = local.rows;
  tensor.cols = local.cols;
  tensor.leaf = local.leaf;
  int64_t bytes = local.rows * local.cols * static_cast<int64_t>(sizeof(float));
  if (local.role != plan::Role::kVector) {
    tensor.parts = PartsOf(stored, weights, device.backend());
    bytes = 0;
    for (model::LoadedPart& part : tensor.parts) {
      part.offset = bytes;
      bytes += (tensor.Packed(part).bytes() + kAlignment - 1) / kAlignment * kAlignment;
    }
  }
  TRY_ASSIGN(tensor.buffer, device::Buffer::Make(device, bytes, local.name));
  return tensor;
}

// The part that a slice's rows belong to; null for vectors.
const model::LoadedPart* PartOf(const model::LoadedTensor& tensor, const plan::Slice& slice) {
  for (const model::LoadedPart& part : tensor.parts) {
    if (slice.dst_row >= part.row && slice.dst_row < part.row + part.rows) return &part;
  }
  return nullptr;
}

// All pieces of a shard, band after band.
struct Work {
  std::vector<Band> bands;
  std::vector<Piece> pieces;

  // What rows [row, row_end) of `tensor` need, which are a band.
  void Add(const StoredTensor& stored, const StoredWeights& weights, const Band& band, int64_t row, int64_t row_end) {
    for (const plan::Slice& slice : stored.local.slices) {
      Piece piece;
      piece.source = &weights.at(slice.source);
      piece.slice = &slice;
      piece.tensor = band.tensor;
      piece.part = PartOf(*band.tensor, slice);
      piece.band = bands.size();
      piece.in_order = stored.KeepsOrder(slice);
      const bool all = slice.transposed;  // such tensors are one band
      const int64_t begin = all ? 0 : std::max<int64_t>(0, row - slice.dst_row);
      AddPieces(piece, begin, all ? slice.rows : std::min(slice.rows, row_end - slice.dst_row), &pieces);
    }
    if (!pieces.empty() && pieces.back().band == bands.size()) bands.push_back(band);
  }
  // The bands of a tensor: as many tiles as fit, where those that a row belongs to are known.
  void Add(const StoredTensor& stored, const StoredWeights& weights, int64_t band_bytes, model::LoadedTensor* tensor) {
    const auto& slices = stored.local.slices;
    const bool turned = std::any_of(slices.begin(), slices.end(), [](const auto& slice) { return slice.transposed; });
    if (band_bytes == 0 || tensor->parts.empty() || turned) {
      return Add(stored, weights, {tensor, 0, tensor->buffer.bytes()}, 0, tensor->rows);
    }
    for (const model::LoadedPart& part : tensor->parts) {
      const int64_t tile_bytes = tensor->Packed(part).tile_bytes(), tiles = tensor->Packed(part).tiles();
      if (tile_bytes == 0) continue;  // no columns
      const int64_t at_once = std::max<int64_t>(1, band_bytes / tile_bytes);
      for (int64_t tile = 0; tile < tiles; tile += at_once) {
        const int64_t end = std::min(tile + at_once, tiles);
        const Band band{tensor, part.offset + tile * tile_bytes, (end - tile) * tile_bytes};
        Add(stored, weights, band, part.row + tile * kernels::kTileRows,
            part.row + std::min(end * kernels::kTileRows, part.rows));
      }
    }
  }
};

// Puts bands together, one after the other: where they stay, or in page-locked memory, from which they are copied while
// the next one is put together.
class Bands {
 public:
  Bands(const LoadTarget& target, const std::vector<Band>& bands) : target_(target), bands_(bands) {}
  ~Bands() { target_.device.Wait(); }
  Bands(const Bands&) = delete;
  Bands& operator=(const Bands&) = delete;

  Status Allocate() {
    if (target_.band_bytes == 0 || bands_.empty()) return {};
    int64_t most = 0;
    for (const Band& band : bands_) most = std::max(most, band.bytes);
    for (device::PageLocked& memory : staging_) {
      TRY_ASSIGN(memory, target_.device.MakePageLocked(most));
    }
    return {};
  }
  BandPlace Begin(size_t index) const {
    const Band& band = bands_[index];
    if (target_.band_bytes == 0) return {band.tensor->buffer.data(), 0, band.bytes};
    std::byte* const data = staging_[index % 2].get();
    constexpr int64_t kGrain = int64_t{1} << 20;
    target_.pool->ParallelFor(band.bytes, kGrain, [data](int64_t begin, int64_t end) {
      std::memset(data + begin, 0, static_cast<size_t>(end - begin));
    });
    return {data, band.begin, band.bytes};
  }
  void End(size_t index) const {
    const Band& band = bands_[index];
    if (target_.band_bytes == 0) return;
    target_.device.UploadPageLocked(band.tensor->buffer.data() + band.begin, staging_[index % 2].get(), band.bytes);
  }

 private:
  const LoadTarget& target_;
  const std::vector<Band>& bands_;
  device::PageLocked staging_[2];
};

}  // namespace

Result<model::LoadedTensors> LoadShard(const OpenedModel& model, const plan::ShardMap& map, const LoadTarget& target,
                                       const LoadProgress& progress, const LoadCheck& check) {
  CHECK(target.band_bytes > 0 || target.device.backend() == Backend::kCpu);
  TRY_ASSIGN(const StoredWeights weights, FindWeights(model, map));
  model::LoadedTensors tensors;
  Work work;
  int64_t total = 0, done = 0;
  std::vector<StoredTensor> stored_tensors;
  stored_tensors.reserve(map.tensors.size());
  for (const plan::LocalTensor& local : map.tensors) stored_tensors.push_back(InStoredOrder(local, weights));
  for (const StoredTensor& stored : stored_tensors) {
    TRY_ASSIGN(model::LoadedTensor allocated, Allocate(stored, weights, target.device));
    model::LoadedTensor& tensor = tensors.emplace(stored.local.name, std::move(allocated)).first->second;
    work.Add(stored, weights, target.band_bytes, &tensor);
  }
  const std::vector<Piece>& pieces = work.pieces;
  for (const Piece& piece : pieces) total += piece.bytes;
  Bands bands(target, work.bands);
  TRY(bands.Allocate());
  BandPlace place;
  ReadAhead reader(model.checkpoint, pieces);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t band = pieces[i].band;
    if (i == 0 || pieces[i - 1].band != band) place = bands.Begin(band);
    TRY_ASSIGN(const std::span<const std::byte> bytes, reader.Next(i));
    TRY(PutPiece(model.checkpoint, pieces[i], bytes, place, target.pool));
    done += pieces[i].bytes;
    if (i + 1 == pieces.size() || pieces[i + 1].band != band) bands.End(band);
    if (progress) progress(done, total);
    if (check) TRY(check());
  }
  return tensors;
}

}  // namespace trivet::engine
