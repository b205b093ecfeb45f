// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/lanes.h"
#include "kernels/reference.h"
#include "tests/kernels/parity.h"

namespace trivet::kernels {
namespace {

constexpr int64_t kWidths[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 100, 127, 256, 1031, 5120, 7168, 11265};

// Rows inside wider rows: `heads` rows of n with a gap behind each, three more floats behind all.
NestedRows Nested(int64_t heads, int64_t n, int64_t gap) { return {heads, heads * (n + gap) + 3, n + gap}; }
int64_t Extent(const NestedRows& rows, int64_t count) { return count / rows.heads * rows.stride; }

// An array that starts as `values`.
Guarded<float> CopyOf(const std::vector<float>& values) {
  Guarded<float> copy(static_cast<int64_t>(values.size()), 1);
  std::copy(values.begin(), values.end(), copy.data());
  return copy;
}

std::string Name(int64_t n, int64_t heads) { return "n " + std::to_string(n) + ", heads " + std::to_string(heads); }

}  // namespace

void CompareRmsNorm(RowLog* log) {
  std::mt19937_64 random(51);
  for (const int64_t n : kWidths) {
    for (const int64_t heads : {1, 3}) {
      const int64_t count = 6;
      const NestedRows x_rows = Nested(heads, n, 2), y_rows = Nested(heads, n, 0);
      std::vector<float> x = RandomValues(Extent(x_rows, count), &random, 5);
      const std::vector<float> weight = RandomValues(n, &random);
      if (n == 100) std::fill(x.begin(), x.end(), 0.0F);  // a row of zeros is divided by sqrt(eps)
      for (const float offset : {0.0F, 1.0F}) {
        log->Compare<RmsNorm>(Name(n, heads), [&](const KernelRow<RmsNorm>& row, Outputs* outputs) {
          Guarded<float> y(Extent(y_rows, count), 1);
          row.run({x.data(), x_rows, y.data(), y_rows, weight.data(), n, 1e-6F, offset, 0, 4});
          row.run({x.data(), x_rows, y.data(), y_rows, weight.data(), n, 1e-6F, offset, 4, count});
          outputs->Take(y);
        });
        log->Compare<RmsNorm>(Name(n, heads) + ", in place", [&](const KernelRow<RmsNorm>& row, Outputs* outputs) {
          Guarded<float> y = CopyOf(x);
          row.run({y.data(), x_rows, y.data(), x_rows, weight.data(), n, 1e-6F, offset, 1, count});
          outputs->Take(y);
        });
      }
    }
  }
}

void CompareAddNorm(RowLog* log) {
  std::mt19937_64 random(54);
  for (const int64_t n : kWidths) {
    const int64_t rows = 4;
    const std::vector<float> x = RandomValues(rows * n, &random, 5), weight = RandomValues(n, &random);
    const std::vector<float> values = RandomValues(rows * n, &random);
    for (const bool fixed : {true, false}) {
      log->Compare<AddNorm>(Name(n, 1) + (fixed ? ", fixed" : ", fast"),
                            [&](const KernelRow<AddNorm>& row, Outputs* outputs) {
                              Guarded<float> stream = CopyOf(x), y(rows * n, 1), fast = CopyOf(values);
                              Guarded<int64_t> sums(rows * n, 1);
                              for (int64_t i = 0; i < rows * n; ++i)
                                sums.data()[i] = static_cast<int64_t>(values[static_cast<size_t>(i)] * 1e9F);
                              AddNorm::Args args{stream.data(),
                                                 fixed ? sums.data() : nullptr,
                                                 fixed ? nullptr : fast.data(),
                                                 y.data(),
                                                 weight.data(),
                                                 n,
                                                 1e-6F,
                                                 1.0F,
                                                 0,
                                                 1};
                              row.run(args);
                              args.begin = 1, args.end = 3;  // the last row stays as it is
                              row.run(args);
                              outputs->Take(stream);
                              outputs->Take(y);
                              outputs->Take(fast);
                              outputs->Take(sums);
                            });
    }
  }
}

void CompareL2Norm(RowLog* log) {
  std::mt19937_64 random(52);
  for (const int64_t n : kWidths) {
    for (const int64_t heads : {1, 4}) {
      const NestedRows rows = Nested(heads, n, 3);
      const std::vector<float> x = RandomValues(Extent(rows, 8), &random, 5);
      log->Compare<L2Norm>(Name(n, heads), [&](const KernelRow<L2Norm>& row, Outputs* outputs) {
        Guarded<float> y = CopyOf(x);
        row.run({y.data(), rows, n, 0.088388F, heads / 2, 1, 7});
        outputs->Take(y);
      });
    }
  }
}

void CompareGatedNorm(RowLog* log) {
  std::mt19937_64 random(53);
  for (const int64_t n : kWidths) {
    for (const int64_t heads : {1, 2}) {
      const NestedRows rows = Nested(heads, n, 0), gate_rows = Nested(heads, n, 5);
      const std::vector<float> x = RandomValues(Extent(rows, 6), &random, 5);
      const std::vector<float> gate = RandomValues(Extent(gate_rows, 6), &random, 30);
      const std::vector<float> weight = RandomValues(n, &random);
      log->Compare<GatedNorm>(Name(n, heads), [&](const KernelRow<GatedNorm>& row, Outputs* outputs) {
        Guarded<float> y = CopyOf(x);
        row.run({y.data(), rows, gate.data(), gate_rows, weight.data(), n, 1e-5F, 1, 6});
        outputs->Take(y);
      });
    }
  }
}

TEST(NormRef, MatchesTheFormulas) {
  std::mt19937_64 random(54);
  constexpr int64_t kN = 77;
  const std::vector<float> x = RandomValues(kN, &random, 3), weight = RandomValues(kN, &random),
                           gate = RandomValues(kN, &random, 3);
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
  std::vector<float> rms(kN), l2 = x, gated = x;
  RmsNormRef({x.data(), {1, kN, 0}, rms.data(), {1, kN, 0}, weight.data(), kN, 1e-3F, 1.0F, 0, 1});
  L2NormRef({l2.data(), {1, kN, 0}, kN, 0.25F, 1, 0, 1});
  GatedNormRef({gated.data(), {1, kN, 0}, gate.data(), {1, kN, 0}, weight.data(), kN, 1e-3F, 0, 1});
  for (size_t i = 0; i < kN; ++i) {
    const double unit = static_cast<double>(x[i]) / std::sqrt(squares / kN + 1e-3), g = static_cast<double>(gate[i]);
    const double w = static_cast<double>(weight[i]);
    EXPECT_NEAR(rms[i], unit * (1 + w), 4e-6);
    EXPECT_NEAR(l2[i], static_cast<double>(x[i]) / std::sqrt(squares + 1e-6) * 0.25, 1e-6);
    EXPECT_NEAR(gated[i], unit * w * g / (1 + std::exp(-g)), 4e-6);
  }
}

TEST(AddNorm, EndsABranchAndBeginsTheNext) {
  float x[] = {1, 2, 3, 4}, y[4] = {}, fast[] = {0.5F, 0, -1, 8};
  int64_t fixed[] = {int64_t{1} << 30, int64_t{-1} << 29, 0, 7};
  const float weight[] = {1, 2};
  AddNormRef({x, fixed, nullptr, y, weight, 2, 0, 0, 0, 1});
  EXPECT_EQ(x[0], 2.0F);
  EXPECT_EQ(x[1], 1.5F);
  EXPECT_EQ(x[2], 3.0F);  // the second row is not in the range
  EXPECT_NEAR(y[0], 2 / std::sqrt(3.125), 1e-6);
  EXPECT_NEAR(y[1], 3 / std::sqrt(3.125), 1e-6);
  EXPECT_EQ(fixed[0] | fixed[1], 0);
  EXPECT_EQ(fixed[3], 7);
  AddNormRef({x, nullptr, fast, y, weight, 2, 0, 0, 1, 2});
  EXPECT_EQ(x[2], 2.0F);
  EXPECT_EQ(x[3], 12.0F);
  EXPECT_EQ(fast[2], 0.0F);
  EXPECT_EQ(fast[0], 0.5F);
}

// Bytes depend on the row alone, wherever it stands.
TEST(Norm, ARowAloneEqualsTheRowInABatch) {
  std::mt19937_64 random(55);
  constexpr int64_t kN = 131, kRows = 9;
  const std::vector<float> x = RandomValues(kRows * kN, &random), weight = RandomValues(kN, &random);
  for (const KernelRow<RmsNorm>& row : RunnableRowsOf<RmsNorm>()) {
    std::vector<float> batch(kRows * kN), alone(kN);
    row.run({x.data(), {1, kN, 0}, batch.data(), {1, kN, 0}, weight.data(), kN, 1e-6F, 0, 0, kRows});
    for (int64_t i = 0; i < kRows; ++i) {
      row.run({x.data() + i * kN, {1, kN, 0}, alone.data(), {1, kN, 0}, weight.data(), kN, 1e-6F, 0, 0, 1});
      EXPECT_EQ(std::memcmp(alone.data(), batch.data() + i * kN, kN * sizeof(float)), 0) << row.name << ", row " << i;
    }
  }
}

TEST(Lanes, SumsGoBySixteenLanesThenHalves) {
  // 2^24 absorbs a 1 that is added to it alone, and keeps a pair: the order shows.
  std::vector<float> values(16, 0.0F);
  values[0] = 16777216.0F;
  values[8] = 1.0F;  // met first by lane 0: lost
  values[4] = 1.0F;  // lane 4 and lane 12 meet before they reach lane 0: kept
  values[12] = 1.0F;
  EXPECT_EQ(HalvingSum(values.data(), 16), 16777218.0F);

  std::vector<float> x(32, 0.0F);
  x[0] = 4096.0F;  // square 2^24
  x[16] = 1.0F;    // the same lane: lost
  EXPECT_EQ(SumOfSquares(x.data(), 32), 16777216.0F);
  x[16] = 0.0F;
  x[20] = x[28] = 1.0F;  // other lanes, which meet first: kept
  EXPECT_EQ(SumOfSquares(x.data(), 32), 16777218.0F);
  EXPECT_EQ(SumOfSquares(x.data(), 0), 0.0F);
}

}  // namespace trivet::kernels
