// SPDX-License-Identifier: Apache-2.0
#include "engine/evidence.h"

#include <gtest/gtest.h>

#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

plan::Layout LayoutOf(const plan::Geometry& geometry, int64_t ranks, const std::map<std::string, std::string>& cuts) {
  plan::LayoutOptions options;
  options.ranks = ranks;
  options.cuts = cuts;
  return plan::MakeLayout(geometry, options).value();
}

TEST(Evidence, ContractsDifferByNumerics) {
  kernels::Kernels rows = kernels::SelectKernels(kernels::CpuTarget(), {}).value();
  const auto kAuto = cache::KvDtype::kF32;
  const std::string exact = ContractId(kernels::Numerics::kExact, Backend::kCpu, rows, 0, kAuto);
  EXPECT_EQ(exact, "trivet.exact.v1/g30/leaf256-head-width128/chain/kv64/gdn-recurrent/f32-mx22");
  EXPECT_EQ(ContractId(kernels::Numerics::kExact, Backend::kCpu, rows, 0, cache::KvDtype::kE4M3),
            "trivet.exact.v1/g30/leaf256-head-width128/chain/kv64-e4m3/gdn-recurrent/f32-mx22");
  // On a GPU a rank adds on the grid in fast mode, too, and ranks add floats.
  EXPECT_EQ(ContractId(kernels::Numerics::kFast, Backend::kCpu, rows, 0, kAuto),
            "trivet.fast.v1/leaf256-head-width128/chain/kv64/gdn-recurrent/f32-mx22");
  EXPECT_EQ(ContractId(kernels::Numerics::kFast, Backend::kCuda, rows, 0, kAuto),
            "trivet.fast.v1/g30/leaf256-head-width128/chain/kv64/gdn-recurrent/f32-mx22");
  // Rows of matrix units give other bits on every architecture.
  kernels::KernelRow<kernels::Gemm> matrix = *rows.gemm;
  matrix.contract = kernels::Contract::kMatrix;
  rows.gemm = &matrix;
  EXPECT_EQ(ContractId(kernels::Numerics::kExact, Backend::kCpu, rows, 90, kAuto),
            "trivet.exact.v1/g30/leaf256-head-width128/mma16x3-sm90/kv64/gdn-recurrent/f32-mx22");
}

TEST(Evidence, GroupsSayWhoComputesExperts) {
  const SmallModel small;
  const plan::Geometry& geometry = small.model().geometry;
  const ExpertGroups whole = GroupsOf(geometry, LayoutOf(geometry, 3, {{"experts", "whole"}}));
  EXPECT_EQ(whole.placement.ep_size(), 3);
  EXPECT_EQ(whole.ep_rank, (std::vector<int64_t>{0, 1, 2}));
  const ExpertGroups width = GroupsOf(geometry, LayoutOf(geometry, 3, {{"experts", "width"}}));
  EXPECT_EQ(width.placement.ep_size(), 1);
  EXPECT_EQ(width.ep_rank, (std::vector<int64_t>{0, 0, 0}));
  // A rank whose channels are all dummies multiplies those.
  const plan::Layout padded = LayoutOf(geometry, 5, {{"experts", "width-pad"}});
  ASSERT_EQ(padded.ShardOf(4).experts.channels.real, 0);
  ASSERT_GT(padded.ShardOf(4).experts.channels.width, 0);
  EXPECT_EQ(GroupsOf(geometry, padded).ep_rank, (std::vector<int64_t>{0, 0, 0, 0, 0}));
  // Experts that all have come from rank 0 where the shared expert is cut, and from everybody where nothing is.
  EXPECT_EQ(GroupsOf(geometry, LayoutOf(geometry, 2, {{"experts", "replicate"}, {"shared", "uneven"}})).ep_rank,
            (std::vector<int64_t>{0, -1}));
  EXPECT_EQ(GroupsOf(geometry, LayoutOf(geometry, 2, {{"experts", "replicate"}, {"shared", "replicate"}})).ep_rank,
            (std::vector<int64_t>{0, 0}));
}

