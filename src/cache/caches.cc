// SPDX-License-Identifier: Apache-2.0
#include "cache/caches.h"

namespace trivet::cache {

Result<Caches::Block> Caches::MakeBlock(int64_t elements, const char* what) {
  TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(elements * static_cast<int64_t>(sizeof(float)), what));
  Block block;
  block.data = buffer.As<float>().data();
  block.buffer = std::move(buffer);
  return block;
}

Result<Caches> Caches::Make(const plan::Geometry& geometry, const plan::RankShard& shard, const CacheLimits& limits) {
  Caches caches;
  const plan::DeltaNetGeometry& delta = geometry.delta_net;
  caches.kv_layer_elements_ = limits.pages * shard.attention.kv_heads * kPageTokens * geometry.attention.head_dim;
  caches.state_stride_ = shard.delta_net.v_heads * delta.k_dim * delta.v_dim;
  const int64_t channels = 2 * shard.delta_net.k_heads * delta.k_dim + shard.delta_net.v_heads * delta.v_dim;
  caches.conv_stride_ = (delta.conv_width - 1) * channels;
  for (const plan::LayerGeometry& layer : geometry.layers) {
    if (layer.mixer == plan::Mixer::kAttention) {
      TRY_ASSIGN(Block kv, MakeBlock(2 * caches.kv_layer_elements_, "KV cache"));
      caches.kv_.push_back(std::move(kv));
    } else {
      TRY_ASSIGN(Block state, MakeBlock(limits.state_slots * caches.state_stride_, "delta-net states"));
      TRY_ASSIGN(Block conv, MakeBlock(limits.state_slots * caches.conv_stride_, "convolution states"));
      caches.state_.push_back(std::move(state));
      caches.conv_.push_back(std::move(conv));
    }
  }
  return caches;
}

int64_t Caches::bytes() const {
  int64_t total = 0;
  for (const auto* blocks : {&kv_, &state_, &conv_}) {
    for (const Block& block : *blocks) total += block.buffer.bytes();
  }
  return total;
}

}  // namespace trivet::cache
