// SPDX-License-Identifier: Apache-2.0
// How a warp brings weights to the matrix units: blocks of 32 columns of a tile, in the order in which the units want
// them.
//
// A matrix instruction multiplies 16 outputs by 16 columns. Lane 4g + t holds rows g and g + 8 of the outputs, and of
// the columns the pairs t and t + 4. Which output or column of the model stands in which place is free, as long as both
// factors agree; so a lane takes what lies together in memory: rows 4g .. 4g + 3 of the tile, of which the first two
// are its rows in the first 16 outputs and the others in the second, and columns 8t .. 8t + 7 of the block as four
// pairs, of which two go into each of the block's two instructions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda_fetch.cuh"
#include "kernels/gemm_read.cuh"

namespace trivet::kernels {

/// Columns that are brought at once.
inline constexpr int kMatrixColumns = 32;

/// Blocks of that many columns that stand together: tiles of several are read one behind the other from such borders.
inline constexpr int kMatrixUnit = 4;

/// Weights of a block as a lane holds them: [pair][row], two BF16 or F16 each.
using MatrixWeights = uint32_t[4][4];

/// Loads four words that are used once.
__device__ inline uint4 LoadFourOnce(const std::byte* from) {
  uint4 words;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}

/// Loads a byte that is used once.
__device__ inline uint32_t LoadByteOnce(const std::byte* from) {
  uint32_t byte = 0;
  asm volatile("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=r"(byte) : "l"(from));
  return byte;
}

/// Word `i` of four.
__device__ inline uint32_t WordOf(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

/// acc += a 16 x 16 weights times 16 x 8 activations, both in T, BF16 or F16: the pairs `2 * half` and the next of the
/// rows 2 * sixteen and the next.
template <class T>
__device__ inline void MultiplyMatrix(float (&acc)[4], const MatrixWeights& w, int half, int sixteen, uint32_t x0,
                                      uint32_t x1) {
  const uint32_t *first = w[2 * half] + 2 * sixteen, *second = w[2 * half + 1] + 2 * sixteen;
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(first[0]), "r"(first[1]), "r"(second[0]), "r"(second[1]), "r"(x0), "r"(x1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(first[0]), "r"(first[1]), "r"(second[0]), "r"(second[1]), "r"(x0), "r"(x1));
  }
}

/// Sums of 32 outputs and eight rows: [first or second 16 outputs][4]. Of a lane 4g + t, sums[i][q] belongs to the
/// tile's row 4g + 2i + q / 2 and to row 2t + q % 2 of the eight.
using MatrixSums = float[2][4];

/// Bytes of `a` and `b`, as PTX's prmt has it: a place's highest bit asks for the byte's sign, eight times.
__device__ inline uint32_t Permute(uint32_t a, uint32_t b, uint32_t places) {
  uint32_t bytes = 0;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(places));
  return bytes;
}

/// What a lane holds of a block as it is stored: kFours times four words and kOnes words.
template <int kFours, int kOnes>
struct StoredBlock {
  uint4 fours[kFours > 0 ? kFours : 1];
  uint32_t ones[kOnes > 0 ? kOnes : 1];
};

/// How a lane reads blocks of kFormat, one after the other; of scales, where it has such, those of its four rows or,
/// where kOwn says so, that of the tile's row `lane`:
///   kPlaces       blocks that a warp has registers for
///   kAhead        blocks to ask for ahead of their use, at most kPlaces. One less where a part of what is stored is
///                 needed after the weights are known: a register that a load has asked for in the meantime would need
///                 a copy of what it held, and the copy's place a move that waits for memory
///   kTogether     blocks that are asked for at once, of which kPlaces and kAhead are multiples. All loads of a loop
///                 are one for whoever waits, so the work of one round, of all warps, has to outlast memory
///   MatrixFormat(tile, column)  stands at the block that begins at `column` of the tile, a multiple of 32
///   Load(stored, columns)       of which the tile has `columns` left, one at least; others are zeros, or the rest of
///                               what is stored together
///   Next()                      goes on by a block
///   NextOfUnit(last)            the same, known to be or not to be the last one of a unit
///   Skip(bytes)                 goes on to another tile, from border to border of units
template <WeightFormat kFormat, bool kOwn>
struct MatrixFormat;