TEST(Evidence, AddressesComeFromTheMap) {
  const SmallModel small;
  const plan::Geometry& geometry = small.model().geometry;
  const plan::Layout layout = LayoutOf(geometry, 3, {{"experts", "whole"}});
  ProofOptions proof;
  proof.level = record::Level::kFull;
  const record::LogOptions options = LogOptionsOf(geometry, layout, proof, "contract");
  ASSERT_EQ(options.addresses.size(), static_cast<size_t>(geometry.moe.experts));
  for (size_t expert = 0; expert < options.addresses.size(); ++expert) {
    const record::Address& at = options.addresses[expert];
    EXPECT_EQ(layout.shards[at.ep_rank].experts.slots[at.local_slot], static_cast<int64_t>(expert));
  }
}

TEST(Evidence, RequestsHaveWhatWasComputed) {
  const Json json = RequestsJson({{SeqId{0}, {1, 2}, {}, 1}, {SeqId{1}, {3}, {4, 5}, 0, 8}});
  EXPECT_EQ(json[0]["computed"], 0);
  EXPECT_EQ(json[1]["computed"], 8);
  EXPECT_EQ(json[1]["sampled"], Json::array({4, 5}));
}

TEST(Evidence, TheLayoutSaysStagesAndWhoHadWhichRequest) {
  const SmallModel small;
  const plan::Geometry& geometry = small.model().geometry;
  plan::LayoutOptions options;
  options.ranks = 3;
  options.stage_layers = {1, static_cast<int64_t>(geometry.layers.size()) - 1};
  options.replicas = 2;
  options.context_split = plan::SequenceSplit::kZigzag;
  options.context_stretch = 30;
  options.sequence_parallel = true;
  const plan::Layout layout = plan::MakeLayout(geometry, options).value();
  const Json json = RecordedLayout(geometry, layout, "g", {{SeqId{0}, {1}, {}, 0, 1, 0}, {SeqId{1}, {1}, {}, 0, 1, 1}});
  EXPECT_EQ(json["world"], 12);
  EXPECT_EQ(json["sizes"]["tp"], 3);
  EXPECT_EQ(json["sizes"]["cp"], 1);
  EXPECT_EQ(json["cp_layout"], "zigzag");
  EXPECT_EQ(json["cp_stretch"], 30);
  EXPECT_EQ(json["sp"], true);
  EXPECT_EQ(json["sizes"]["pp"], 2);
  EXPECT_EQ(json["sizes"]["dp"], 2);
  EXPECT_EQ(json["stages"][1]["layers"][0], Json::array({1, geometry.layers.size()}));
  EXPECT_EQ(json["dp_assignment"]["requests"], Json::array({0, 1}));
  EXPECT_EQ(json["experts"]["ep_rank"].size(), 12U);
  EXPECT_EQ(json["experts"]["channels"].size(), 12U);
  // All stages are cut alike: an axis has an owner for every rank of one.
  EXPECT_EQ(OwnersOf(geometry, layout, record::Site::kMixer, 0)["ranges"].size(), 3U);
  for (const record::Site site : {record::Site::kMixerNorm, record::Site::kShown, record::Site::kRouter}) {
    EXPECT_EQ(OwnersOf(geometry, layout, site, 0)["by"], "position") << record::SiteName(site);
  }
}

TEST(Evidence, OwnersAreThoseOfTheAxis) {
  const SmallModel small;
  const plan::Geometry& geometry = small.model().geometry;
  const plan::Layout layout = LayoutOf(geometry, 2, {});
  EXPECT_EQ(OwnersOf(geometry, layout, record::Site::kEmbed, -1)["unit"], "vocabulary row");
  EXPECT_EQ(OwnersOf(geometry, layout, record::Site::kMixer, 0)["unit"], "value head");
  EXPECT_EQ(OwnersOf(geometry, layout, record::Site::kMixer, 3)["unit"], "query head");
  EXPECT_EQ(OwnersOf(geometry, layout, record::Site::kMixer, 3)["ranges"].size(), 2U);
  EXPECT_TRUE(OwnersOf(geometry, layout, record::Site::kChannels, 0).contains("shared"));
}

}  // namespace
}  // namespace trivet::engine
