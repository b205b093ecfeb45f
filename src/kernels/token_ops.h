// SPDX-License-Identifier: Apache-2.0
// What happens to whole token rows: lookup, rotation, routing, copies, residual sums. Memory-bound or tiny, so plain
// C++ is their only row on a processor.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/elementary.h"
#include "kernels/fixed_point.h"
#include "kernels/kernel.h"
#include "kernels/nested_rows.h"
#include "kernels/weight_format.h"

namespace trivet::kernels {

/// x[t] = embedding row tokens[t] when this rank holds it, else zeros.
///   table    packed [V_local, H]; its row 0 is vocabulary id first_id; `real` rows exist
///   x        [T, H] float32, dense;  range: tokens [begin, end)
/// Ranks:     exactly one rank writes a non-zero row, so adding the bit patterns as integers over ranks is exact.
struct Embed {
  struct Args {
    const PackedMatrix* table = nullptr;
    int64_t first_id = 0;
    int64_t real = 0;
    const int32_t* tokens = nullptr;
    float* x = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "embed";
  static std::span<const KernelRow<Embed>> Rows();
  static std::span<const KernelRow<Embed>> CudaRows();
};

/// Rotates the first 2 * half channels of every head in place: (a, b) = (a cos - b sin, b cos + a sin) for the pairs
/// (i, i + half), products rounded before they are added.
///   x         head h of token t is at x + t * stride + h * head_stride
///   cos, sin  [T, half] float32 of the tokens' angles
///   range     tokens [begin, end)
/// Source:     RoFormer, half-split order.
struct Rope {
  struct Args {
    float* x = nullptr;
    int64_t stride = 0;
    int64_t head_stride = 0;
    int64_t heads = 0;
    int64_t half = 0;
    const float* cos = nullptr;
    const float* sin = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "rope";
  static std::span<const KernelRow<Rope>> Rows();
  static std::span<const KernelRow<Rope>> CudaRows();
};

/// How a router's logits become weights of the chosen experts.
enum class RouterKind {
  kSoftmaxChosen,  // w_i = e_i / sum of the chosen e, e_i = exp(l_i - l_0), in the order chosen; equal to the softmax
                   // over all experts renormalised over the chosen ones
  kSoftmaxAll,     // w_i = e_i / sum of all e, in ascending order of experts
  kSigmoid,        // s_i = sigmoid(l_i), chosen by s_i + correction_i; w_i = s_i, over (sum of the chosen + 1e-20) when
                   // renormalised, times scaling
};

/// The top_k experts of each token by logit, or by corrected sigmoid (ties: lower expert first), in descending order,
/// and their weights. With groups > 1 only experts of the groups_kept groups whose two best add up to most are
/// eligible.
///   logits      [T, *] float32, row stride logits_stride, the first E columns
///   correction  [E], or null for zeros; of kSigmoid
///   experts     [T, top_k] logical ids;  weights [T, top_k];  range: tokens [begin, end)
///   slot_of     [E] local slot of each expert or -1, or null for experts themselves; experts then holds slots
///   forced      [T, top_k] experts that are chosen instead, each once, in the order in which they would have been; -1
///   at
///               the first leaves a row free; null: all are free. Only rows of a processor take it
///   other       [T], beside forced: 1 where these are other experts than the own choice, else 0
///   record      what a record of the choice asks for, all or nothing: [T, top_k] logical ids; [T, top_k] the values
///   that
///               become weights (logits or sigmoids); [T, top_k + 1] those that the choice was made by, in its order,
///               and behind them the best that was not chosen (-infinity: none)
struct Route {
  struct Record {
    int32_t* experts = nullptr;
    float* scores = nullptr;
    float* choice = nullptr;
  };
  struct Args {
    const float* logits = nullptr;
    int64_t logits_stride = 0;
    int64_t experts_total = 0;  // E
    int64_t top_k = 0;
    int32_t* experts = nullptr;
    float* weights = nullptr;
    int64_t begin = 0, end = 0;
    RouterKind kind = RouterKind::kSoftmaxChosen;
    const float* correction = nullptr;
    int64_t groups = 1, groups_kept = 1;
    bool renormalise = true;
    float scaling = 1;
    const int32_t* slot_of = nullptr;
    Record record = {};
    const int32_t* forced = nullptr;
    int32_t* other = nullptr;
  };
  static constexpr std::string_view kName = "route";
  static std::span<const KernelRow<Route>> Rows();
  static std::span<const KernelRow<Route>> CudaRows();
};

/// x[m][n] += bias[row of m][n].
///   x      [M, N] float32, row stride `stride`;  range: rows [begin, end)
///   bias   [*, N] dense
///   rows   [M] row of bias that m adds, -1: none; null: row 0
struct AddBias {
  struct Args {
    float* x = nullptr;
    int64_t stride = 0;
    const float* bias = nullptr;
    int64_t n = 0;
    int64_t begin = 0, end = 0;
    const int32_t* rows = nullptr;
  };
  static constexpr std::string_view kName = "add_bias";
  static std::span<const KernelRow<AddBias>> Rows();
  static std::span<const KernelRow<AddBias>> CudaRows();
};

/// x += the reduced sum: FromGrid(sums_fixed) or sums_fast, whichever is given.
///   x, sums  dense;  range: elements [begin, end)
struct AddSums {
  struct Args {
    float* x = nullptr;
    const int64_t* sums_fixed = nullptr;
    const float* sums_fast = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "add_sums";
  static std::span<const KernelRow<AddSums>> Rows();
  static std::span<const KernelRow<AddSums>> CudaRows();
};

/// What a rank adds up with others where it has added on the grid and they add floats: y = FromGrid(sums), and zero in
/// the place of every sum.
///   sums, y  dense;  range: elements [begin, end)
struct RoundSums {
  struct Args {
    int64_t* sums = nullptr;
    float* y = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "round_sums";
  static std::span<const KernelRow<RoundSums>> Rows();
  static std::span<const KernelRow<RoundSums>> CudaRows();
};

/// A function of one value.
enum class MapFunction {
  kScale,    // x * parameter
  kSigmoid,  // sigmoid(x)
  kSoftCap,  // parameter * tanh(x / parameter)
};

/// f of one value; one definition for every row of the family.
constexpr float Apply(MapFunction function, float parameter, float x) {
  switch (function) {
    case MapFunction::kScale:
      return x * parameter;
    case MapFunction::kSigmoid:
      return Sigmoid<ScalarOps>(x);
    case MapFunction::kSoftCap:
      break;
  }
  return SoftCap<ScalarOps>(x, parameter);
}

/// y[i] = f(x[i * x_stride]).
///   x, y   float32; y is dense and may be x when x_stride is 1;  range: elements [begin, end)
struct Map {
  struct Args {
    MapFunction function = MapFunction::kScale;
    float parameter = 0;
    const float* x = nullptr;
    int64_t x_stride = 1;
    float* y = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "map";
  static std::span<const KernelRow<Map>> Rows();
  static std::span<const KernelRow<Map>> CudaRows();
};

/// Row i of y becomes row rows[i] of x.
///   x, y   float32, rows of n that stand as x_rows and y_rows say; they do not overlap
///   rows   [end] row of x; null: i itself
///   range  rows of y [begin, end)
struct CopyRows {
  struct Args {
    const float* x = nullptr;
    NestedRows x_rows;
    float* y = nullptr;
    NestedRows y_rows;
    int64_t n = 0;
    const int32_t* rows = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "copy_rows";
  static std::span<const KernelRow<CopyRows>> Rows();
  static std::span<const KernelRow<CopyRows>> CudaRows();
};

}  // namespace trivet::kernels
