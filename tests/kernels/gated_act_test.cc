// SPDX-License-Identifier: Apache-2.0
#include "kernels/gated_act.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/elementary.h"
#include "kernels/reference.h"
#include "tests/kernels/parity.h"

namespace trivet::kernels {
namespace {

constexpr int64_t kWidths[] = {1, 7, 15, 16, 17, 31, 64, 127, 300, 17408};

// Bit patterns spread over all floats: every exponent, denormals, infinities, NaN of both signs.
std::vector<float> Patterns() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (const float special : {0.0F, 1.0F, 88.0F, 103.0F, 87.5F, std::numeric_limits<float>::denorm_min(),
                              std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const float value : {special, -special, std::nextafter(special, 1e30F), std::nextafter(-special, 1e30F)}) {
      values.push_back(value);
    }
  }
  return values;
}

}  // namespace

void CompareGatedAct(RowLog* log) {
  std::mt19937_64 random(61);
  for (const int64_t width : kWidths) {
    const std::vector<float> x = RandomValues(5 * 2 * width, &random, 40);
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSwiglu}) {
      log->Compare<GatedAct>("width " + std::to_string(width), [&](const KernelRow<GatedAct>& row, Outputs* outputs) {
        Guarded<float> y(5 * width, 1);
        row.run({x.data(), y.data(), width, 0, 2, activation, 7.0F, 1.702F});
        row.run({x.data(), y.data(), width, 2, 5, activation, 7.0F, 1.702F});
        outputs->Take(y);
      });
    }
    const std::vector<int32_t> count = {3};
    log->Compare<GatedAct>("width " + std::to_string(width) + ", counted",
                           [&](const KernelRow<GatedAct>& row, Outputs* outputs) {
                             Guarded<float> y(5 * width, 1);
                             std::fill_n(y.data(), y.size(), 9.0F);
                             row.run({x.data(), y.data(), width, 0, 5, Activation::kSilu, 0, 0, count.data()});
                             outputs->Take(y);
                           });
  }
}

void CompareSigmoidGate(RowLog* log) {
  std::mt19937_64 random(62);
  for (const int64_t n : kWidths) {
    for (const int64_t heads : {1, 3}) {
      const int64_t head_stride = 2 * n, stride = heads * head_stride + 1;  // gates behind queries
      const std::vector<float> x = RandomValues(5 * heads * n, &random, 3),
                               gate = RandomValues(5 * stride, &random, 40);
      log->Compare<SigmoidGate>("n " + std::to_string(n), [&](const KernelRow<SigmoidGate>& row, Outputs* outputs) {
        Guarded<float> y(5 * heads * n, 1);
        std::copy(x.begin(), x.end(), y.data());
        row.run({y.data(), gate.data() + n - (heads == 1 ? n : 0), stride, head_stride, heads, n, 1, 4});
        outputs->Take(y);
      });
    }
  }
}

TEST(GatedAct, GeluAndTheClampedForm) {
  const float x[] = {0.5F, -3.0F, 9.0F, 2.0F, -20.0F, 8.0F};  // three gates, three ups
  float y[3];
  GatedActRef({x, y, 3, 0, 1, Activation::kGeluTanh, 0, 0});
  for (int i = 0; i < 3; ++i) {
    const double g = x[i], u = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
    EXPECT_NEAR(y[i], 0.5 * g * (1 + std::tanh(u)) * static_cast<double>(x[i + 3]), 2e-5);
  }
  GatedActRef({x, y, 3, 0, 1, Activation::kClampedSwiglu, 7.0F, 1.702F});
  const double gates[] = {0.5, -3.0, 7.0}, ups[] = {2.0, -7.0, 7.0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(y[i], (ups[i] + 1) * gates[i] / (1 + std::exp(-1.702 * gates[i])), 2e-5);
  }
}

// Vector rows against the scalar functions, bit by bit, over a million values of every kind.
TEST(GatedAct, VectorsEqualScalarsOnEveryKindOfFloat) {
  std::vector<float> x = Patterns();
  const size_t count = x.size();
  x.resize(2 * count, 1.0F);
  std::vector<float> y(count);
  for (const KernelRow<GatedAct>& row : RunnableRowsOf<GatedAct>()) {
    row.run({x.data(), y.data(), static_cast<int64_t>(count), 0, 1});
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(Silu<ScalarOps>(x[i]) * 1.0F))
          << row.name << ", x bits " << std::hex << std::bit_cast<uint32_t>(x[i]);
    }
  }
}

TEST(SigmoidGate, VectorsEqualScalarsOnEveryKindOfFloat) {
  const std::vector<float> gate = Patterns();
  const auto count = static_cast<int64_t>(gate.size());
  for (const KernelRow<SigmoidGate>& row : RunnableRowsOf<SigmoidGate>()) {
    std::vector<float> x(gate.size(), 1.0F);
    row.run({x.data(), gate.data(), count, count, 1, count, 0, 1});
    for (size_t i = 0; i < gate.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(x[i]), std::bit_cast<uint32_t>(Sigmoid<ScalarOps>(gate[i])))
          << row.name << ", gate bits " << std::hex << std::bit_cast<uint32_t>(gate[i]);
    }
  }
}

TEST(GatedActRef, IsSiluOfTheFirstHalfTimesTheSecond) {
  const float x[] = {0.0F, 1.0F, -2.0F, 3.0F, 2.0F, -1.0F};
  float y[3];
  GatedActRef({x, y, 3, 0, 1});
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_NEAR(y[1], 2.0 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(y[2], 2.0 / (1 + std::exp(2.0)), 1e-6);
}

TEST(SigmoidGateRef, ScalesByTheSigmoidOfItsHeadsGate) {
  float x[] = {1.0F, 2.0F, 3.0F, 4.0F};
  const float gate[] = {9.0F, 9.0F, 0.0F, 1.0F, 9.0F, 9.0F, -1.0F, -100.0F};
  SigmoidGateRef({x, gate + 2, 8, 4, 2, 2, 0, 1});
  EXPECT_EQ(x[0], 0.5F);
  EXPECT_NEAR(x[1], 2 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(x[2], 3 / (1 + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(x[3], 0.0, 1e-37);
}

}  // namespace trivet::kernels
