// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_facts.h"

#include <gtest/gtest.h>

#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

// Every format is kept as it is stored.
TEST(BytesOf, AreThoseOfTheStoredMatrices) {
  for (const auto& [dtype, bytes] : {std::pair(tensor::DType::kBF16, 2.0), std::pair(tensor::DType::kF32, 4.0),
                                     std::pair(tensor::DType::kF16, 2.0)}) {
    support::SyntheticModel extents;
    extents.dtype = dtype;
    const SmallModel small(extents);
    EXPECT_EQ(BytesOf(small.model()).matrix, bytes);
    EXPECT_EQ(BytesOf(small.model()).cache, 4);
  }
}

TEST(BytesOf, MixedDtypesAreAveraged) {
  support::SyntheticModel extents;
  extents.some_f32 = true;
  const SmallModel small(extents);
  EXPECT_GT(BytesOf(small.model()).matrix, 2.0);
  EXPECT_LT(BytesOf(small.model()).matrix, 4.0);
}

}  // namespace
}  // namespace trivet::engine
