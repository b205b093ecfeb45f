// SPDX-License-Identifier: Apache-2.0
#include "engine/expert_digests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash_stream.h"
#include "engine/find_weights.h"
#include "engine/source_values.h"
#include "kernels/weight_element.h"

namespace trivet::engine {
namespace {

// Rows or columns [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Four neighbouring rows of four columns of a BF16 tile, which are two words of every row, as rows of float32.
//   tile  the tile from the first of the rows and columns on
void CopyFourRows(const std::byte* tile, const ValuesAt& to) {
  using Words = uint32_t __attribute__((vector_size(16)));
  Words even, odd;  // columns 0 and 1, 2 and 3
  std::memcpy(&even, tile, sizeof(even));
  std::memcpy(&odd, tile + kernels::kTileRows * 4, sizeof(odd));
  const Words column[] = {even << 16, even & 0xffff0000U, odd << 16, odd & 0xffff0000U};
  const Words low01 = __builtin_shufflevector(column[0], column[1], 0, 4, 1, 5);
  const Words low23 = __builtin_shufflevector(column[2], column[3], 0, 4, 1, 5);
  const Words high01 = __builtin_shufflevector(column[0], column[1], 2, 6, 3, 7);
  const Words high23 = __builtin_shufflevector(column[2], column[3], 2, 6, 3, 7);
  const Words rows[] = {
      __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
      __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int64_t i = 0; i < 4; ++i) std::memcpy(to.at + i * to.row_stride, &rows[i], sizeof(rows[i]));
}

// Elements of one tile, whose values go row by row.
template <kernels::WeightFormat kFormat>
void CopyRows(const std::byte* tile, Range rows, Range cols, const ValuesAt& to) {
  const bool fours = kFormat == kernels::WeightFormat::kBF16 && cols.begin % 2 == 0;
  const int64_t row_end = fours ? rows.begin + rows.size() / 4 * 4 : rows.begin;
  const int64_t col_end = fours ? cols.begin + cols.size() / 4 * 4 : cols.begin;
  for (int64_t row = rows.begin; row < row_end; row += 4) {
    for (int64_t col = cols.begin; col < col_end; col += 4) {
      CopyFourRows(tile + (col / 2 * kernels::kTileRows + row) * 4, to.From(row - rows.begin, col - cols.begin));
    }
  }
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t begin = row < row_end ? col_end : cols.begin;
    float* out = to.From(row - rows.begin, begin - cols.begin).at;
    for (int64_t col = begin; col < cols.end; ++col) *out++ = kernels::LoadElement<kFormat>(tile, row, col);
  }
}

// Elements of one tile. All weights of all experts pass here, so the format is known inside, and what is written stands
// side by side.
template <kernels::WeightFormat kFormat>
void CopyTile(const std::byte* tile, Range rows, Range cols, const ValuesAt& to) {
  constexpr int64_t kColumns = 64;  // whose elements of 32 rows a first-level cache holds
  CHECK(to.row_stride == 1 || to.col_stride == 1);
  for (int64_t col = cols.begin; to.col_stride == 1 && col < cols.end; col += kColumns) {
    CopyRows<kFormat>(tile, rows, {col, std::min(col + kColumns, cols.end)}, to.From(0, col - cols.begin));
  }
  if (to.col_stride == 1) return;
  for (int64_t col = cols.begin; col < cols.end; ++col) {
    float* out = to.From(0, col - cols.begin).at;
    for (int64_t row = rows.begin; row < rows.end; ++row) *out++ = kernels::LoadElement<kFormat>(tile, row, col);
  }
}

using TileCopy = void (*)(const std::byte* tile, Range rows, Range cols, const ValuesAt& to);

// The copy of tiles of a format.
TileCopy CopyOf(kernels::WeightFormat format) {
  constexpr size_t kFormats = static_cast<size_t>(kernels::WeightFormat::kMxfp4Halves) + 1;
  static constexpr auto kCopies = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array<TileCopy, kFormats>{CopyTile<static_cast<kernels::WeightFormat>(kIndex)>...};
  }
  (std::make_index_sequence<kFormats>());
  return kCopies[static_cast<size_t>(format)];
}

