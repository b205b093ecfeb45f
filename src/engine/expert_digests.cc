// SPDX-License-Identifier: Apache-2.0
#include "engine/expert_digests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/load.h"
#include "kernels/weight_element.h"

namespace trivet::engine {
namespace {

// A loaded tensor where the processor reads it, row by row or column by column.
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

  // Appends a row.
  void AddRow(int64_t row, std::vector<float>* values) const {
    if (tensor_->parts.empty()) {
      const float* from = reinterpret_cast<const float*>(data_) + row * tensor_->cols;
      values->insert(values->end(), from, from + tensor_->cols);
      return;
    }
    const model::LoadedPart* part = tensor_->parts.data();
    while (row >= part->row + part->rows) ++part;
    AddElements(*part, {row - part->row, row - part->row + 1}, {0, tensor_->cols}, values);
  }
  // Appends a column.
  void AddColumn(int64_t col, std::vector<float>* values) const {
    for (int64_t row = 0; tensor_->parts.empty() && row < tensor_->rows; ++row) {
      values->push_back(reinterpret_cast<const float*>(data_)[row * tensor_->cols + col]);
    }
    for (const model::LoadedPart& part : tensor_->parts) AddElements(part, {0, part.rows}, {col, col + 1}, values);
  }

 private:
  struct Range {
    int64_t begin = 0, end = 0;
  };

  // Appends elements of a part, row by row. All weights of all experts pass here, so the format is known inside.
  void AddElements(const model::LoadedPart& part, Range rows, Range cols, std::vector<float>* values) const {
    const kernels::PackedMatrix packed = tensor_->Packed(part);
    const int64_t tile_bytes = packed.tile_bytes();
    size_t at = values->size();
    values->resize(at + static_cast<size_t>((rows.end - rows.begin) * (cols.end - cols.begin)));
    WithFormat(packed.format, [&](auto format) {
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        const std::byte* tile = data_ + part.offset + row / kernels::kTileRows * tile_bytes;
        for (int64_t col = cols.begin; col < cols.end; ++col) {
          (*values)[at++] =
              kernels::LoadElement<decltype(format)::value>(tile, row % kernels::kTileRows, packed.phase + col);
        }
      }
    });
  }

  // Calls `body` with the format as a type.
  template <class Body>
  static void WithFormat(kernels::WeightFormat format, const Body& body) {
    const auto index = static_cast<size_t>(format);
    [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
      const auto call = [&]<size_t kOne>() {
        if (kOne == index)
          body(std::integral_constant<kernels::WeightFormat, static_cast<kernels::WeightFormat>(kOne)>());
      };
      (call.template operator()<kIndex>(), ...);
    }
    (std::make_index_sequence<static_cast<size_t>(kernels::WeightFormat::kFp8) + 1>());
  }

  const model::LoadedTensor* tensor_ = nullptr;
  const std::byte* data_ = nullptr;
  std::vector<std::byte> copy_;
};

Digest HashValues(int64_t index, const std::vector<float>& values) {
  const Digest digest = Hash128(std::as_bytes(std::span(values)));
  const uint64_t keyed[] = {static_cast<uint64_t>(index), digest.low, digest.high};
  return Hash128(std::as_bytes(std::span(keyed)));
}

// Loads one expert of the model whole, without the other ones.
Result<model::LoadedTensors> LoadExpert(const OpenedModel& model, const plan::ShardMap& whole, const std::string& at,
                                        ThreadPool* pool) {
  plan::ShardMap map;
  for (const plan::LocalTensor& tensor : whole.tensors) {
    if (tensor.name.starts_with(at)) map.tensors.push_back(tensor);
  }
  return LoadShard(model, map, {device::Device(), pool}, {}, {});
}

// Part of a tensor of the checkpoint, and the digest of its bytes.
struct Piece {
  size_t tensor = 0;
  int64_t offset = 0;
  Digest digest;
};
constexpr int64_t kPieceBytes = int64_t{4} << 20;

Status Read(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& info, Piece* piece) {
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(kPieceBytes, info.bytes - piece->offset)));
  TRY(checkpoint.Read(info, piece->offset, bytes));
  piece->digest = Hash128(std::span<const std::byte>(bytes));
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

Digest SlotDigest(const model::LoadedTensors& tensors, const device::Device& device, const std::string& at,
                  const plan::WidthShard& channels, ThreadPool* pool) {
  const Values in(tensors, device, at + "gate_up"), out(tensors, device, at + "down");
  const Values in_bias(tensors, device, at + "gate_up_bias"), out_bias(tensors, device, at + "down_bias");
  const int64_t width = in.rows() / 2;  // gate rows, then up rows; pads stand behind the real ones of each
  std::vector<Digest> digests(static_cast<size_t>(channels.real));
  pool->ParallelFor(channels.real, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values;
    for (int64_t c = begin; c < end; ++c) {
      values.clear();
      for (const int64_t row : {c, width + c}) {
        in.AddRow(row, &values);
        if (in_bias.present()) in_bias.AddRow(row, &values);
      }
      out.AddColumn(c, &values);
      digests[static_cast<size_t>(c)] = HashValues(channels.begin + c, values);
    }
  });
  Digest sum;
  for (const Digest& digest : digests) sum = Add(sum, digest);
  if (!out_bias.present()) return sum;
  // It belongs to no channel, and is on one rank.
  std::vector<float> values;
  out_bias.AddColumn(0, &values);
  return Add(sum, HashValues(-1, values));
}

Result<Json> ExpertDigests(const OpenedModel& model, const ExpertPlace& place, const model::LoadedTensors& tensors,
                           const device::Device& device, ThreadPool* pool) {
  Json experts = Json::array(), reference = Json::array();
  const plan::Geometry& geometry = model.geometry;
  const plan::ExpertShard& shard = place.shard.experts;
  TRY_ASSIGN(const plan::Layout one, plan::MakeLayout(geometry, {}));
  const plan::ShardMap whole = plan::MakeShardMap(geometry, one, 0, model.names);
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
      const std::string at = SlotPrefix(layer, expert);
      TRY_ASSIGN(const model::LoadedTensors loaded, LoadExpert(model, whole, at, pool));
      const Digest digest = SlotDigest(loaded, device::Device(), at, one.shards[0].experts.channels, pool);
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
