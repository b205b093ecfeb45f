// SPDX-License-Identifier: Apache-2.0
#include "cache/caches.h"

#include <algorithm>
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

int64_t ConvChannels(const plan::Geometry& geometry, const plan::RankShard& shard) {
  return 2 * shard.delta_net.k_heads * geometry.delta_net.k_dim + shard.delta_net.v_heads * geometry.delta_net.v_dim;
}

int64_t Sum(int64_t a, int64_t b) { return __builtin_add_overflow(a, b, &a) ? std::numeric_limits<int64_t>::max() : a; }

}  // namespace

int64_t RingPages(const plan::LayerGeometry& layer, const CacheLimits& limits) {
  if (layer.window == 0 || !plan::HasKv(layer.mixer)) return 0;
  // n consecutive positions touch at most (n - 2) / 64 + 2 pages.
  const int64_t pages = (layer.window - 1 + limits.chunk - 2 + kPageTokens) / kPageTokens + 1;
  return std::min(pages, (limits.context + kPageTokens - 1) / kPageTokens);
}

CacheUnits UnitsOf(const plan::Geometry& geometry, const plan::RankShard& shard, const CacheLimits& limits) {
  constexpr auto kElement = static_cast<int64_t>(sizeof(float));
  const plan::DeltaNetGeometry& delta = geometry.delta_net;
  const int64_t page =
      Product({shard.attention.kv_heads, kPageTokens, geometry.key_dim() + geometry.value_dim(), kElement});
  CacheUnits units;
  for (const plan::LayerGeometry& layer : geometry.layers) {
    if (const int64_t ring = RingPages(layer, limits); ring > 0) {
      units.slot = Sum(units.slot, Product({ring, page}));
    } else if (plan::HasKv(layer.mixer)) {
      units.page = Sum(units.page, page);
    } else {
      const int64_t conv = Product({delta.conv_width - 1, ConvChannels(geometry, shard), kElement});
      units.slot = Sum(units.slot, Sum(Product({shard.delta_net.v_heads, delta.k_dim, delta.v_dim, kElement}), conv));
    }
  }
  return units;
}

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
  caches.slots_ = limits.state_slots;
  caches.state_stride_ = Product({shard.delta_net.v_heads, delta.k_dim, delta.v_dim});
  caches.conv_stride_ = Product({delta.conv_width - 1, ConvChannels(geometry, shard)});
  for (const plan::LayerGeometry& layer : geometry.layers) {
    if (plan::HasKv(layer.mixer)) {
      const int64_t ring = RingPages(layer, limits);
      const int64_t pages = ring > 0 ? Product({limits.state_slots, ring}) : limits.pages;
      const int64_t both = geometry.key_dim() + geometry.value_dim();
      TRY_ASSIGN(Block kv, MakeBlock(device, Product({pages, kv_heads, kPageTokens, both}), "KV cache"));
      kv.ring = ring;
      kv.key_elements = Product({pages, kv_heads, kPageTokens, geometry.key_dim()});
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

std::vector<int64_t> Caches::rings() const {
  std::vector<int64_t> rings;
  for (const Block& layer : kv_) {
    if (layer.ring > 0 && std::find(rings.begin(), rings.end(), layer.ring) == rings.end()) rings.push_back(layer.ring);
  }
  return rings;
}

void Caches::CopyState(int64_t from, int64_t to) {
  const auto copy = [&](float* data, int64_t stride) {
    device_.Copy(data + to * stride, data + from * stride, stride * static_cast<int64_t>(sizeof(float)));
  };
  for (const Block& layer : state_) copy(layer.data, state_stride_);
  for (const Block& layer : conv_) copy(layer.data, conv_stride_);
  for (const Block& layer : kv_) {
    if (layer.ring == 0) continue;
    const int64_t elements = layer.buffer.bytes() / static_cast<int64_t>(sizeof(float));
    copy(layer.data, layer.key_elements / slots_);
    copy(layer.data + layer.key_elements, (elements - layer.key_elements) / slots_);
  }
}

int64_t Caches::bytes() const {
  int64_t total = 0;
  for (const auto* blocks : {&kv_, &state_, &conv_}) {
    for (const Block& block : *blocks) total += block.buffer.bytes();
  }
  return total;
}

}  // namespace trivet::cache
