// SPDX-License-Identifier: Apache-2.0
// One product to compute with several rows: its inputs, and outputs that start the same every time.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "kernels/gemm.h"
#include "tests/kernels/packed.h"

namespace trivet::kernels {

/// Which of Gemm's forms is computed.
struct GemmForm {
  Numerics numerics = Numerics::kExact;
  bool sums = false;     // accumulate into sums_fixed or sums_fast instead of writing y
  bool map_x = false;    // rows of x in a random order, with repeats
  bool map_y = false;    // rows of y in a random order
  bool scale = false;    // row_scale; only with sums
  bool aligned = false;  // rows of x at multiples of 16 bytes
};

/// Inputs of one product. Strides leave gaps, and x is aligned only where the form says so.
class GemmProblem {
 public:
  GemmProblem(const PackedShape& shape, int64_t m, const GemmForm& form, std::mt19937_64* random)
      : form_(form), m_(m), weights_(shape, random), x_(RandomValues((m + 1) * (shape.k + 6), random, 4)) {
    scale_ = RandomValues(m, random, 2);
    y_start_ = RandomValues(m * y_stride(), random);
    y_rows_ = Shuffled(m, random);
    for (int64_t i = 0; i < m; ++i) x_rows_.push_back(static_cast<int32_t>((*random)() % static_cast<uint64_t>(m)));
  }

  /// The whole product with `row`; changed by the caller to compute parts.
  Gemm::Args Args() {
    Gemm::Args args;
    args.x = x_.data() + (form_.aligned ? 0 : 1);
    args.x_stride = form_.aligned ? (weights_.matrix().k + 3) / 4 * 4 : weights_.matrix().k + 3;
    args.x_rows = form_.map_x ? x_rows_.data() : nullptr;
    args.m = m_;
    args.w = &weights_.matrix();
    args.y_stride = y_stride();
    args.y_rows = form_.map_y ? y_rows_.data() : nullptr;
    args.row_scale = form_.scale ? scale_.data() : nullptr;
    args.numerics = form_.numerics;
    args.tile_end = weights_.matrix().tiles();
    return args;
  }

  /// Runs `args` with `row` on fresh outputs.
  void Run(const KernelRow<Gemm>& row, const Gemm::Args& args, Outputs* outputs) const {
    RunParts(row, std::span(&args, 1), outputs);
  }

  /// Runs every part of a product with `row`, all on the same fresh outputs.
  void RunParts(const KernelRow<Gemm>& row, std::span<const Gemm::Args> parts, Outputs* outputs) const {
    const auto flags = std::make_unique<std::atomic<uint32_t>>(0);  // on the heap, where a device reads too
    Guarded<float> y(m_ * y_stride(), 1);
    Guarded<int64_t> fixed(m_ * y_stride(), 1);
    std::copy(y_start_.begin(), y_start_.end(), y.data());
    for (int64_t i = 0; i < fixed.size(); ++i) fixed[i] = i * 1000003;
    const bool exact_sums = form_.sums && form_.numerics == Numerics::kExact;
    for (Gemm::Args args : parts) {
      args.flags = flags.get();
      (exact_sums   ? static_cast<void>(args.sums_fixed = fixed.data())
       : form_.sums ? static_cast<void>(args.sums_fast = y.data())
                    : static_cast<void>(args.y = y.data()));
      row.run(args);
    }
    outputs->Take(y);
    outputs->Take(fixed);
    outputs->Take(flags->load());
  }

  std::string Name() const {
    const PackedMatrix& w = weights_.matrix();
    return "m=" + std::to_string(m_) + " n=" + std::to_string(w.n) + " k=" + std::to_string(w.k) +
           " leaf=" + std::to_string(w.leaf) + " phase=" + std::to_string(w.phase) + " " +
           std::string(FormatRow(w.format).name) + (form_.numerics == Numerics::kExact ? " exact" : " fast") +
           (form_.sums ? " sums" : " y") + (form_.map_x ? " x_rows" : "") + (form_.map_y ? " y_rows" : "") +
           (form_.scale ? " scale" : "") + (form_.aligned ? " aligned" : "");
  }

  const Packed& weights() const { return weights_; }
  std::vector<float>& x() { return x_; }
  std::vector<float>& scale() { return scale_; }
  int64_t y_stride() const { return weights_.matrix().n + 5; }

 private:
  GemmForm form_;
  int64_t m_;
  Packed weights_;
  std::vector<float> x_, scale_, y_start_;
  std::vector<int32_t> x_rows_, y_rows_;
};

/// Forms in turn, so that a walk over sizes meets all of them that rows of `backend` have.
inline GemmForm FormNumber(uint64_t i, Backend backend = Backend::kCpu) {
  GemmForm form;
  form.numerics = WithinRank((i & 1) == 0 ? Numerics::kExact : Numerics::kFast, backend);
  form.sums = (i & 2) != 0;
  form.map_x = (i & 4) != 0;
  form.map_y = (i & 8) != 0;
  form.scale = form.sums && (i & 16) != 0;
  form.aligned = (i & 32) != 0;
  return form;
}

}  // namespace trivet::kernels
