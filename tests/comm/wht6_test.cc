// SPDX-License-Identifier: Apache-2.0
#include "comm/wht6.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace trivet::comm {
namespace {

std::vector<float> RoundTrip(const std::vector<float>& values) {
  const auto groups = static_cast<int64_t>(values.size()) / kWhtGroup;
  std::vector<uint32_t> packed(static_cast<size_t>(WhtBytes(groups) + 3) / 4);
  auto* bytes = reinterpret_cast<std::byte*>(packed.data());
  WhtEncode(values, bytes);
  std::vector<float> back(values.size());
  const std::byte* part = bytes;
  WhtSum({&part, 1}, groups, 0, groups, back.data());
  return back;
}

// The largest magnitude of a group's transform, in double.
double Top(const float* group) {
  double top = 0;
  for (int k = 0; k < kWhtGroup; ++k) {
    double sum = 0;
    for (int i = 0; i < kWhtGroup; ++i)
      sum += (std::popcount(static_cast<unsigned>(i & k)) % 2 == 0 ? 1 : -1) * group[i];
    top = std::max(top, std::fabs(sum) / 8);
  }
  return top;
}

// Values of several shapes: alike, with one outlier, sparse, alternating.
std::vector<float> Values(int shape, size_t count) {
  std::mt19937 random(static_cast<unsigned>(shape) + 5);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = normal(random);
    if (shape == 1 && i % 64 == 17) values[i] *= 50;
    if (shape == 2 && i % 9 != 0) values[i] = 0;
    if (shape == 3) values[i] = i % 2 == 0 ? 1.0F : -1.0F;
    if (shape == 4) values[i] = std::ldexp(values[i], static_cast<int>(i / 64 % 60) * 4 - 120);
  }
  return values;
}

TEST(Wht6, NoGroupMovesByMoreThanTheBound) {
  double worst = 0;
  for (int shape = 0; shape < 5; ++shape) {
    const std::vector<float> values = Values(shape, 64 * 300), back = RoundTrip(values);
    for (size_t g = 0; g < values.size(); g += 64) {
      // The bound of wht6.h, and the transforms' own rounding: 12 additions of at most the group's length.
      double length = 0, squares = 0, largest = 0;
      for (size_t i = g; i < g + 64; ++i) {
        const double error = static_cast<double>(back[i]) - static_cast<double>(values[i]);
        length += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        squares += error * error;
        largest = std::max(largest, std::fabs(error));
      }
      const double scale = Top(values.data() + g) / kWhtTop * (1 + 0x1p-7) + 0x1p-133;
      const double rounding = 12 * 0x1p-24 * std::sqrt(length);
      EXPECT_LE(std::sqrt(squares / 64), scale / 2 + rounding) << "shape " << shape << ", group " << g / 64;
      EXPECT_LE(largest, 4 * scale + rounding) << "shape " << shape << ", group " << g / 64;
      worst = std::max(worst, std::sqrt(squares / 64) / scale);
    }
  }
  EXPECT_GT(worst, 0.2) << "codes of more than six bits?";
}

// Relative to their length, normal numbers move by some 2.5 % and an outlier makes it less.
TEST(Wht6, ErrorsAreOfTheExpectedSize) {
  for (const auto& [shape, most] : {std::pair{0, 0.027}, {1, 0.015}}) {
    const std::vector<float> values = Values(shape, 64 * 2000), back = RoundTrip(values);
    double length = 0, squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      length += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      squares += std::pow(static_cast<double>(back[i]) - static_cast<double>(values[i]), 2);
    }
    EXPECT_LT(std::sqrt(squares / length), most);
    EXPECT_GT(std::sqrt(squares / length), most / 3);
  }
}

TEST(Wht6, ZerosStayZerosAndFaultsStayFaults) {
  std::vector<float> values(64 * 4, 0.0F);
  for (size_t i = 64; i < 128; ++i) values[i] = -0.0F;
  values[128 + 5] = std::numeric_limits<float>::infinity();
  values[192 + 63] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> back = RoundTrip(values);
  for (size_t i = 0; i < 128; ++i) EXPECT_EQ(back[i], 0) << i;
  for (size_t i = 128; i < 256; ++i) EXPECT_TRUE(std::isnan(back[i])) << i;
}

TEST(Wht6, EveryCodeComesBack) {
  for (const float scale : {1.0F, 0x1p-20F, 3.0F}) {
    for (int first = -31; first <= 16; ++first) {
      float values[kWhtHeld];
      for (int i = 0; i < kWhtHeld; ++i) values[i] = static_cast<float>(first + i) * scale;
      uint32_t words[kWhtWords];
      WhtPack(values, scale, words);
      for (int i = 0; i < kWhtHeld; ++i) EXPECT_EQ(WhtValue(words, i, scale), values[i]);
    }
  }
  // A scale is never too small for its group.
  for (float top = 1; top < 2; top += 0x1p-12F) {
    const float scale = WhtScaleValue(WhtScale(top));
    EXPECT_GE(static_cast<double>(scale) * kWhtTop, static_cast<double>(top) * (1 - 0x1p-23));
    EXPECT_LE(static_cast<double>(scale) * kWhtTop, static_cast<double>(top) * (1 + 0x1p-7));
    EXPECT_LE(WhtCode(top, scale), 63U);
  }
}

}  // namespace
}  // namespace trivet::comm
