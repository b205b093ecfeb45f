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

/// The product of two pairs of BF16.
__device__ inline uint32_t MultiplyPair(uint32_t a, uint32_t b) {
  __nv_bfloat162 x, y;
  memcpy(&x, &a, sizeof(a));
  memcpy(&y, &b, sizeof(b));
  const __nv_bfloat162 product = __hmul2(x, y);
  uint32_t bits = 0;
  memcpy(&bits, &product, sizeof(bits));
  return bits;
}

/// Bytes of `a` and `b`, as PTX's prmt has it: a place's highest bit asks for the byte's sign, eight times.
__device__ inline uint32_t Permute(uint32_t a, uint32_t b, uint32_t places) {
  uint32_t bytes = 0;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(places));
  return bytes;
}

/// 2^exponent as a pair of BF16, for exponents from -126 to 127.
constexpr uint32_t PairOfPowers(int exponent) { return static_cast<uint32_t>(exponent + 127) * 0x00800080U; }

/// What a lane holds of a block as it is stored: kFours times four words and kOnes words.
template <int kFours, int kOnes>
struct StoredBlock {
  uint4 fours[kFours];
  uint32_t ones[kOnes > 0 ? kOnes : 1];
};

/// How a lane reads blocks of kFormat:
///   kPlaces       blocks that a warp has registers for
///   kAhead        blocks to ask for ahead of their use, at most kPlaces. One less where a part of what is stored is
///                 needed after the weights are known: a register that a load has asked for in the meantime would need
///                 a copy of what it held, and the copy's place a move that waits for memory
///   Four(tile, column, i)     where the lane's words of the block that begins at `column` of the tile stand
///   One(tile, column, i)
///   Inside(i, column, end)    whether fours[i] exists in a tile of `end` columns, when the block does
/// and those that become BF16:
///   kScaled             whether the sums of a block are multiplied by Scale(row) when they join the leaf
///   Decode(stored, w)   the weights
///   Scale(stored, row)  of rows 4g + row
template <WeightFormat kFormat>
struct MatrixFormat;

/// Where a lane stands among the places of an instruction.
__device__ inline uint32_t LaneRow() { return threadIdx.x / 4; }     // g
__device__ inline uint32_t LaneColumn() { return threadIdx.x % 4; }  // t

/// Pairs of columns stand in one word.
template <>
struct MatrixFormat<WeightFormat::kBF16> {
  static constexpr int kFours = 4, kOnes = 0, kPlaces = 2, kAhead = 2;
  static constexpr bool kScaled = false;
  using Stored = StoredBlock<kFours, kOnes>;

  static __device__ const std::byte* Four(const std::byte* tile, int column, int i) {
    return tile +
           (static_cast<uint32_t>(column) * 64 + LaneColumn() * 512 + LaneRow() * 16 + static_cast<uint32_t>(i) * 128);
  }
  static __device__ const std::byte* One(const std::byte* tile, int, int) { return tile; }
  static __device__ bool Inside(int i, int column, int end) {
    return column + static_cast<int>(LaneColumn()) * 8 + i * 2 < end;
  }
  static __device__ void Decode(const Stored& stored, MatrixWeights& w) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int row = 0; row < 4; ++row) w[i][row] = WordOf(stored.fours[i], row);
    }
  }
  static __device__ float Scale(const Stored&, int) { return 1.0F; }
};

/// A word holds eight columns of a row (gemm_matrix_limbs.cuh decodes them).
template <>
struct MatrixFormat<WeightFormat::kMxfp4> : BlockChunk<WeightFormat::kMxfp4> {
  static constexpr int kFours = 1, kOnes = 1, kPlaces = 4, kAhead = 3;
  using Stored = StoredBlock<kFours, kOnes>;

  static __device__ const std::byte* Four(const std::byte* tile, int column, int) {
    return tile + (Codes(column / kMatrixColumns) + LaneColumn() * 128 + LaneRow() * 16);
  }
  // The scales of its four rows, a byte each.
  static __device__ const std::byte* One(const std::byte* tile, int column, int) {
    return tile + (Block(column / kMatrixColumns) + kLayout.scale_at + LaneRow() * 4);
  }
  static __device__ bool Inside(int, int, int) { return true; }
};

/// A word holds four rows of one column. A code's bits become the sign, the lowest exponent bits and the highest
/// mantissa bits of a BF16 that is 2^120 times too small. Scales are no powers of two, so they meet sums.
template <>
struct MatrixFormat<WeightFormat::kFp8> : BlockChunk<WeightFormat::kFp8> {
  static constexpr int kFours = 1, kOnes = 8, kPlaces = 2, kAhead = 2;
  static constexpr bool kScaled = true;
  using Stored = StoredBlock<kFours, kOnes>;

