// SPDX-License-Identifier: Apache-2.0
#include "engine/fault_sites.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

using testing::HasSubstr;

// What is said of a fault under a layout; "" when it can be planted.
std::string Said(const OpenedModel& model, const std::string& fault, EngineOptions options) {
  options.fault = comm::ParseFault(fault).value();
  const plan::Layout layout = plan::MakeLayout(model.geometry, options.layout).value();
  const Status status = CheckFault(model.geometry, layout, options);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, Code::kUsage);
  return status.error().message;
}

// On so many ranks and stages.
std::string Said(const OpenedModel& model, const std::string& fault, int64_t ranks = 3, int64_t stages = 1) {
  EngineOptions options;
  options.layout.ranks = ranks;
  options.layout.stages = stages;
  return Said(model, fault, options);
}

std::vector<int64_t> LayersWithExperts(const OpenedModel& model) {
  std::vector<int64_t> layers;
  for (size_t i = 0; i < model.geometry.layers.size(); ++i) {
    if (model.geometry.layers[i].channel_mixer == plan::ChannelMixer::kMoe) layers.push_back(static_cast<int64_t>(i));
  }
  return layers;
}

TEST(CheckFault, ASumMustBeOneOfAStep) {
  const OpenedModel model = support::Open(DemoDir());
  const int64_t sums = 2 * std::ssize(model.geometry.layers);  // all parts of all layers
  for (const std::string kind : {"partial-bf16", "local-scale"}) {
    const std::string at = kind + ":rank=1:site=";
    EXPECT_EQ(Said(model, at + "0"), "");
    EXPECT_EQ(Said(model, at + std::to_string(sums - 1)), "");
    EXPECT_THAT(Said(model, at + std::to_string(sums)),
                HasSubstr("rank 1 has " + std::to_string(sums) + ", from 0 to " + std::to_string(sums - 1) +
                          ", found " + std::to_string(sums)));
    EXPECT_THAT(Said(model, at + "100"), HasSubstr("found 100"));
    // A stage counts its own.
    EXPECT_EQ(Said(model, at + std::to_string(sums / 2 - 1), 1, 2), "");
    EXPECT_THAT(Said(model, at + std::to_string(sums / 2), 1, 2), HasSubstr("rank 1 has " + std::to_string(sums / 2)));
  }
}

TEST(CheckFault, ALayerMustBeOneOfTheRanks) {
  const OpenedModel model = support::Open(DemoDir());
  const std::vector<int64_t> layers = LayersWithExperts(model);
  const int64_t all = std::ssize(model.geometry.layers);
  ASSERT_FALSE(layers.empty());
  for (const std::string kind :
       {"wrong-slot", "weight-bit", "router-ulp", "local-topk", "combine-order", "moved-map"}) {
    EXPECT_EQ(Said(model, kind + ":rank=1:site=" + std::to_string(layers.back())), "") << kind;
    EXPECT_THAT(Said(model, kind + ":rank=1:site=" + std::to_string(all)), HasSubstr("found " + std::to_string(all)));
  }
  // The second stage has the last layers, and the first one does not.
  EXPECT_EQ(Said(model, "weight-bit:rank=1:site=" + std::to_string(layers.back()), 1, 2), "");
  EXPECT_THAT(Said(model, "weight-bit:rank=0:site=" + std::to_string(layers.back()), 1, 2), HasSubstr("rank 0 has"));
  const OpenedModel dense = support::Open(CaseDir("llama"));
  EXPECT_THAT(Said(dense, "weight-bit:rank=1"), HasSubstr("rank 1 has none for this mistake"));
}

TEST(CheckFault, AttentionLayersAreCounted) {
  const OpenedModel model = support::Open(CaseDir("qwen3_next"));  // of which some have a delta net instead
  const auto attention = std::count_if(model.geometry.layers.begin(), model.geometry.layers.end(),
                                       [](const auto& layer) { return layer.mixer == plan::Mixer::kAttention; });
  ASSERT_LT(attention, std::ssize(model.geometry.layers));
  EXPECT_EQ(Said(model, "split-kv:rank=1:site=" + std::to_string(attention - 1)), "");
  EXPECT_THAT(Said(model, "split-kv:rank=1:site=" + std::to_string(attention)),
              HasSubstr("rank 1 has " + std::to_string(attention)));
}

