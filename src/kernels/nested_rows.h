// SPDX-License-Identifier: Apache-2.0
// Rows inside rows: the heads of a token.
#pragma once

#include <cstdint>

namespace trivet::kernels {

/// Where rows stand: `heads` of them inside each of the outer rows.
///   row r is at data + (r / heads) * stride + (r % heads) * head_stride
struct NestedRows {
  int64_t heads = 1;
  int64_t stride = 0;
  int64_t head_stride = 0;

  constexpr int64_t At(int64_t row) const { return row / heads * stride + row % heads * head_stride; }
};

}  // namespace trivet::kernels