  // The scales of its four rows.
  static __device__ const std::byte* Four(const std::byte* tile, int column, int) {
    return tile + (Block(column / kMatrixColumns) + kLayout.scale_at + LaneRow() * 16);
  }
  static __device__ const std::byte* One(const std::byte* tile, int column, int i) {
    return tile + (Codes(column / kMatrixColumns) + LaneColumn() * 256 + LaneRow() * 4 + static_cast<uint32_t>(i) * 32);
  }
  static __device__ bool Inside(int, int, int) { return true; }
  static __device__ void Decode(const Stored& stored, MatrixWeights& w) {
#pragma unroll
    for (int row = 0; row < 4; ++row) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // The row's bytes of both columns, and above each eight times its sign.
        const uint32_t bits = Permute(stored.ones[2 * i], stored.ones[2 * i + 1], 0xC480U + 0x1111U * row);
        w[i][row] = MultiplyPair(bits << 4 & 0x87F087F0U, PairOfPowers(120));
      }
    }
  }
  static __device__ float Scale(const Stored& stored, int row) { return __uint_as_float(WordOf(stored.fours[0], row)); }
};

/// Loads the block that begins at `column` of a tile of `end` columns, if it is there; columns of it from `end` on are
/// zeros, or the rest of what is stored together.
template <WeightFormat kFormat>
__device__ inline void LoadBlock(typename MatrixFormat<kFormat>::Stored& stored, const std::byte* tile, int column,
                                 int end) {
  using Format = MatrixFormat<kFormat>;
  if (BlocksOf(kFormat).has_value() ? column < end : column + kMatrixColumns <= end) {
#pragma unroll
    for (int i = 0; i < Format::kFours; ++i) stored.fours[i] = LoadFourOnce(Format::Four(tile, column, i));
#pragma unroll
    for (int i = 0; i < Format::kOnes; ++i) stored.ones[i] = LoadOnce(Format::One(tile, column, i));
  } else if (!BlocksOf(kFormat).has_value() && column < end) {
#pragma unroll
    for (int i = 0; i < Format::kFours; ++i) {
      const bool inside = Format::Inside(i, column, end);
      stored.fours[i] = inside ? LoadFourOnce(Format::Four(tile, column, i)) : make_uint4(0, 0, 0, 0);
    }
  }
}

/// Bytes that a whole grid asks the cache for ahead of its time, at most.
inline constexpr int64_t kFetchedBytes = int64_t{16} << 20;

/// The blocks of a tile that a warp multiplies in turn, some of them under way.
template <WeightFormat kFormat>
struct BlockRing {
  using Stored = typename MatrixFormat<kFormat>::Stored;
  static constexpr int kPlaces = MatrixFormat<kFormat>::kPlaces;
  static constexpr int kAhead = MatrixFormat<kFormat>::kAhead;
  static constexpr int64_t kBytes = TileBytes<kFormat>(kMatrixColumns);
  static constexpr bool kApart = 4 * kBytes == TileBytes<kFormat>(4 * kMatrixColumns);  // blocks stand on their own

  Stored blocks[kPlaces];
  const std::byte* at;  // where the block at place 0 stands: it, or its tile
  int column;           // and its column there
  int left;             // columns from it on

  /// For columns [begin, end) of the tile; begin is a multiple of 32.
  __device__ BlockRing(const std::byte* tile, int begin, int end)
      : at(kApart ? tile + begin / kMatrixColumns * kBytes : tile), column(kApart ? 0 : begin), left(end - begin) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) Load(i);
  }
  /// Called when the weights of the block at place `i` are known, in order: asks for the one kAhead blocks later.
  __device__ void LoadAhead(int i) {
    Load(i + kAhead);
    if (i < kPlaces - 1) return;
    if (kApart) at += kPlaces * kBytes;
    if (!kApart) column += kPlaces * kMatrixColumns;
    left -= kPlaces * kMatrixColumns;
  }

 private:
  // Loads block number `i` from `at` on, if there is one.
  __device__ void Load(int i) {
    Stored& place = blocks[i % kPlaces];
    if constexpr (kApart) {
      LoadBlock<kFormat>(place, at + i * kBytes, 0, left - i * kMatrixColumns);
    } else {
      LoadBlock<kFormat>(place, at, column + i * kMatrixColumns, column + left);
    }
  }
};

}  // namespace trivet::kernels
