// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/engine/small_model.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

// Every format is kept as it is stored.
TEST(BytesOf, AreThoseOfTheStoredMatrices) {
  for (const auto& [dtype, bytes] : {std::pair(tensor::DType::kBF16, 2.0), std::pair(tensor::DType::kF32, 4.0),
                                     std::pair(tensor::DType::kF16, 2.0)}) {
    support::SyntheticModel extents;
    extents.dtype = dtype;
    const SmallModel small(extents);
    // Parts that the model lacks have two, and nothing to multiply them by.
    const plan::ElementBytes found = BytesOf(small.model(), cache::KvDtype::kF32);
    for (const plan::StepPart part : {plan::StepPart::kEmbed, plan::StepPart::kAttention, plan::StepPart::kDeltaNet,
                                      plan::StepPart::kExperts, plan::StepPart::kEnds, plan::StepPart::kHead}) {
      EXPECT_EQ(found.Of(part), bytes);
    }
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

TEST(BytesOf, MixedDtypesOfAPartAreAveraged) {
  support::SyntheticModel extents;
  extents.some_f32 = true;
  const SmallModel small(extents);
  const std::array<double, plan::kStepParts> found = BytesOf(small.model(), cache::KvDtype::kF32).matrix;
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](double bytes) { return bytes > 2 && bytes < 4; }));
}

// A checkpoint with products in MXFP4 and its vocabulary in BF16: a step reads of the one what is not the other's.
TEST(BytesOf, PartsHaveTheirOwn) {
  const std::string geometry = SourceRoot() + "/bench/geometries/qwen3.8-27b";
  const Result<OpenedModel> model = OpenModel("geometry", geometry, checkpoint::DummyFormat::kMxfp4);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const plan::ElementBytes found = BytesOf(*model, cache::KvDtype::kF32);
  constexpr double kMxfp4 = 17.0 / 32;
  EXPECT_EQ(found.Of(plan::StepPart::kAttention), kMxfp4);
  EXPECT_EQ(found.Of(plan::StepPart::kMlp), kMxfp4);
  EXPECT_EQ(found.Of(plan::StepPart::kEmbed), 2);
  EXPECT_EQ(found.Of(plan::StepPart::kHead), 2);
  // Two gates of a delta net, of few rows, are BF16.
  constexpr double kGates = 96, kRows = 2 * 2048 + 2 * 6144 + 6144;
  EXPECT_NEAR(found.Of(plan::StepPart::kDeltaNet), (kRows * kMxfp4 + kGates * 2) / (kRows + kGates), 1e-3);
}

}  // namespace
}  // namespace trivet::engine
