// SPDX-License-Identifier: Apache-2.0
// TensorInfo: where one tensor of a checkpoint lies, whatever the file format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace trivet::checkpoint {

/// One tensor, row-major and little-endian.
struct TensorInfo {
  std::string name;
  std::string stored_name;  // the file's, where `name` is another
  tensor::DType dtype = tensor::DType::kU8;
  std::vector<int64_t> shape;  // empty for a scalar
  int file = 0;                // index into the checkpoint's files
  int64_t offset = 0;          // of its first byte, from the file's start
  int64_t bytes = 0;
  // Not 0: rows stand in groups of so many, and row 2i + h of a group is row i + h * half of the logical one: rotary
  // pairs next to each other.
  int64_t interleaved_rows = 0;
};

/// Most dimensions a tensor may have.
inline constexpr int kMaxRank = 16;

/// Bytes of a tensor of `shape`.
///   what     the tensor's name for messages
/// Errors:  kInvalid when the rank exceeds kMaxRank, a count overflows or the bytes are not whole.
Result<int64_t> TensorBytes(tensor::DType dtype, std::span<const int64_t> shape, std::string_view what);

/// "[4096, 128]".
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace trivet::checkpoint
