// SPDX-License-Identifier: Apache-2.0
// Block formats: runs of consecutive elements of a row that share scales. One table says what each is made of; taking a
// block apart and the value of an element are written once, so that decoding, packing and kernels agree by
// construction.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "quant/convert.h"
#include "tensor/dtype.h"

namespace trivet::quant {

/// A block format, in the byte order in which a checkpoint or its loader holds a block.
enum class BlockFormat : uint8_t {
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4K,
  kQ5K,
  kQ6K,
  kMxfp4Gguf,  // E8M0 scale, then 16 bytes: low nibbles are elements 0..15, high nibbles 16..31
  kMxfp4,      // E8M0 scale, then 16 bytes: byte j holds elements 2j (low nibble) and 2j + 1
  kFp8,        // F32 scale, then 128 E4M3 codes
};
inline constexpr int kBlockFormatCount = 11;

/// How a block's scale is stored.
enum class ScaleType : uint8_t { kF16, kE8M0, kF32 };
/// What a code means: code - bias, a signed byte, or a small float.
enum class CodeType : uint8_t { kUnsigned, kSigned, kE2M1, kE4M3 };
/// What is added: nothing, m, or minus dmin times the sub-block's factor.
enum class OffsetType : uint8_t { kNone, kPlus, kMinus };

/// What a block is made of. The value of an element, every operation rounded to float32:
///   s = scale, or scale * sub_scale where there are sub-blocks
///   x = s * c                        c: the code's meaning
///   x = s * c + offset               kPlus
///   x = s * c - offset * sub_offset  kMinus
struct BlockTraits {
  int64_t columns = 0;  // elements of a block
  int64_t bytes = 0;    // of a block
  int64_t sub = 0;      // elements that share a sub-scale; equal to columns where there is none
  int code_bits = 4;
  int bias = 0;
  ScaleType scale = ScaleType::kF16;
  CodeType code = CodeType::kUnsigned;
  OffsetType offset = OffsetType::kNone;

  constexpr bool has_sub() const { return sub != columns; }
};

/// The traits of `format`.
constexpr BlockTraits TraitsOf(BlockFormat format) {
  switch (format) {
    case BlockFormat::kQ4_0:
      return {32, 18, 32, 4, 8, ScaleType::kF16, CodeType::kUnsigned, OffsetType::kNone};
    case BlockFormat::kQ4_1:
      return {32, 20, 32, 4, 0, ScaleType::kF16, CodeType::kUnsigned, OffsetType::kPlus};
    case BlockFormat::kQ5_0:
      return {32, 22, 32, 5, 16, ScaleType::kF16, CodeType::kUnsigned, OffsetType::kNone};
    case BlockFormat::kQ5_1:
      return {32, 24, 32, 5, 0, ScaleType::kF16, CodeType::kUnsigned, OffsetType::kPlus};
    case BlockFormat::kQ8_0:
      return {32, 34, 32, 8, 0, ScaleType::kF16, CodeType::kSigned, OffsetType::kNone};
    case BlockFormat::kQ4K:
      return {256, 144, 32, 4, 0, ScaleType::kF16, CodeType::kUnsigned, OffsetType::kMinus};
    case BlockFormat::kQ5K:
      return {256, 176, 32, 5, 0, ScaleType::kF16, CodeType::kUnsigned, OffsetType::kMinus};
    case BlockFormat::kQ6K:
      return {256, 210, 16, 6, 32, ScaleType::kF16, CodeType::kUnsigned, OffsetType::kNone};
    case BlockFormat::kMxfp4Gguf:
    case BlockFormat::kMxfp4:
      return {32, 17, 32, 4, 0, ScaleType::kE8M0, CodeType::kE2M1, OffsetType::kNone};
    case BlockFormat::kFp8:
      return {128, 132, 128, 8, 0, ScaleType::kF32, CodeType::kE4M3, OffsetType::kNone};
  }
  return {};
}

/// A block taken apart. Scales are bits as stored; fields that the format lacks are zero.
struct Block {
  uint32_t scale = 0;
  uint32_t offset = 0;
  int8_t sub_scale[16] = {};
  uint8_t sub_offset[8] = {};
  uint8_t code[256] = {};
};

/// What one element of a block is made of.
struct BlockElement {
  uint32_t scale = 0;
  uint32_t offset = 0;
  int8_t sub_scale = 0;
  uint8_t sub_offset = 0;
  uint8_t code = 0;
};

/// Takes a block apart.
///   src   TraitsOf(format).bytes bytes
Block Unpack(BlockFormat format, const std::byte* src);

/// A scale's value.
constexpr float ScaleValue(ScaleType type, uint32_t bits) {
  switch (type) {
    case ScaleType::kF16:
      return FromF16(static_cast<uint16_t>(bits));
    case ScaleType::kE8M0:
      return FromE8M0(static_cast<uint8_t>(bits));
    case ScaleType::kF32:
      break;
  }
  return std::bit_cast<float>(bits);
}

/// A code's value, without its scale.
constexpr float CodeValue(const BlockTraits& traits, uint8_t code) {
  switch (traits.code) {
    case CodeType::kUnsigned:
      return static_cast<float>(static_cast<int>(code) - traits.bias);
    case CodeType::kSigned:
      return static_cast<float>(static_cast<int8_t>(code));
    case CodeType::kE2M1:
      return FromE2M1(code);
    case CodeType::kE4M3:
      break;
  }
  return FromE4M3(code);
}

/// An element's value by the formula of BlockTraits.
constexpr float Value(const BlockTraits& traits, const BlockElement& element) {
  float scale = ScaleValue(traits.scale, element.scale);
  if (traits.has_sub()) scale *= static_cast<float>(element.sub_scale);
  const float product = scale * CodeValue(traits, element.code);
  if (traits.offset == OffsetType::kNone) return product;
  const float offset = ScaleValue(traits.scale, element.offset);
  if (traits.offset == OffsetType::kPlus) return product + offset;
  return product - offset * static_cast<float>(element.sub_offset);
}

/// Decodes a row.
///   src   dst.size() / columns blocks;  dst  a multiple of the format's columns
void DecodeBlocks(BlockFormat format, std::span<const std::byte> src, std::span<float> dst);

/// Rewrites blocks of kMxfp4Gguf as blocks of kMxfp4.
void GgufToPairs(std::span<std::byte> blocks);

/// The block format of a dtype, or nothing when elements stand alone.
std::optional<BlockFormat> BlockFormatOf(tensor::DType dtype);

}  // namespace trivet::quant