/// Where a lane stands among the places of an instruction.
__device__ inline uint32_t LaneRow() { return threadIdx.x / 4; }     // g
__device__ inline uint32_t LaneColumn() { return threadIdx.x % 4; }  // t

/// Value number t of four, without a branch.
__device__ inline float OfLaneColumn(float a, float b, float c, float d) {
  const float first = LaneColumn() % 2 == 0 ? a : b, second = LaneColumn() % 2 == 0 ? c : d;
  return LaneColumn() < 2 ? first : second;
}

/// Pairs of columns stand in one word.
template <bool kOwn>
struct MatrixFormat<WeightFormat::kBF16, kOwn> {
  static constexpr int kFours = 4, kOnes = 0, kPlaces = 2, kAhead = 2, kTogether = 1;
  using Stored = StoredBlock<kFours, kOnes>;

  const std::byte* fours;

  __device__ MatrixFormat(const std::byte* tile, int column)
      : fours(tile + (static_cast<uint32_t>(column) * 64 + LaneColumn() * 512 + LaneRow() * 16)) {}
  __device__ void Load(Stored& stored, int columns) const {
    if (columns >= kMatrixColumns) {
#pragma unroll
      for (int i = 0; i < 4; ++i) stored.fours[i] = LoadFourOnce(fours + i * 128);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool inside = static_cast<int>(LaneColumn()) * 8 + i * 2 < columns;
        stored.fours[i] = inside ? LoadFourOnce(fours + i * 128) : make_uint4(0, 0, 0, 0);
      }
    }
  }
  __device__ void Next() { fours += TileBytes<WeightFormat::kBF16>(kMatrixColumns); }
};

/// A word holds eight columns of a row (gemm_matrix_limbs.cuh decodes them).
template <bool kOwn>
struct MatrixFormat<WeightFormat::kMxfp4Halves, kOwn> {
  using Chunk = BlockChunk<WeightFormat::kMxfp4Halves>;
  static constexpr int kFours = 1, kOnes = 1, kPlaces = 8, kAhead = 4, kTogether = 4;
  using Stored = StoredBlock<kFours, kOnes>;

  const std::byte *codes, *scales;  // scales are bytes, of which four rows' make a word

  __device__ MatrixFormat(const std::byte* tile, int column)
      : codes(tile + (Chunk::Codes(column / kMatrixColumns) + threadIdx.x * 16)),
        scales(tile + (Chunk::Block(column / kMatrixColumns) + Chunk::kLayout.scale_at +
                       (kOwn ? threadIdx.x : LaneRow() * 4))) {}
  __device__ void Load(Stored& stored, int) const {
    stored.fours[0] = LoadFourOnce(codes);
    stored.ones[0] = kOwn ? LoadByteOnce(scales) : LoadOnce(scales);
  }
  __device__ void Next() {
    codes += Chunk::kLayout.bytes;
    scales += Chunk::kLayout.bytes;
  }
  __device__ void NextOfUnit(bool) { Next(); }
  __device__ void Skip(int64_t bytes) {
    codes += bytes;
    scales += bytes;
  }
};

/// A word holds four rows of one column (gemm_matrix_limbs.cuh decodes them), so a lane takes columns four apart, t, t
/// + 4, .., which a warp reads a line at a time. Four blocks of 32 columns share scales.
template <bool kOwn>
struct MatrixFormat<WeightFormat::kFp8, kOwn> {
  using Chunk = BlockChunk<WeightFormat::kFp8>;
  static constexpr int kCodes = 8;  // words of codes, before a scale of its own
  static constexpr int kFours = kOwn ? 0 : 1, kOnes = kOwn ? kCodes + 1 : kCodes;
  static constexpr int kPlaces = 4, kAhead = 3, kTogether = 1;
  using Stored = StoredBlock<kFours, kOnes>;

