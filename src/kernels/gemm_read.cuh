// SPDX-License-Identifier: Apache-2.0
// How a lane reads weights of one output row from a tile: chunks of columns, loaded early as they are stored, and
// decoded four columns at a time when they are used. Every weight is the value that weight_element.h gives it.
#pragma once

#include <cstdint>

#include "kernels/cuda_e4m3.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/weight_element.h"

namespace trivet::kernels {

/// Loads a word that is used once: it takes no room in the nearest cache, where activations stay.
__device__ inline uint32_t LoadOnce(const std::byte* from) {
  uint32_t word = 0;
  asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}

/// Readers have
///   kColumns            columns of a chunk
///   kAhead              chunks to load ahead of their use
///   RowOf(lane)         the row of the tile that a lane reads
///   Load(tile, chunk)   loads chunk number `chunk` of the tile
///   Begin()             called once before the weights of a chunk, by every lane of a warp
///   Usual()             whether the chunk's weights may be read as usual; the same for all lanes
///   Four<q, kUsual>(w)  the weights of columns 4q .. 4q + 3
template <WeightFormat kFormat>
struct ChunkReader;

/// Pairs of columns in one word.
template <>
struct ChunkReader<WeightFormat::kBF16> {
  static constexpr int kColumns = 32;
  static constexpr int kAhead = 2;
  static __device__ int RowOf(int lane) { return lane; }

  uint32_t words[kColumns / 2];

  __device__ void Load(const std::byte* tile, int chunk) {
    const std::byte* from = tile + (static_cast<uint32_t>(chunk) * (kColumns * kTileRows * 2) + threadIdx.x * 4);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) words[i] = LoadOnce(from + i * kTileRows * 4);
  }
  __device__ void Begin() {}
  __device__ bool Usual() const { return true; }
  template <int q, bool kUsual>
  __device__ void Four(float (&weights)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      weights[2 * i] = __uint_as_float(words[2 * q + i] << 16);
      weights[2 * i + 1] = __uint_as_float(words[2 * q + i] & 0xFFFF0000U);
    }
  }
};

/// A word holds two rows of one column; lanes of the lower and the upper half warp have neighbouring columns and
/// exchange halves.
template <>
struct ChunkReader<WeightFormat::kF16> {
  static constexpr int kColumns = 32;
  static constexpr int kAhead = 2;
  static __device__ int RowOf(int lane) { return lane % 16 * 2 + lane / 16; }

  uint32_t words[kColumns / 2];

  __device__ void Load(const std::byte* tile, int chunk) {
    const std::byte* from = tile + (static_cast<uint32_t>(chunk) * (kColumns * kTileRows * 2) + threadIdx.x * 4);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) words[i] = LoadOnce(from + i * kTileRows * 4);
  }
  __device__ void Begin() {
    const uint32_t order = threadIdx.x < 16 ? 0x5410U : 0x3276U;
#pragma unroll
    for (uint32_t& word : words) word = __byte_perm(word, __shfl_xor_sync(kAllLanes, word, 16), order);
  }
  __device__ bool Usual() const { return true; }
  template <int q, bool kUsual>
  __device__ void Four(float (&weights)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = words[2 * q + i / 2];
      weights[i] = __half2float(__ushort_as_half(static_cast<uint16_t>(i % 2 == 0 ? word : word >> 16)));
    }
  }
};

/// One column in one word.
template <>
struct ChunkReader<WeightFormat::kF32> {
  static constexpr int kColumns = 16;
  static constexpr int kAhead = 2;
  static __device__ int RowOf(int lane) { return lane; }

  uint32_t words[kColumns];

  __device__ void Load(const std::byte* tile, int chunk) {
    const std::byte* from = tile + (static_cast<uint32_t>(chunk) * (kColumns * kTileRows * 4) + threadIdx.x * 4);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) words[i] = LoadOnce(from + i * kTileRows * 4);
  }
  __device__ void Begin() {}
  __device__ bool Usual() const { return true; }
  template <int q, bool kUsual>
  __device__ void Four(float (&weights)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[i] = __uint_as_float(words[4 * q + i]);
  }
};

