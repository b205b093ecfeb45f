// SPDX-License-Identifier: Apache-2.0
// Normalisations over a row, or over the heads inside a row.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel.h"
#include "kernels/nested_rows.h"

namespace trivet::kernels {

/// y = (x / sqrt(mean(x^2) + eps)) * (offset + weight), rounded after every operation; the sum as in lanes.h, and
/// 1 / sqrt as a square root and a division.
///   x, y    float32, rows of n; y may be x
///   weight  [n] float32
///   range   rows [begin, end)
/// Source:   RMSNorm; offset is 1 where the family stores weight - 1.
struct RmsNorm {
  struct Args {
    const float* x = nullptr;
    NestedRows x_rows;
    float* y = nullptr;
    NestedRows y_rows;
    const float* weight = nullptr;
    int64_t n = 0;
    float eps = 0;
    float offset = 0;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "rms_norm";
  static std::span<const KernelRow<RmsNorm>> Rows();
  static std::span<const KernelRow<RmsNorm>> CudaRows();
};

/// The end of a residual branch and the norm in front of the next, as AddSums and RmsNorm give them one after the
/// other: x += the reduced sum, y = RmsNorm(x), and the sum becomes zero, ready for the next branch.
///   x, y    [M, n] float32, dense
///   sums_*  [M, n] dense, whichever is given: FromGrid(sums_fixed) or sums_fast
///   weight  [n] float32
///   range   rows [begin, end)
struct AddNorm {
  struct Args {
    float* x = nullptr;
    int64_t* sums_fixed = nullptr;
    float* sums_fast = nullptr;
    float* y = nullptr;
    const float* weight = nullptr;
    int64_t n = 0;
    float eps = 0;
    float offset = 0;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "add_norm";
  static std::span<const KernelRow<AddNorm>> Rows();
  static std::span<const KernelRow<AddNorm>> CudaRows();
};

/// x = x / sqrt(sum(x^2) + 1e-6), times `scale` in the first `scaled` heads of every outer row, in place.
///   x       float32, rows of n;  range: rows [begin, end)
/// Source:   the delta net's normalisation of queries and keys: eps is added to the sum, not to the mean.
struct L2Norm {
  struct Args {
    float* x = nullptr;
    NestedRows rows;
    int64_t n = 0;
    float scale = 1;
    int64_t scaled = 0;
    int64_t begin = 0, end = 0;

    constexpr float ScaleOf(int64_t row) const { return row % rows.heads < scaled ? scale : 1.0F; }
  };
  static constexpr std::string_view kName = "l2_norm";
  static std::span<const KernelRow<L2Norm>> Rows();
  static std::span<const KernelRow<L2Norm>> CudaRows();
};

/// x = RmsNorm(x, weight, offset 0) * silu(gate), in place: the delta net's output norm, norm first, then gate.
///   x       float32, rows of n;  gate: rows of n;  weight: [n];  range: rows [begin, end)
struct GatedNorm {
  struct Args {
    float* x = nullptr;
    NestedRows x_rows;
    const float* gate = nullptr;
    NestedRows gate_rows;
    const float* weight = nullptr;
    int64_t n = 0;
    float eps = 0;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "gated_norm";
  static std::span<const KernelRow<GatedNorm>> Rows();
  static std::span<const KernelRow<GatedNorm>> CudaRows();
};

}  // namespace trivet::kernels
