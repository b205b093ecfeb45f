// SPDX-License-Identifier: Apache-2.0
#include "base/staging.h"

#include <gtest/gtest.h>

namespace trivet {
namespace {

TEST(Staging, ArraysStandAtMultiplesOf64Bytes) {
  const std::vector<int32_t> few = {1, 2, 3};
  const std::vector<double> many(9, 0.5);
  Staging staging;
  EXPECT_EQ(staging.Add(std::span<const int32_t>()), 0U);
  EXPECT_EQ(staging.Add(std::span<const int32_t>(few)), 0U);
  EXPECT_EQ(staging.Add(std::span<const double>(many)), 64U);
  EXPECT_EQ(staging.bytes(), 64 + 128);
  EXPECT_EQ(std::memcmp(staging.data(), few.data(), 12), 0);
  EXPECT_EQ(std::memcmp(staging.data() + 64, many.data(), 72), 0);
}

}  // namespace
}  // namespace trivet