/// Chunks of a block format, as PackedBlock lays them out.
template <WeightFormat kFormat>
struct BlockChunk {
  static constexpr quant::BlockTraits kTraits = quant::TraitsOf(*BlocksOf(kFormat));
  static constexpr PackedBlock kLayout = PackedBlockOf(kTraits);
  static constexpr int kColumns = static_cast<int>(kLayout.chunk);
  static constexpr int kPerBlock = static_cast<int>(kTraits.columns / kLayout.chunk);

  /// Where the block that holds a chunk begins in its tile; a tile has less than 4 GB.
  static __device__ uint32_t Block(int chunk) {
    return static_cast<uint32_t>(kPerBlock == 1 ? chunk : chunk / kPerBlock) * static_cast<uint32_t>(kLayout.bytes);
  }
  /// Where the codes of a chunk begin in its tile.
  static __device__ uint32_t Codes(int chunk) {
    const int in_block = kPerBlock == 1 ? 0 : chunk % kPerBlock;
    return Block(chunk) + static_cast<uint32_t>(kLayout.codes_at + in_block * kLayout.chunk_bytes);
  }
};

/// Integer codes in words, with scales as BlockTraits says.
template <WeightFormat kFormat>
struct ChunkReader : BlockChunk<kFormat> {
  using Chunk = BlockChunk<kFormat>;
  static constexpr quant::BlockTraits kTraits = Chunk::kTraits;
  static constexpr PackedBlock kLayout = Chunk::kLayout;
  static constexpr int kWords = static_cast<int>(kLayout.words);
  static constexpr int kAhead = 3;
  static constexpr bool kAdds = kTraits.offset != quant::OffsetType::kNone;
  static constexpr bool kSubOffset = kTraits.offset == quant::OffsetType::kMinus;
  static __device__ int RowOf(int lane) { return lane; }

  uint32_t words[kWords];
  uint16_t scale_bits, offset_bits;
  int8_t sub_scale;
  uint8_t sub_offset;
  float scale, offset;

  __device__ void Load(const std::byte* tile, int chunk) {
    const std::byte* block = tile + Chunk::Block(chunk);
    const std::byte* from = tile + (Chunk::Codes(chunk) + threadIdx.x * 4);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = LoadOnce(from + i * kTileRows * 4);
    const auto row = static_cast<int64_t>(threadIdx.x);
    scale_bits = __ldg(reinterpret_cast<const uint16_t*>(block + kLayout.scale_at) + row);
    if constexpr (kAdds) offset_bits = __ldg(reinterpret_cast<const uint16_t*>(block + kLayout.offset_at) + row);
    if constexpr (kTraits.has_sub()) {
      const int64_t sub = chunk % Chunk::kPerBlock * Chunk::kColumns / static_cast<int>(kTraits.sub) * kTileRows + row;
      sub_scale = __ldg(reinterpret_cast<const int8_t*>(block + kLayout.sub_scale_at) + sub);
      if constexpr (kSubOffset)
        sub_offset = __ldg(reinterpret_cast<const uint8_t*>(block + kLayout.sub_offset_at) + sub);
    }
  }
  __device__ void Begin() {
    scale = __half2float(__ushort_as_half(scale_bits));
    if constexpr (kTraits.has_sub()) scale *= static_cast<float>(sub_scale);
    if constexpr (kAdds) offset = __half2float(__ushort_as_half(offset_bits));
    if constexpr (kSubOffset) offset = -(offset * static_cast<float>(sub_offset));
  }
  __device__ bool Usual() const { return true; }
  template <int q, bool kUsual>
  __device__ void Four(float (&weights)[4]) const {
    constexpr PackedBlock kHere = kLayout;  // a reference to a static member means nothing on a device
    const auto word = [this](int64_t w) { return words[w]; };
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // 2^23 + code - 2^23 is the code: conversions of integers are slow. Products with a scale are exact, so that a
      // fused addition rounds like two operations.
      const float code = __uint_as_float(0x4B000000U | CodeOf(kHere, 4 * q + i, word)) - (8388608.0F + kLayout.bias);
      weights[i] = kAdds ? std::fma(scale, code, offset) : scale * code;
    }
  }
};