// A loaded tensor where the processor reads it.
class Values {
 public:
  Values(const model::LoadedTensors& tensors, const device::Device& device, const std::string& name) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return;
    tensor_ = &found->second;
    data_ = tensor_->buffer.data();
    if (device.backend() == Backend::kCpu) return;
    copy_.resize(static_cast<size_t>(tensor_->buffer.bytes()));
    device.Download(copy_.data(), data_, tensor_->buffer.bytes());
    data_ = copy_.data();
  }

  bool present() const { return tensor_ != nullptr; }
  int64_t rows() const { return present() ? tensor_->rows : 0; }
  int64_t cols() const { return present() ? tensor_->cols : 0; }

  // Copies a rectangle; nothing of a tensor that is not there.
  void Copy(Range rows, Range cols, const ValuesAt& to) const {
    if (!present()) return;
    if (tensor_->parts.empty()) {
      const float* from = reinterpret_cast<const float*>(data_);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t col = cols.begin; col < cols.end; ++col) {
          *to.From(row - rows.begin, col - cols.begin).at = from[row * tensor_->cols + col];
        }
      }
      return;
    }
    for (const model::LoadedPart& part : tensor_->parts) {
      const kernels::PackedMatrix packed = tensor_->Packed(part);
      const TileCopy copy = CopyOf(packed.format);
      const int64_t end = std::min(rows.end, part.row + part.rows);
      for (int64_t row = std::max(rows.begin, part.row), next = 0; row < end; row = next) {
        const int64_t tile = (row - part.row) / kernels::kTileRows, first = part.row + tile * kernels::kTileRows;
        next = std::min(end, first + kernels::kTileRows);
        copy(data_ + part.offset + tile * packed.tile_bytes(), {row - first, next - first},
             {packed.phase + cols.begin, packed.phase + cols.end}, to.From(row - rows.begin, 0));
      }
    }
  }

 private:
  const model::LoadedTensor* tensor_ = nullptr;
  const std::byte* data_ = nullptr;
  std::vector<std::byte> copy_;
};

Digest HashValues(int64_t index, std::span<const float> values) {
  const Digest digest = Hash128(std::as_bytes(values));
  const uint64_t keyed[] = {static_cast<uint64_t>(index), digest.low, digest.high};
  return Hash128(std::as_bytes(std::span(keyed)));
}

// What is digested of a channel, side by side: its gate row, that row's bias if there is one, its up row likewise, and
// its column of `down`.
struct ChannelOrder {
  int64_t in = 0, bias = 0, out = 0;  // numbers of each

  int64_t row() const { return in + bias; }
  int64_t size() const { return 2 * row() + out; }
  // From one channel to the next: an odd number of cache lines, so that values of all channels meet in all sets.
  int64_t stride() const { return ((size() + 15) / 16 | 1) * 16; }
};

// Channels that are digested together: the rows of a tile, so that tiles are read front to back.
constexpr int64_t kChannels = kernels::kTileRows;

// The sum of the digests of channels.
//   begin  the channel that the first one is of the whole expert;  values  [channels, order.stride()]
Digest HashChannels(int64_t begin, const ChannelOrder& order, std::span<const float> values) {
  const auto size = static_cast<size_t>(order.size()), stride = static_cast<size_t>(order.stride());
  Digest sum;
  for (size_t i = 0; i * stride < values.size(); ++i) {
    sum = Add(sum, HashValues(begin + static_cast<int64_t>(i), values.subspan(i * stride, size)));
  }
  return sum;
}

// Calls digest(begin, end) for blocks of channels [0, channels), and adds up.
template <class Block>
Digest SumOfBlocks(int64_t channels, ThreadPool* pool, const Block& digest) {
  std::vector<Digest> digests(static_cast<size_t>((channels + kChannels - 1) / kChannels));
  pool->ParallelFor(channels, kChannels, [&](int64_t begin, int64_t end) {
    digests[static_cast<size_t>(begin / kChannels)] = digest(begin, end);
  });
  return std::accumulate(digests.begin(), digests.end(), Digest(), Add);
}

