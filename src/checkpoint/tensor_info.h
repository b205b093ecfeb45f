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

/// An order in which a file has rows or columns: those from `begin` on in groups of outer x inner runs, where run (a,
/// b) of the logical group is run (b, a) of the stored one.
struct StoredOrder {
  int64_t begin = 0;  // rows before it stand where they belong
  int64_t outer = 1, inner = 1;
  int64_t run = 1;  // rows that stay together

  /// Where logical row or column `index` is stored.
  int64_t Stored(int64_t index) const {
    if (index < begin || outer == 1) return index;
    const int64_t in_group = (index - begin) % (outer * inner * run), a = in_group / run / inner,
                  b = in_group / run % inner;
    return index - in_group + (b * outer + a) * run + in_group % run;
  }
};

/// One tensor, row-major and little-endian.
struct TensorInfo {
  std::string name;
  std::string stored_name;  // the file's, where `name` is another
  tensor::DType dtype = tensor::DType::kU8;
  std::vector<int64_t> shape;  // empty for a scalar
  int file = 0;                // index into the checkpoint's files
  int64_t offset = 0;          // of its first byte, from the file's start
  int64_t bytes = 0;
  StoredOrder row_order, col_order;
  bool negated_exp = false;  // elements are -exp(x) of the logical ones
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