/// E2M1 codes are decoded in pairs as F16 whose exponents are 14 too small, and scaled there by E8M0.
template <>
struct ChunkReader<WeightFormat::kMxfp4Halves> : BlockChunk<WeightFormat::kMxfp4Halves> {
  static constexpr int kAhead = 4;
  static __device__ int RowOf(int lane) { return lane; }

  uint32_t words[4];
  uint8_t scale_bits;
  bool narrow;    // all lanes' products fit F16
  uint32_t half;  // the scale times 2^14, twice, where they do
  float scale;    // where they do not

  __device__ void Load(const std::byte* tile, int chunk) {
    const std::byte* from = tile + (Codes(chunk) + static_cast<uint32_t>(MxHalvesAt(threadIdx.x, 0)));
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = LoadOnce(from + MxHalvesAt(0, i));
    scale_bits = __ldg(reinterpret_cast<const uint8_t*>(tile) + (Block(chunk) + kLayout.scale_at + threadIdx.x));
  }
  __device__ void Begin() {
    // From 2^-23, where half a step is F16's smallest number, to 2, whose product with 2^14 F16 still holds. 2^(e -
    // 113) is normal from e = 99 on.
    narrow = __all_sync(kAllLanes, scale_bits >= 104 && scale_bits <= 128) != 0;
    half = static_cast<uint32_t>(scale_bits - 98) * 0x04000400U;
    scale = quant::FromE8M0(scale_bits);
  }
  __device__ bool Usual() const { return narrow; }
  template <int q, bool kUsual>
  __device__ void Four(float (&weights)[4]) const {
    const uint32_t word = words[q / 2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Two neighbouring fours use the same pairs, which the compiler makes once.
      const __half2 values = HalvesOf(MxPair(word, i));
      const __half2 scaled = kUsual ? __hmul2(values, HalvesOf(half)) : values;
      const float weight = q % 2 == 0 ? __low2float(scaled) : __high2float(scaled);
      weights[i] = kUsual ? weight : scale * (weight * 16384.0F);
    }
  }
};

/// A word holds four rows of one column; lanes that are eight apart have neighbouring columns and exchange bytes.
template <>
struct ChunkReader<WeightFormat::kFp8> : BlockChunk<WeightFormat::kFp8> {
  static constexpr int kAhead = 2;
  static __device__ int RowOf(int lane) { return lane % 8 * 4 + lane / 8; }

  uint32_t words[kColumns / 4];
  float scale;

  __device__ void Load(const std::byte* tile, int chunk) {
    const std::byte* from = tile + (Codes(chunk) + threadIdx.x * 4);
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) words[i] = LoadOnce(from + i * kTileRows * 4);
    const uint32_t row = static_cast<uint32_t>(RowOf(static_cast<int>(threadIdx.x)));
    scale = __ldg(reinterpret_cast<const float*>(tile + (Block(chunk) + kLayout.scale_at + row * 4)));
  }
  __device__ void Begin() {
#pragma unroll
    for (uint32_t& word : words) word = TransposeBytes<8>(word);
  }
  __device__ bool Usual() const { return true; }
  template <int q, bool kUsual>
  __device__ void Four(float (&weights)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 values = PairFromE4M3(words[q] >> (16 * i));
      weights[2 * i] = scale * values.x;
      weights[2 * i + 1] = scale * values.y;
    }
  }
};

}  // namespace trivet::kernels