// The digest of the channels of one expert that a slot holds. Digests of disjoint channels add up to the expert's.
//   at        prefix of the slot's tensors, such as "layers.3.moe.expert.0."
//   channels  those that the slot holds
Digest SlotDigest(const model::LoadedTensors& tensors, const device::Device& device, const std::string& at,
                  const plan::WidthShard& channels, ThreadPool* pool) {
  const Values in(tensors, device, at + "gate_up"), out(tensors, device, at + "down");
  const Values in_bias(tensors, device, at + "gate_up_bias"), out_bias(tensors, device, at + "down_bias");
  const int64_t width = in.rows() / 2;  // gate rows, then up rows; pads stand behind the real ones of each
  const ChannelOrder order{in.cols(), in_bias.cols(), out.rows()};
  const int64_t stride = order.stride();
  const Digest sum = SumOfBlocks(channels.real, pool, [&](int64_t begin, int64_t end) {
    const auto count = static_cast<size_t>((end - begin) * stride);
    const auto memory = std::make_unique_for_overwrite<float[]>(count);
    const std::span<float> values(memory.get(), count);
    for (int64_t half = 0; half < 2; ++half) {
      const ValuesAt to{values.data() + half * order.row(), stride, 1};
      const Range rows{half * width + begin, half * width + end};
      in.Copy(rows, {0, in.cols()}, to);
      in_bias.Copy(rows, {0, in_bias.cols()}, to.From(0, order.in));
    }
    out.Copy({0, out.rows()}, {begin, end}, {values.data() + 2 * order.row(), 1, stride});
    return HashChannels(channels.begin + begin, order, values);
  });
  if (!out_bias.present()) return sum;
  // It belongs to no channel, and is on one rank.
  std::vector<float> values(static_cast<size_t>(out_bias.rows()));
  out_bias.Copy({0, out_bias.rows()}, {0, 1}, {values.data(), 1, 1});
  return Add(sum, HashValues(-1, values));
}

// Experts as the checkpoint has them, one after the other.
class SourceExperts {
 public:
  // All of them, of the model in one piece.
  static Result<SourceExperts> Make(const OpenedModel& model) {
    SourceExperts experts(model);
    TRY_ASSIGN(const plan::Layout one, plan::MakeLayout(model.geometry, {}));
    plan::ShardMap map = plan::MakeShardMap(model.geometry, one, 0, model.names);
    std::erase_if(map.tensors, [](const plan::LocalTensor& tensor) {
      return tensor.name.find(".moe.expert.") == std::string::npos;
    });
    TRY_ASSIGN(experts.weights_, FindWeights(model, map));
    for (plan::LocalTensor& tensor : map.tensors) experts.tensors_.emplace(tensor.name, std::move(tensor));
    return experts;
  }

  // The digest of the expert whose tensors' names begin with `at`: what SlotDigest gives for all its channels.
  // Errors:  those of reading.
  Result<Digest> ReadDigest(const std::string& at, ThreadPool* pool) {
    const int64_t width = model_.geometry.moe.width;
    const plan::LocalTensor &in = tensors_.at(at + "gate_up"), &out = tensors_.at(at + "down");
    const auto in_bias = tensors_.find(at + "gate_up_bias"), out_bias = tensors_.find(at + "down_bias");
    const bool biased = in_bias != tensors_.end();
    const ChannelOrder order{in.cols, biased ? 1 : 0, out.rows};
    const int64_t stride = order.stride();
    values_.resize(static_cast<size_t>(width * stride));
    for (int64_t half = 0; half < 2; ++half) {
      const ValuesAt to{values_.data() + half * order.row(), stride, 1};
      TRY(Read(in, {half * in.rows / 2, (half + 1) * in.rows / 2}, to, pool));
      if (biased) TRY(Read(in_bias->second, {half * in.rows / 2, (half + 1) * in.rows / 2}, to.From(0, in.cols), pool));
    }
    TRY(Read(out, {0, out.rows}, {values_.data() + 2 * order.row(), 1, stride}, pool));
    const Digest sum = SumOfBlocks(width, pool, [&](int64_t begin, int64_t end) {
      const auto values = std::span<const float>(values_).subspan(static_cast<size_t>(begin * stride),
                                                                  static_cast<size_t>((end - begin) * stride));
      return HashChannels(begin, order, values);
    });
    if (out_bias == tensors_.end()) return sum;
    values_.resize(static_cast<size_t>(out_bias->second.rows));
    TRY(Read(out_bias->second, {0, out_bias->second.rows}, {values_.data(), 1, 1}, pool));
    return Add(sum, HashValues(-1, values_));
  }

 private:
  explicit SourceExperts(const OpenedModel& model) : model_(model) {}

  // The slices that stand in `rows` of a tensor.
  //   to  where row rows.begin of the tensor goes, and its strides
  Status Read(const plan::LocalTensor& tensor, Range rows, const ValuesAt& to, ThreadPool* pool) {
    for (const plan::Slice& slice : tensor.slices) {
      if (slice.dst_row < rows.begin || slice.dst_row >= rows.end) continue;
      ValuesAt at = to.From(slice.dst_row - rows.begin, slice.dst_col);
      if (slice.transposed) std::swap(at.row_stride, at.col_stride);
      TRY(ReadValues(model_.checkpoint, weights_.at(slice.source), slice, at, pool));
    }
    return {};
  }

