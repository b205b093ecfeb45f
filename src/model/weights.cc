// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet::model {
namespace {

// Looks tensors up by name; a rank that holds none of an axis has no such tensor, which gives an empty view.
class Binder {
 public:
  Binder(const device::Device& device, const LoadedTensors& tensors, std::vector<device::Buffer>* tables)
      : device_(device), tensors_(tensors), tables_(tables) {}

  Matrix AMatrix(const std::string& name) const {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return {};
    const LoadedTensor& tensor = it->second;
    Matrix matrix{tensor.rows, tensor.cols, {}};
    for (const LoadedPart& part : tensor.parts) matrix.parts.push_back({tensor.Packed(part), part.row});
    return matrix;
  }
  const float* AVector(const std::string& name) const {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : it->second.buffer.As<float>().data();
  }
  MlpWeights AnMlp(const std::string& prefix) const {
    return {AMatrix(prefix + ".gate_up"), AMatrix(prefix + ".down"), AVector(prefix + ".gate_up_bias"),
            AMatrix(prefix + ".down_bias")};
  }
  // Matrices of all slots in as many tables as it takes: parts of one slot go to different ones.
  Result<std::vector<ExpertMatrices>> Experts(const std::string& prefix, const char* name, size_t slots) {
    std::vector<ExpertMatrices> all;
    for (size_t slot = 0; slot < slots; ++slot) {
      const Matrix matrix = AMatrix(fmt::format("{}{}.{}", prefix, slot, name));
      for (const Matrix::Part& part : matrix.parts) {
        auto table = std::find_if(all.begin(), all.end(), [&](const ExpertMatrices& one) {
          return one.row == part.row && one.n == part.packed.n && one.k == part.packed.k && one.w[slot].n == 0;
        });
        if (table == all.end()) {
          table = all.insert(table, {part.row, part.packed.n, part.packed.k, {}, nullptr});
          table->w.resize(slots);
        }
        table->w[slot] = part.packed;
      }
    }
    for (ExpertMatrices& table : all) {
      const auto bytes = static_cast<int64_t>(table.w.size() * sizeof(kernels::PackedMatrix));
      TRY_ASSIGN(std::byte * there, Table(bytes));
      device_.Upload(there, table.w.data(), bytes);
      table.device = reinterpret_cast<const kernels::PackedMatrix*>(there);
    }
    return all;
  }

  // Vectors of all slots, one below the other; null when there are none.
  Result<const float*> Biases(const std::string& prefix, const char* name, size_t slots) {
    std::byte* there = nullptr;
    for (size_t slot = 0; slot < slots; ++slot) {
      const auto it = tensors_.find(fmt::format("{}{}.{}", prefix, slot, name));
      if (it == tensors_.end()) continue;
      const int64_t bytes = it->second.rows * static_cast<int64_t>(sizeof(float));
      if (there == nullptr) {
        TRY_ASSIGN(there, Table(bytes * static_cast<int64_t>(slots)));
      }
      device_.Copy(there + static_cast<int64_t>(slot) * bytes, it->second.buffer.data(), bytes);
    }
    return reinterpret_cast<const float*>(there);
  }

  Result<ExpertWeights> AllExperts(const std::string& prefix, const plan::ExpertShard& shard) {
    const size_t slots = shard.slots.size();
    ExpertWeights experts;
    experts.slots = static_cast<int64_t>(slots);
    experts.width = slots == 0 ? 0 : shard.channels.width;
    TRY_ASSIGN(experts.gate_up, Experts(prefix, "gate_up", slots));
    TRY_ASSIGN(experts.down, Experts(prefix, "down", slots));
    TRY_ASSIGN(experts.down_bias, Experts(prefix, "down_bias", slots));
    TRY_ASSIGN(experts.gate_up_bias, Biases(prefix, "gate_up_bias", slots));
    return experts;
  }

 private:
  Result<std::byte*> Table(int64_t bytes) {
    TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(device_, bytes, "tables of experts"));
    tables_->push_back(std::move(buffer));
    return tables_->back().data();
  }

