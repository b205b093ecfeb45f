// SPDX-License-Identifier: Apache-2.0
#include "cache/caches.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <span>

#include "base/str.h"

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

// Those of the rank's stage.
std::span<const plan::LayerGeometry> LayersOf(const plan::Geometry& geometry, const plan::RankShard& shard) {
  return std::span(geometry.layers)
      .subspan(static_cast<size_t>(shard.stage.begin), static_cast<size_t>(shard.stage.layers()));
}

int64_t Sum(int64_t a, int64_t b) { return __builtin_add_overflow(a, b, &a) ? std::numeric_limits<int64_t>::max() : a; }

}  // namespace

Result<KvDtype> ParseKvDtype(std::string_view name) {
  if (name == "auto") return KvDtype::kF32;
  if (name == "fp8") return KvDtype::kE4M3;
  return MakeError(Code::kUsage,
                   fmt::format("--kv-cache-dtype: expected auto or fp8, found \"{}\"; choose one", Quote(name)));
}

const char* KvDtypeName(KvDtype dtype) { return dtype == KvDtype::kF32 ? "auto" : "fp8"; }

int64_t RowBytes(KvDtype dtype, int64_t dim) {
  return dtype == KvDtype::kF32 ? dim * static_cast<int64_t>(sizeof(float)) : dim + 1;
}

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
      Product({shard.attention.kv_heads, kPageTokens,
               RowBytes(limits.kv_dtype, geometry.key_dim()) + RowBytes(limits.kv_dtype, geometry.value_dim())});
  CacheUnits units;
  for (const plan::LayerGeometry& layer : LayersOf(geometry, shard)) {
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

Result<Caches::Block> Caches::MakeBlock(const device::Device& device, int64_t bytes, const char* what) {
  TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(device, bytes, what));
  Block block;
  block.data = buffer.As<float>().data();
  block.buffer = std::move(buffer);
  return block;
}

Result<Caches> Caches::Make(const device::Device& device, const plan::Geometry& geometry, const plan::RankShard& shard,
                            const CacheLimits& limits) {
  Caches caches;
  constexpr auto kElement = static_cast<int64_t>(sizeof(float));
  caches.device_ = device;
  caches.kv_dtype_ = limits.kv_dtype;
  const plan::DeltaNetGeometry& delta = geometry.delta_net;
  const int64_t kv_heads = shard.attention.kv_heads;
  caches.slots_ = limits.state_slots;
  caches.state_stride_ = Product({shard.delta_net.v_heads, delta.k_dim, delta.v_dim});
  caches.conv_stride_ = Product({delta.conv_width - 1, ConvChannels(geometry, shard)});
  for (const plan::LayerGeometry& layer : LayersOf(geometry, shard)) {
    if (plan::HasKv(layer.mixer)) {
      const int64_t ring = RingPages(layer, limits);
      const int64_t pages = ring > 0 ? Product({limits.state_slots, ring}) : limits.pages;
      const int64_t key = RowBytes(limits.kv_dtype, geometry.key_dim());
      const int64_t value = RowBytes(limits.kv_dtype, geometry.value_dim());
      TRY_ASSIGN(Block kv, MakeBlock(device, Product({pages, kv_heads, kPageTokens, key + value}), "KV cache"));
      kv.ring = ring;
      kv.key_bytes = Product({pages, kv_heads, kPageTokens, key});
      caches.kv_.push_back(std::move(kv));
    } else {
      TRY_ASSIGN(Block state,
                 MakeBlock(device, Product({limits.state_slots, caches.state_stride_, kElement}), "delta-net states"));
      TRY_ASSIGN(Block conv,
                 MakeBlock(device, Product({limits.state_slots, caches.conv_stride_, kElement}), "convolution states"));
      // Many answers that come to a border of pages in one step keep their states for the first time.
      state.buffer.TakePages();
      conv.buffer.TakePages();
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
  const auto copy = [&](std::byte* data, int64_t bytes) {  // of one slot
    device_.Copy(data + to * bytes, data + from * bytes, bytes);
  };
  for (Block& layer : state_) copy(layer.buffer.As<std::byte>().data(), layer.buffer.bytes() / slots_);
  for (Block& layer : conv_) copy(layer.buffer.As<std::byte>().data(), layer.buffer.bytes() / slots_);
  for (Block& layer : kv_) {
    if (layer.ring == 0) continue;
    std::byte* keys = layer.buffer.As<std::byte>().data();
    copy(keys, layer.key_bytes / slots_);
    copy(keys + layer.key_bytes, (layer.buffer.bytes() - layer.key_bytes) / slots_);
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