  const std::byte *codes, *scales;
  int chunk;  // of those that share scales

  __device__ MatrixFormat(const std::byte* tile, int column)
      : codes(tile + (Chunk::Codes(column / kMatrixColumns) + LaneColumn() * 32 + LaneRow() * 4)),
        scales(tile + (Chunk::Block(column / kMatrixColumns) + Chunk::kLayout.scale_at +
                       (kOwn ? threadIdx.x * 4 : LaneRow() * 16))),
        chunk(column / kMatrixColumns % Chunk::kPerBlock) {}
  __device__ void Load(Stored& stored, int) const {
    if constexpr (kOwn) {
      stored.ones[kCodes] = LoadOnce(scales);
    } else {
      stored.fours[0] = LoadFourOnce(scales);
    }
#pragma unroll
    for (int i = 0; i < kCodes; ++i) stored.ones[i] = LoadOnce(codes + i * 128);
  }
  __device__ void Next() {
    chunk = chunk + 1 < Chunk::kPerBlock ? chunk + 1 : 0;
    NextOfUnit(chunk == 0);
  }
  __device__ void NextOfUnit(bool last) {
    static_assert(Chunk::kPerBlock == kMatrixUnit);
    codes += Chunk::kLayout.chunk_bytes;
    if (!last) return;
    codes += Chunk::kLayout.codes_at;
    scales += Chunk::kLayout.bytes;
  }
  __device__ void Skip(int64_t bytes) {
    codes += bytes;
    scales += bytes;
  }
};

/// Bytes that a whole grid asks the cache for ahead of its time, at most.
inline constexpr int64_t kFetchedBytes = int64_t{16} << 20;

/// Where the blocks of a warp lie: in one tile.
struct OneTile {};

/// Or in several: the same units of tiles that follow each other.
struct SomeTiles {
  int left;      // units up to the next tile's
  int units;     // of a tile
  int64_t skip;  // bytes from the end of a tile's to the begin of the next one's
};

/// The blocks that a warp multiplies in turn, some of them under way.
template <WeightFormat kFormat, bool kOwn, class Path = OneTile>
struct BlockRing {
  using Format = MatrixFormat<kFormat, kOwn>;
  static constexpr int kPlaces = Format::kPlaces;

  typename Format::Stored blocks[kPlaces];
  Format next;  // to ask for
  int left;     // columns from it on
  Path path;

  /// For `columns` columns from `begin`, a multiple of 32 or in several tiles of a unit, of the tile on.
  __device__ BlockRing(const std::byte* tile, int begin, int columns, Path path = {})
      : next(tile, begin), left(columns), path(path) {
#pragma unroll
    for (int i = 0; i < Format::kAhead; ++i) Load(i);
  }
  /// Called when the weights of the block at place `i` are known, in order: asks for those kAhead blocks later.
  __device__ void LoadAhead(int i) {
    if ((i + 1) % Format::kTogether != 0) return;
#pragma unroll
    for (int j = 1; j <= Format::kTogether; ++j) Load((i - Format::kTogether + j + Format::kAhead) % kPlaces);
  }

 private:
  // Loads the next block, if there is one, to place `i`.
  __device__ void Load(int i) {
    if (left > 0) next.Load(blocks[i], left);
    left -= kMatrixColumns;
    if constexpr (std::is_same_v<Path, OneTile>) {
      next.Next();
    } else {
      static_assert(kPlaces % kMatrixUnit == 0);
      const bool last = i % kMatrixUnit == kMatrixUnit - 1;
      next.NextOfUnit(last);
      if (!last || --path.left > 0) return;
      path.left = path.units;
      next.Skip(path.skip);
    }
  }
};

}  // namespace trivet::kernels