  const device::Device& device_;
  const LoadedTensors& tensors_;
  std::vector<device::Buffer>* tables_;
};

Result<LayerWeights> BindLayer(Binder& bind, const plan::Geometry& geometry, const plan::RankShard& shard,
                               size_t index) {
  const std::string at = fmt::format("layers.{}.", index);
  LayerWeights layer;
  layer.input_norm = bind.AVector(at + "input_norm");
  layer.post_norm = bind.AVector(at + "post_norm");
  CHECK(layer.input_norm != nullptr && layer.post_norm != nullptr);
  layer.mixer_norm = bind.AVector(at + "mixer_norm");
  layer.channel_norm = bind.AVector(at + "channel_norm");
  if (geometry.layers[index].mixer == plan::Mixer::kAttention) {
    layer.attention = {bind.AMatrix(at + "attn.qkv"),      bind.AMatrix(at + "attn.o"),
                       bind.AVector(at + "attn.q_norm"),   bind.AVector(at + "attn.k_norm"),
                       bind.AVector(at + "attn.qkv_bias"), bind.AVector(at + "attn.sinks"),
                       bind.AMatrix(at + "attn.o_bias")};
  } else if (geometry.layers[index].mixer == plan::Mixer::kLatentAttention) {
    layer.latent = {bind.AMatrix(at + "attn.down"),       bind.AVector(at + "attn.down_bias"),
                    bind.AVector(at + "attn.query_norm"), bind.AVector(at + "attn.latent_norm"),
                    bind.AMatrix(at + "attn.q"),          bind.AMatrix(at + "attn.key_up"),
                    bind.AMatrix(at + "attn.value_up"),   bind.AMatrix(at + "attn.o"),
                    bind.AMatrix(at + "attn.o_bias")};
  } else {
    layer.delta_net = {bind.AMatrix(at + "gdn.in"),    bind.AMatrix(at + "gdn.out"),     bind.AVector(at + "gdn.conv"),
                       bind.AVector(at + "gdn.a_log"), bind.AVector(at + "gdn.dt_bias"), bind.AVector(at + "gdn.norm")};
  }
  if (geometry.layers[index].channel_mixer == plan::ChannelMixer::kMlp) {
    layer.mlp = bind.AnMlp(at + "mlp");
  } else {
    layer.moe.router = bind.AMatrix(at + "moe.router");
    layer.moe.router_bias = bind.AVector(at + "moe.router_bias");
    layer.moe.correction = bind.AVector(at + "moe.correction");
    TRY_ASSIGN(layer.moe.experts, bind.AllExperts(at + "moe.expert.", shard.experts));
    layer.moe.shared = bind.AnMlp(at + "moe.shared");
  }
  return layer;
}

}  // namespace

Result<Weights> Weights::Bind(const device::Device& device, const plan::Geometry& geometry,
                              const plan::RankShard& shard, LoadedTensors tensors) {
  Weights weights;
  weights.tensors = std::move(tensors);
  Binder bind(device, weights.tensors, &weights.tables);
  weights.embed = bind.AMatrix("embed");
  weights.head = geometry.tied_head ? weights.embed : bind.AMatrix("head");
  weights.final_norm = bind.AVector("final_norm");
  CHECK(weights.final_norm != nullptr || !shard.stage.last);
  int64_t seen[2] = {};  // layers so far, with pages and with states
  for (int64_t i = shard.stage.begin; i < shard.stage.end; ++i) {
    const auto at = static_cast<size_t>(i);
    TRY_ASSIGN(LayerWeights layer, BindLayer(bind, geometry, shard, at));
    layer.index = seen[plan::HasKv(geometry.layers[at].mixer) ? 0 : 1]++;
    weights.layers.push_back(std::move(layer));
  }
  return weights;
}

int64_t Weights::bytes() const {
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors) total += tensor.buffer.bytes();
  return total;
}

}  // namespace trivet::model
