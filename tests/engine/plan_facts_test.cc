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
    EXPECT_EQ(BytesOf(small.model(), cache::KvDtype::kF32).matrix, bytes);
    EXPECT_EQ(BytesOf(small.model(), cache::KvDtype::kF32).cache, 4);
  }
}

// What is priced is what the caches take.
TEST(BytesOf, OfTheCacheAreThoseOfItsPages) {
  const SmallModel small;
  const plan::Geometry& geometry = small.model().geometry;
  for (const int64_t ranks : {1, 2}) {
    plan::LayoutOptions options;
    options.ranks = ranks;
    const Result<plan::Layout> layout = plan::MakeLayout(geometry, options);
    ASSERT_TRUE(layout.ok());
    for (const cache::KvDtype dtype : {cache::KvDtype::kF32, cache::KvDtype::kE4M3}) {
      const plan::LayoutCost cost = plan::PriceLayout(geometry, *layout, BytesOf(small.model(), dtype));
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const cache::CacheUnits units = cache::UnitsOf(geometry, layout->ShardOf(rank), {1, 1, 1, 64, dtype});
        EXPECT_GT(units.page, 0);
        EXPECT_EQ(cost.ranks[static_cast<size_t>(rank)].kv_token_bytes * cache::kPageTokens, units.page);
      }
    }
  }
}

TEST(BytesOf, MixedDtypesAreAveraged) {
  support::SyntheticModel extents;
  extents.some_f32 = true;
  const SmallModel small(extents);
  EXPECT_GT(BytesOf(small.model(), cache::KvDtype::kF32).matrix, 2.0);
  EXPECT_LT(BytesOf(small.model(), cache::KvDtype::kF32).matrix, 4.0);
}

}  // namespace
}  // namespace trivet::engine
