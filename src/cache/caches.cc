// SPDX-License-Identifier: Apache-2.0
#include "cache/caches.h"

#include <initializer_list>
#include <limits>

namespace trivet::cache {
namespace {

// The product of sizes, or the largest integer when it does not fit: more than any machine has.
int64_t Product(std::initializer_list<int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (__builtin_mul_overflow(product, size, &product)) return std::numeric_limits<int64_t>::max();
  }
  return product;
}

}  // namespace

Result<Caches::Block> Caches::MakeBlock(const device::Device& device, int64_t elements, const char* what) {
  TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(device, Product({elements, sizeof(float)}), what));
  Block block;
  block.data = buffer.As<float>().data();
  block.buffer = std::move(buffer);
  return block;
}

Result<Caches> Caches::Make(const device::Device& device, const plan::Geometry& geometry, const plan::RankShard& shard,
                            const CacheLimits& limits) {
  Caches caches;
  caches.device_ = device;
  const plan::DeltaNetGeometry& delta = geometry.delta_net;
  const int64_t kv_heads = shard.attention.kv_heads;
  caches.key_elements_ = Product({limits.pages, kv_heads, kPageTokens, geometry.key_dim()});
  caches.state_stride_ = Product({shard.delta_net.v_heads, delta.k_dim, delta.v_dim});
  const int64_t channels = 2 * shard.delta_net.k_heads * delta.k_dim + shard.delta_net.v_heads * delta.v_dim;
  caches.conv_stride_ = Product({delta.conv_width - 1, channels});
  for (const plan::LayerGeometry& layer : geometry.layers) {
    if (plan::HasKv(layer.mixer)) {
      const int64_t both = geometry.key_dim() + geometry.value_dim();
      TRY_ASSIGN(Block kv, MakeBlock(device, Product({limits.pages, kv_heads, kPageTokens, both}), "KV cache"));
      caches.kv_.push_back(std::move(kv));
    } else {
      TRY_ASSIGN(Block state,
                 MakeBlock(device, Product({limits.state_slots, caches.state_stride_}), "delta-net states"));
      TRY_ASSIGN(Block conv,
                 MakeBlock(device, Product({limits.state_slots, caches.conv_stride_}), "convolution states"));
      caches.state_.push_back(std::move(state));
      caches.conv_.push_back(std::move(conv));
    }
  }
  return caches;
}

void Caches::CopyState(int64_t from, int64_t to) {
  const auto copy = [&](const std::vector<Block>& layers, int64_t stride) {
    const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
    for (const Block& layer : layers) device_.Copy(layer.data + to * stride, layer.data + from * stride, bytes);
  };
  copy(state_, state_stride_);
  copy(conv_, conv_stride_);
}

int64_t Caches::bytes() const {
  int64_t total = 0;
  for (const auto* blocks : {&kv_, &state_, &conv_}) {
    for (const Block& block : *blocks) total += block.buffer.bytes();
  }
  return total;
}

}  // namespace trivet::cache
