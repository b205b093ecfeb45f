// SPDX-License-Identifier: Apache-2.0
// Where experts live changes no bit: every number of expert groups and every map of experts to them gives the logits of
// one rank, for the demo model and the small models of every family with routed experts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

using engine::EngineOptions;
using plan::Placement;

constexpr int64_t kMostRanks = 8, kMostGroups = 5;

std::string DirOf(const std::string& name) { return name == "demo" ? DemoDir() : CaseDir(name); }

class PlacementIdentity : public testing::TestWithParam<const char*> {
 protected:
  PlacementIdentity() : model_(support::Open(DirOf(GetParam()))) {
    const bool demo = GetParam() == std::string("demo");
    const std::string golden = DirOf(GetParam()) + (demo ? "/golden/demo-golden.safetensors" : "/golden.safetensors");
    set_ = {support::ReadGolden(golden)[0].tokens, support::RandomTokens(9, model_.geometry.vocab, 4)};
    Result<std::vector<float>> one = support::Logits(model_, {}, set_);
    CHECK_MSG(one.ok(), one.error().message);
    one_rank_ = std::move(one).value();
  }
  void TearDown() override {
    if (runs_ == 0) return;
    std::printf("%s: compared %lld logits in %d runs\n", GetParam(), static_cast<long long>(compared_), runs_);
  }

  int64_t experts() const { return model_.geometry.moe.experts; }

  void ExpectEqual(const EngineOptions& options) {
    const std::string what = fmt::format("{}: {}", GetParam(), support::Describe(options));
    const Result<std::vector<float>> found = support::Logits(model_, options, set_);
    ASSERT_TRUE(found.ok()) << what << ": " << found.error().message;
    EXPECT_EQ(support::FirstDifference(one_rank_, *found, model_.geometry.vocab), "") << what;
    compared_ += static_cast<int64_t>(found->size());
    ++runs_;
  }
  void ExpectEqual(int64_t ranks, Result<Placement> placement) {
    ASSERT_TRUE(placement.ok()) << placement.error().message;
    EngineOptions options;
    options.layout.ranks = ranks;
    options.layout.placement.emplace(std::move(placement).value());
    ExpectEqual(options);
  }

  const engine::OpenedModel model_;
  support::TokenSet set_;
  std::vector<float> one_rank_;
  int64_t compared_ = 0;
  int runs_ = 0;
};

// Every pair of ranks and groups with the default map, and with a random one, whose tables differ in length.
TEST_P(PlacementIdentity, RanksAndGroups) {
  for (int64_t ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (int64_t ep = 1; ep <= std::min(ranks, kMostGroups); ++ep) {
      EngineOptions options;
      options.layout.ranks = ranks;
      options.layout.ep = ep;
      ExpectEqual(options);
      ExpectEqual(ranks, Placement::Random(experts(), ep, static_cast<uint64_t>(8 * ranks + ep)));
    }
  }
}

TEST_P(PlacementIdentity, GroupsWithoutExpertsAndOneWithAll) {
  std::vector<int64_t> backwards;
  for (int64_t e = experts(); e-- > 0;) backwards.push_back(e);
  ExpectEqual(1, Placement::FromLogicalToPhysical(backwards));
  ExpectEqual(3, Placement::FromLogicalToPhysical(backwards, {0, 1, experts() - 1}));
  ExpectEqual(5, Placement::FromLogicalToPhysical(backwards, {0, experts(), 0}));
}

TEST_P(PlacementIdentity, WithPadsProcessesAndTheSharedExpertElsewhere) {
  EngineOptions options;
  options.layout.ranks = 5;
  options.layout.placement.emplace(
      Placement::FromEpConfig(experts(), 3, plan::PlacementStrategy::kInterleave, {"v2", {}}).value());
  if (model_.geometry.moe.shared_width > 0) options.layout.cuts["shared"] = "replicate";
  options.layout.pad_to = 3;
  options.launch = engine::Launch::kProcesses;
  ExpectEqual(options);
}

// What an engine loads by a map is not what it loads by another: else the comparisons above would prove nothing.
TEST_P(PlacementIdentity, TheMapDecidesWhatARankHolds) {
  EngineOptions options;
  options.layout.ranks = 3;
  options.layout.placement.emplace(
      Placement::FromLogicalToPhysical(Placement::Random(experts(), 1, 7)->LogicalToPhysical(), {0, 1, experts() - 1})
          .value());
  const auto engine = engine::Engine::Start(model_, options, {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const plan::Layout& layout = (*engine)->layout();
  EXPECT_TRUE(layout.shards[0].experts.slots.empty());
  EXPECT_EQ(layout.shards[2].experts.slots, options.layout.placement->tables[2]);
  EXPECT_EQ(layout.placement->ContentDigest(), options.layout.placement->ContentDigest());
}

INSTANTIATE_TEST_SUITE_P(Models, PlacementIdentity,
                         testing::Values("demo", "qwen3_moe", "qwen3_next", "qwen3_5_moe", "gpt_oss", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trivet
