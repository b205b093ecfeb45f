// SPDX-License-Identifier: Apache-2.0
// Writing a safetensors file tensor by tensor, without holding it in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "io/file.h"
#include "tensor/dtype.h"

namespace trivet::checkpoint {

/// A tensor to be written.
struct TensorDecl {
  std::string name;
  tensor::DType dtype;
  std::vector<int64_t> shape;
};

/// Streams a safetensors file: declare all tensors, append their bytes in that order, finish. Until Finish succeeds no
/// file has the final name. The data begins at a multiple of 8: declare wider dtypes first to keep tensors aligned.
class SafetensorsWriter {
 public:
  /// Text about the file, stored under "__metadata__" when not empty.
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  /// Writes the header to a temporary beside `path`.
  /// Errors:  kInvalid for a name or shape that no reader would accept, kCapacity for a header beyond the format's
  ///          limit, kIo.
  static Result<SafetensorsWriter> Create(const std::string& path, std::span<const TensorDecl> tensors,
                                          const Metadata& metadata);

  /// Appends bytes, row-major and little-endian; pieces need not end where tensors do.
  /// Errors:  kInvalid when more than declared, kIo.
  Status Append(std::span<const std::byte> bytes);

  /// Checks that all declared bytes were written and gives the file its name. Call once.  Errors: kInvalid, kIo.
  Status Finish();

  /// Declared bytes that are still to be appended.
  int64_t remaining_bytes() const { return remaining_bytes_; }

 private:
  SafetensorsWriter(io::FileWriter file, int64_t remaining_bytes)
      : file_(std::move(file)), remaining_bytes_(remaining_bytes) {}

  io::FileWriter file_;
  int64_t remaining_bytes_;
};

}  // namespace trivet::checkpoint
