// SPDX-License-Identifier: Apache-2.0
#include "engine/expert_digests.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/load.h"
#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

// Digests of all experts of a layer by logical id, put together from the slots of all ranks.
std::map<int64_t, Digest> Put(const OpenedModel& model, int64_t ranks, const std::string& cut,
                              std::map<int64_t, Digest>* reference) {
  plan::LayoutOptions options;
  options.ranks = ranks;
  options.cuts["experts"] = cut;
  const plan::Layout layout = plan::MakeLayout(model.geometry, options).value();
  ThreadPool pool(2);
  std::map<int64_t, Digest> sums;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const plan::ShardMap map = plan::MakeShardMap(model.geometry, layout, rank, model.names);
    const auto tensors = LoadShard(model, map, {device::Device(), &pool}, {}, {});
    CHECK_MSG(tensors.ok(), tensors.error().message);
    const auto json = ExpertDigests(model, {rank, ranks, layout.shards[static_cast<size_t>(rank)]}, *tensors,
                                    device::Device(), &pool);
    CHECK_MSG(json.ok(), json.error().message);
    for (const Json& entry : (*json)["experts"]) {
      if (entry["layer"] != 1) continue;
      Digest& sum = sums[entry["logical"].get<int64_t>()];
      sum = Add(sum, *ParseDigest(entry["digest"].get<std::string>()));
    }
    for (const Json& entry : (*json)["reference"]) {
      if (entry["layer"] == 1) (*reference)[entry["expert"]] = *ParseDigest(entry["digest"].get<std::string>());
    }
  }
  return sums;
}

// Every cut of a model's experts gives the digests that the checkpoint's own bytes give.
void ExpectSameDigests(const SmallModel& small) {
  const std::vector<std::pair<int64_t, std::string>> cuts = {
      {1, "whole"}, {3, "whole"}, {3, "width"}, {5, "whole-pad"}, {2, "width"}};
  std::map<int64_t, Digest> first;
  for (const auto& [ranks, cut] : cuts) {
    std::map<int64_t, Digest> reference;
    const std::map<int64_t, Digest> found = Put(small.model(), ranks, cut, &reference);
    EXPECT_EQ(found.size(), static_cast<size_t>(small.model().geometry.moe.experts));
    EXPECT_EQ(found, reference) << ranks << ' ' << cut;
    if (first.empty()) first = found;
    EXPECT_EQ(found, first) << ranks << ' ' << cut;
  }
  EXPECT_NE(first[0], first[1]);
}

TEST(ExpertDigests, EveryCutGivesTheCheckpointsDigests) {
  support::SyntheticModel extents;
  extents.expert_width = 96;
  extents.hidden = 96;  // three tiles; no whole number of the columns that are copied at once
  for (const tensor::DType dtype :
       {tensor::DType::kBF16, tensor::DType::kF16, tensor::DType::kF32, tensor::DType::kMxfp4}) {
    extents.dtype = dtype;
    extents.some_f32 = dtype == tensor::DType::kBF16;
    for (const bool fused : {true, false}) {
      extents.fused_experts = fused;
      ExpectSameDigests(SmallModel(extents));
    }
  }
}

TEST(ExpertDigests, WidthsThatEndInsideTiles) {
  support::SyntheticModel extents;
  extents.expert_width = 44;
  ExpectSameDigests(SmallModel(extents));
}

TEST(CheckpointDigest, IsOfTheBytes) {
  const SmallModel a;
  ThreadPool one(1), four(4);
  const Digest digest = CheckpointDigest(a.model().checkpoint, &one).value();
  EXPECT_EQ(CheckpointDigest(a.model().checkpoint, &four).value(), digest);
}

TEST(CheckpointDigest, DiffersForOtherWeights) {
  ThreadPool pool(2);
  Digest digest;
  {
    const SmallModel a;
    digest = CheckpointDigest(a.model().checkpoint, &pool).value();
  }
  support::SyntheticModel other;
  other.seed = 2;
  const SmallModel b(other);
  EXPECT_NE(CheckpointDigest(b.model().checkpoint, &pool).value(), digest);
}

}  // namespace
}  // namespace trivet::engine
