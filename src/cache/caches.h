// SPDX-License-Identifier: Apache-2.0
// What a rank remembers between steps: paged keys and values of attention layers, and state slots of delta-net layers.
// Contents belong to page and slot ids, which the scheduler hands out; a cache never knows a sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/buffer.h"
#include "plan/geometry.h"
#include "plan/layout.h"

namespace trivet::cache {

/// Tokens of one page.
inline constexpr int64_t kPageTokens = 64;

/// How keys and values are kept.
enum class KvDtype {
  kF32,   // as they were computed
  kE4M3,  // every token's row of a KV head as FP8 codes under a scale, a power of two
};
/// "auto" (as computed) or "fp8".  Errors: kUsage, naming --kv-cache-dtype.
Result<KvDtype> ParseKvDtype(std::string_view name);
/// As ParseKvDtype reads it.
const char* KvDtypeName(KvDtype dtype);

/// Bytes of one token's key, or value, of one KV head.
///   dim  its channels
int64_t RowBytes(KvDtype dtype, int64_t dim);

/// How much a rank's caches hold; the same on every rank.
struct CacheLimits {
  int64_t pages = 0;        // KV pages of 64 tokens, shared by all sequences
  int64_t state_slots = 0;  // sequences that run at once, and snapshots
  int64_t chunk = 0;        // tokens of one sequence in one step, at most
  int64_t context = 0;      // tokens of one sequence, at most
  KvDtype kv_dtype = KvDtype::kF32;
};

/// Pages of a slot's ring in a layer with a sliding window: position p of a sequence is in page p / 64 % RingPages of
/// the ring of its slot. The ring holds a step's tokens and the window before them, wherever page borders fall; what is
/// older is overwritten. No more than the context has; 0 with full attention, whose keys and values are in pages that
/// the scheduler hands out.
int64_t RingPages(const plan::LayerGeometry& layer, const CacheLimits& limits);

/// Bytes of one KV page in all layers of a stage that have pages, and of one slot: recurrent states and rings.
struct CacheUnits {
  int64_t page = 0;
  int64_t slot = 0;
};
/// The units of one rank's caches; a product beyond 64 bits is the largest integer.
CacheUnits UnitsOf(const plan::Geometry& geometry, const plan::RankShard& shard, const CacheLimits& limits);

/// One rank's caches. Memory is taken when it is first written.
class Caches {
 public:
  /// Errors: kCapacity.
  static Result<Caches> Make(const device::Device& device, const plan::Geometry& geometry, const plan::RankShard& shard,
                             const CacheLimits& limits);

  /// Keys and values of attention layer number `index` among those of the rank's stage: [pages][kv_heads][64 * D] each,
  /// where keys and values may have widths of their own. Null where they are kept as codes.
  float* keys(int64_t index) {
    return kv_dtype_ == KvDtype::kF32 ? reinterpret_cast<float*>(KeyBytes(index)) : nullptr;
  }
  float* values(int64_t index) {
    return kv_dtype_ == KvDtype::kF32 ? reinterpret_cast<float*>(ValueBytes(index)) : nullptr;
  }
  /// The same in codes: [pages][kv_heads][64 * (D + 1)], 64 * D codes and 64 scales. Null where they are kept as
  /// floats.
  std::byte* key_codes(int64_t index) { return kv_dtype_ == KvDtype::kE4M3 ? KeyBytes(index) : nullptr; }
  std::byte* value_codes(int64_t index) { return kv_dtype_ == KvDtype::kE4M3 ? ValueBytes(index) : nullptr; }
  KvDtype kv_dtype() const { return kv_dtype_; }
  /// RingPages of the layer; its pages are then slot 0's, slot 1's and so on.
  int64_t ring(int64_t index) const { return kv_[static_cast<size_t>(index)].ring; }
  /// The rings that layers have, each size once.
  std::vector<int64_t> rings() const;

  /// Delta-net state of layer number `index` among those layers: [slots][v_heads][dk, dv].
  float* state(int64_t index) { return state_[static_cast<size_t>(index)].data; }
  int64_t state_stride() const { return state_stride_; }
  /// Convolution inputs of the same layer: [slots][W - 1, channels].
  float* conv(int64_t index) { return conv_[static_cast<size_t>(index)].data; }
  int64_t conv_stride() const { return conv_stride_; }

  /// Copies states, convolution inputs and rings of all layers from one slot to another.
  void CopyState(int64_t from, int64_t to);

  /// Bytes of address space reserved.
  int64_t bytes() const;

 private:
  struct Block {
    device::Buffer buffer;
    float* data = nullptr;  // of states
    int64_t ring = 0;       // of an attention layer: pages of a slot, or 0
    int64_t key_bytes = 0;  // of an attention layer: where its values begin
  };
  static Result<Block> MakeBlock(const device::Device& device, int64_t bytes, const char* what);
  std::byte* KeyBytes(int64_t index) { return kv_[static_cast<size_t>(index)].buffer.As<std::byte>().data(); }
  std::byte* ValueBytes(int64_t index) { return KeyBytes(index) + kv_[static_cast<size_t>(index)].key_bytes; }

  device::Device device_;
  KvDtype kv_dtype_ = KvDtype::kF32;
  std::vector<Block> kv_, state_, conv_;
  int64_t slots_ = 0, state_stride_ = 0, conv_stride_ = 0;
};

}  // namespace trivet::cache
