// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <fmt/format.h>

namespace trivet::model {
namespace {

// Looks tensors up by name; a rank that holds none of an axis has no such tensor, which gives an empty view.
class Binder {
 public:
  explicit Binder(const LoadedTensors& tensors) : tensors_(tensors) {}

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
  // [channels, W] in the checkpoint, [W, channels] for the kernel, whose vectors run over channels.
  std::vector<float> Taps(const std::string& name, int64_t width) const {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return {};
    const std::span<const float> source = it->second.buffer.As<float>();
    const int64_t channels = it->second.rows;
    std::vector<float> taps(static_cast<size_t>(channels * width));
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t j = 0; j < width; ++j) {
        taps[static_cast<size_t>(j * channels + c)] = source[static_cast<size_t>(c * width + j)];
      }
    }
    return taps;
  }

 private:
  const LoadedTensors& tensors_;
};

LayerWeights BindLayer(const Binder& bind, const plan::Geometry& geometry, const plan::RankShard& shard, size_t index) {
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
    layer.delta_net = {bind.AMatrix(at + "gdn.in"),
                       bind.AMatrix(at + "gdn.out"),
                       bind.Taps(at + "gdn.conv", geometry.delta_net.conv_width),
                       bind.AVector(at + "gdn.a_log"),
                       bind.AVector(at + "gdn.dt_bias"),
                       bind.AVector(at + "gdn.norm")};
  }
  if (geometry.layers[index].channel_mixer == plan::ChannelMixer::kMlp) {
    layer.mlp = bind.AnMlp(at + "mlp");
  } else {
    layer.moe.router = bind.AMatrix(at + "moe.router");
    layer.moe.router_bias = bind.AVector(at + "moe.router_bias");
    layer.moe.correction = bind.AVector(at + "moe.correction");
    for (size_t slot = 0; slot < shard.experts.slots.size(); ++slot) {
      layer.moe.experts.push_back(bind.AnMlp(fmt::format("{}moe.expert.{}", at, slot)));
    }
    layer.moe.shared = bind.AnMlp(at + "moe.shared");
  }
  return layer;
}

}  // namespace

Weights Weights::Bind(const plan::Geometry& geometry, const plan::RankShard& shard, LoadedTensors tensors) {
  Weights weights;
  weights.tensors = std::move(tensors);
  const Binder bind(weights.tensors);
  weights.embed = bind.AMatrix("embed");
  weights.head = geometry.tied_head ? weights.embed : bind.AMatrix("head");
  weights.final_norm = bind.AVector("final_norm");
  CHECK(weights.final_norm != nullptr);
  int64_t seen[2] = {};  // layers so far, with pages and with states
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    weights.layers.push_back(BindLayer(bind, geometry, shard, i));
    weights.layers.back().index = seen[plan::HasKv(geometry.layers[i].mixer) ? 0 : 1]++;
  }
  return weights;
}

int64_t Weights::bytes() const {
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors) total += tensor.buffer.bytes();
  return total;
}

}  // namespace trivet::model
