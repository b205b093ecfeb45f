// SPDX-License-Identifier: Apache-2.0
#include "quant/blocks.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "quant/convert.h"

namespace trivet::quant {
namespace {

uint32_t U8(const std::byte* p) { return std::to_integer<uint32_t>(*p); }
uint32_t U16(const std::byte* p) { return U8(p) | U8(p + 1) << 8; }
uint32_t U32(const std::byte* p) { return U16(p) | U16(p + 2) << 16; }

// 16 bytes whose low nibbles are elements 0..15 and high nibbles 16..31; `high` has the fifth bits, element i at bit i.
void UnpackHalves(const std::byte* nibbles, uint32_t high, Block* block) {
  for (size_t j = 0; j < 16; ++j) {
    block->code[j] = static_cast<uint8_t>((U8(nibbles + j) & 15U) | ((high >> j) & 1U) << 4);
    block->code[j + 16] = static_cast<uint8_t>((U8(nibbles + j) >> 4) | ((high >> (j + 16)) & 1U) << 4);
  }
}

// The 6-bit factors of a K block's eight sub-blocks, twelve bytes.
void UnpackFactors(const std::byte* s, Block* block) {
  for (size_t i = 0; i < 4; ++i) {
    block->sub_scale[i] = static_cast<int8_t>(U8(s + i) & 63U);
    block->sub_offset[i] = static_cast<uint8_t>(U8(s + i + 4) & 63U);
    block->sub_scale[i + 4] = static_cast<int8_t>((U8(s + i + 8) & 15U) | (U8(s + i) >> 6) << 4);
    block->sub_offset[i + 4] = static_cast<uint8_t>((U8(s + i + 8) >> 4) | (U8(s + i + 4) >> 6) << 4);
  }
}

// 128 bytes; bytes 32p .. 32p + 31 hold sub-block 2p in their low nibbles and 2p + 1 in their high ones. `high`, if not
// null, is 32 bytes: bit i of byte l is the fifth bit of element l of sub-block i.
void UnpackSubBlocks(const std::byte* nibbles, const std::byte* high, Block* block) {
  for (size_t i = 0; i < 8; ++i) {
    for (size_t l = 0; l < 32; ++l) {
      const uint32_t byte = U8(nibbles + i / 2 * 32 + l);
      const uint32_t fifth = high == nullptr ? 0 : (U8(high + l) >> i) & 1U;
      block->code[i * 32 + l] = static_cast<uint8_t>((i % 2 == 0 ? byte & 15U : byte >> 4) | fifth << 4);
    }
  }
}

void UnpackQ6K(const std::byte* src, Block* block) {
  const std::byte *low = src, *high = src + 128;
  std::memcpy(block->sub_scale, src + 192, 16);
  block->scale = U16(src + 208);
  for (size_t half = 0; half < 2; ++half, low += 64, high += 32) {
    for (size_t l = 0; l < 32; ++l) {
      for (size_t quarter = 0; quarter < 4; ++quarter) {
        const uint32_t byte = U8(low + quarter % 2 * 32 + l);
        const uint32_t nibble = quarter < 2 ? byte & 15U : byte >> 4;
        block->code[half * 128 + quarter * 32 + l] =
            static_cast<uint8_t>(nibble | ((U8(high + l) >> (2 * quarter)) & 3U) << 4);
      }
    }
  }
}

}  // namespace

Block Unpack(BlockFormat format, const std::byte* src) {
  Block block;
  switch (format) {
    case BlockFormat::kQ4_0:
      block.scale = U16(src);
      UnpackHalves(src + 2, 0, &block);
      break;
    case BlockFormat::kQ4_1:
      block.scale = U16(src);
      block.offset = U16(src + 2);
      UnpackHalves(src + 4, 0, &block);
      break;
    case BlockFormat::kQ5_0:
      block.scale = U16(src);
      UnpackHalves(src + 6, U32(src + 2), &block);
      break;
    case BlockFormat::kQ5_1:
      block.scale = U16(src);
      block.offset = U16(src + 2);
      UnpackHalves(src + 8, U32(src + 4), &block);
      break;
    case BlockFormat::kQ8_0:
      block.scale = U16(src);
      std::memcpy(block.code, src + 2, 32);
      break;
    case BlockFormat::kQ4K:
    case BlockFormat::kQ5K: {
      const bool fifth = format == BlockFormat::kQ5K;
      block.scale = U16(src);
      block.offset = U16(src + 2);
      UnpackFactors(src + 4, &block);
      UnpackSubBlocks(src + (fifth ? 48 : 16), fifth ? src + 16 : nullptr, &block);
      break;
    }
    case BlockFormat::kQ6K:
      UnpackQ6K(src, &block);
      break;
    case BlockFormat::kMxfp4Gguf:
      block.scale = U8(src);
      UnpackHalves(src + 1, 0, &block);
      // GGUF defines the codes by a table of integers, which has no negative zero.
      for (uint8_t& code : block.code) code = code == 8 ? 0 : code;
      break;
    case BlockFormat::kMxfp4:
      block.scale = U8(src);
      for (size_t i = 0; i < 32; ++i) {
        block.code[i] = static_cast<uint8_t>((U8(src + 1 + i / 2) >> (i % 2 * 4)) & 15U);
      }
      break;
    case BlockFormat::kFp8:
      block.scale = U32(src);
      std::memcpy(block.code, src + 4, 128);
      break;
  }
  return block;
}

void DecodeBlocks(BlockFormat format, std::span<const std::byte> src, std::span<float> dst) {
  const BlockTraits traits = TraitsOf(format);
  const auto blocks = static_cast<int64_t>(dst.size()) / traits.columns;
  CHECK(static_cast<int64_t>(dst.size()) == blocks * traits.columns);
  CHECK(static_cast<int64_t>(src.size()) == blocks * traits.bytes);
  for (int64_t b = 0; b < blocks; ++b) {
    const Block block = Unpack(format, src.data() + b * traits.bytes);
    for (int64_t i = 0; i < traits.columns; ++i) {
      const auto at = static_cast<size_t>(i), sub = static_cast<size_t>(i / traits.sub);
      const uint8_t sub_offset = traits.offset == OffsetType::kMinus ? block.sub_offset[sub] : uint8_t{0};
      dst[static_cast<size_t>(b * traits.columns + i)] =
          Value(traits, {block.scale, block.offset, block.sub_scale[sub], sub_offset, block.code[at]});
    }
  }
}

void GgufToPairs(std::span<std::byte> blocks) {
  constexpr BlockTraits kTraits = TraitsOf(BlockFormat::kMxfp4);
  for (size_t at = 0; at + kTraits.bytes <= blocks.size(); at += kTraits.bytes) {
    const Block block = Unpack(BlockFormat::kMxfp4Gguf, blocks.data() + at);
    for (size_t j = 0; j < 16; ++j) {
      blocks[at + 1 + j] = static_cast<std::byte>(block.code[2 * j] | block.code[2 * j + 1] << 4);
    }
  }
}

std::optional<BlockFormat> BlockFormatOf(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::kQ4_0:
      return BlockFormat::kQ4_0;
    case tensor::DType::kQ4_1:
      return BlockFormat::kQ4_1;
    case tensor::DType::kQ5_0:
      return BlockFormat::kQ5_0;
    case tensor::DType::kQ5_1:
      return BlockFormat::kQ5_1;
    case tensor::DType::kQ8_0:
      return BlockFormat::kQ8_0;
    case tensor::DType::kQ4K:
      return BlockFormat::kQ4K;
    case tensor::DType::kQ5K:
      return BlockFormat::kQ5K;
    case tensor::DType::kQ6K:
      return BlockFormat::kQ6K;
    case tensor::DType::kMxfp4:
      return BlockFormat::kMxfp4Gguf;
    default:
      return std::nullopt;
  }
}

}  // namespace trivet::quant