  const OpenedModel& model_;
  StoredWeights weights_;
  std::unordered_map<std::string, plan::LocalTensor> tensors_;
  std::vector<float> values_;  // of one expert
};

// Part of a tensor of the checkpoint, and the digest of its bytes.
struct Piece {
  size_t tensor = 0;
  int64_t offset = 0;
  Digest digest;
};
constexpr int64_t kPieceBytes = int64_t{4} << 20;

Status Read(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& info, Piece* piece) {
  constexpr int64_t kReadBytes = int64_t{1} << 16;  // what a thread's cache holds
  const int64_t end = std::min(piece->offset + kPieceBytes, info.bytes);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(kReadBytes);
  HashStream hash;
  for (int64_t at = piece->offset; at < end; at += kReadBytes) {
    const std::span<std::byte> bytes(memory.get(), static_cast<size_t>(std::min(kReadBytes, end - at)));
    TRY(checkpoint.Read(info, at, bytes));
    hash.Update(bytes);
  }
  piece->digest = hash.Finish();
  return {};
}

std::string SlotPrefix(int64_t layer, int64_t slot) { return fmt::format("layers.{}.moe.expert.{}.", layer, slot); }

std::vector<int64_t> MoeLayers(const plan::Geometry& geometry) {
  std::vector<int64_t> layers;
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    if (geometry.layers[i].channel_mixer == plan::ChannelMixer::kMoe) layers.push_back(static_cast<int64_t>(i));
  }
  return layers;
}

}  // namespace

Result<Json> ExpertDigests(const OpenedModel& model, const ExpertPlace& place, const model::LoadedTensors& tensors,
                           const device::Device& device, ThreadPool* pool) {
  Json experts = Json::array(), reference = Json::array();
  const plan::Geometry& geometry = model.geometry;
  const plan::ExpertShard& shard = place.shard.experts;
  TRY_ASSIGN(SourceExperts source, SourceExperts::Make(model));
  int64_t index = 0;  // of all experts of all layers, which ranks take in turns
  for (const int64_t layer : MoeLayers(geometry)) {
    const bool held = layer >= place.shard.stage.begin && layer < place.shard.stage.end;
    for (size_t slot = 0; held && slot < shard.slots.size(); ++slot) {
      const int64_t logical = shard.slots[slot];
      if (logical < 0) continue;
      const Digest digest =
          SlotDigest(tensors, device, SlotPrefix(layer, static_cast<int64_t>(slot)), shard.channels, pool);
      experts.push_back({{"layer", layer}, {"slot", slot}, {"logical", logical}, {"digest", Hex(digest)}});
    }
    for (int64_t expert = 0; expert < geometry.moe.experts; ++expert, ++index) {
      if (index % place.ranks != place.rank) continue;
      TRY_ASSIGN(const Digest digest, source.ReadDigest(SlotPrefix(layer, expert), pool));
      reference.push_back({{"layer", layer}, {"expert", expert}, {"digest", Hex(digest)}});
    }
  }
  return Json{{"experts", experts}, {"reference", reference}};
}

Result<Digest> CheckpointDigest(const checkpoint::Checkpoint& checkpoint, ThreadPool* pool) {
  const std::vector<checkpoint::TensorInfo>& tensors = checkpoint.tensors();
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (int64_t at = 0; at < tensors[i].bytes; at += kPieceBytes) pieces.push_back({i, at, {}});
  }
  std::mutex mutex;
  Status status;  // the first that failed
  pool->ParallelFor(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Piece& piece = pieces[static_cast<size_t>(i)];
      const Status read = Read(checkpoint, tensors[piece.tensor], &piece);
      const std::lock_guard<std::mutex> lock(mutex);
      if (!read.ok() && status.ok()) status = read;
    }
  });
  TRY(status);
  Digest sum;
  size_t next = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const checkpoint::TensorInfo& info = tensors[i];
    Digest content =
        Hash128(fmt::format("{} {} [{}]", info.name, static_cast<int>(info.dtype), fmt::join(info.shape, ",")));
    for (; next < pieces.size() && pieces[next].tensor == i; ++next) {
      const Digest& piece = pieces[next].digest;
      const uint64_t chained[] = {content.low, content.high, piece.low, piece.high};
      content = Hash128(std::as_bytes(std::span(chained)));
    }
    sum = Add(sum, content);
  }
  return sum;
}

}  // namespace trivet::engine