TEST(CheckFault, KindsWithoutSitesTakeAny) {
  const OpenedModel model = support::Open(DemoDir());
  for (const std::string kind : {"rank-order", "split-k", "fallback", "die", "hang"}) EXPECT_EQ(Said(model, kind), "");
  EXPECT_THAT(Said(model, "fallback", 1), HasSubstr("none, of one rank"));
  EXPECT_THAT(Said(model, "die:rank=3"), HasSubstr("a rank from 0 to 2, found 3"));
}

// Uneven shares leave a rank without rows: chunks of 8 of 64 positions are gone before rank 8's turn.
TEST(CheckFault, ARankWithoutRowsCannotBeAtFault) {
  const OpenedModel model = support::Open(DemoDir());
  EngineOptions dealt;
  dealt.layout.ranks = 9;
  dealt.layout.sequence_parallel = true;
  for (const std::string kind : {"router-ulp", "hand-bf16"}) {
    EXPECT_EQ(Said(model, kind + ":rank=7", dealt), "") << kind;
    EXPECT_THAT(Said(model, kind + ":rank=8", dealt),
                HasSubstr("expected a rank that holds rows, found 8, to which this layout gives none"))
        << kind;
  }
  EXPECT_EQ(Said(model, "partial-bf16:rank=8", dealt), "") << "it adds its part of all rows";
  EngineOptions shared;
  shared.layout.context = 3;
  shared.layout.context_stretch = 2;  // of which the third has none
  for (const std::string kind : {"router-ulp", "hand-bf16", "local-topk", "combine-order", "split-k", "rank-order",
                                 "split-kv", "moved-map", "partial-bf16", "local-scale"}) {
    EXPECT_EQ(Said(model, kind + ":rank=1", shared), "") << kind;
    EXPECT_THAT(Said(model, kind + ":rank=2", shared), HasSubstr("that holds rows, found 2")) << kind;
  }
  for (const std::string kind : {"weight-bit", "wrong-slot", "die", "hang", "other-split"}) {
    EXPECT_EQ(Said(model, kind + ":rank=2", shared), "") << kind;
  }
  // A stretch that no sequence of this run ends.
  shared.layout.context_stretch = 64;
  EXPECT_EQ(Said(model, "hand-bf16:rank=2", shared), "");
  shared.max_context = 44;
  EXPECT_THAT(Said(model, "hand-bf16:rank=2", shared), HasSubstr("that holds rows, found 2"));
  shared.max_context = 45;
  EXPECT_EQ(Said(model, "hand-bf16:rank=2", shared), "");
  // What a stage hands on is rounded by all of it, whoever keeps the rows.
  dealt.layout.ranks = 5;
  dealt.layout.stages = 2;
  EXPECT_EQ(Said(model, "hand-bf16:rank=4", dealt), "");
}

TEST(CheckFault, ARankWithoutExpertsCannotMixThemUp) {
  const OpenedModel model = support::Open(DemoDir());
  EngineOptions whole;
  whole.layout.ranks = 16;  // for ten experts
  ASSERT_TRUE(plan::ParseCuts("experts=whole", &whole.layout).ok());
  for (const std::string kind : {"weight-bit", "combine-order", "router-ulp"}) {
    EXPECT_EQ(Said(model, kind + ":rank=0", whole), "") << kind;
    EXPECT_THAT(Said(model, kind + ":rank=15", whole),
                HasSubstr("expected a rank that holds 1 of the experts at least, found 15, which holds 0"))
        << kind;
  }
  for (const std::string kind : {"wrong-slot", "moved-map"}) {
    EXPECT_THAT(Said(model, kind + ":rank=0", whole), HasSubstr("holds 2 of the experts at least, found 0")) << kind;
  }
  whole.proof.level = record::Level::kDigest;  // it chooses for its record
  EXPECT_EQ(Said(model, "router-ulp:rank=15", whole), "");
}

}  // namespace
}  // namespace trivet::engine
