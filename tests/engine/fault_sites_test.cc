// SPDX-License-Identifier: Apache-2.0
#include "engine/fault_sites.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
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
  for (const std::string kind : {"split-k", "fallback", "die", "hang"}) EXPECT_EQ(Said(model, kind), "");
  EXPECT_THAT(Said(model, "fallback", 1), HasSubstr("found none"));
  EXPECT_THAT(Said(model, "die:rank=3"), HasSubstr("a rank from 0 to 2, found 3"));
}

// To begin at the first rank is the order without the mistake, and two parts have one.
TEST(CheckFault, AnOrderMustBeAnother) {
  const OpenedModel model = support::Open(DemoDir());
  EXPECT_EQ(Said(model, "rank-order:rank=1"), "");
  EXPECT_EQ(Said(model, "rank-order:rank=5", 3, 2), "");
  EXPECT_THAT(Said(model, "rank-order"), HasSubstr("found rank 0, whose order gives the same sum"));
  EXPECT_THAT(Said(model, "rank-order:rank=3", 3, 2), HasSubstr("found rank 3"));
  EXPECT_THAT(Said(model, "rank-order:rank=1", 2), HasSubstr("found rank 1"));
  EXPECT_THAT(Said(model, "rank-order:rank=1", 1, 2), HasSubstr("found rank 1"));
  // Ranks behind all that have a part, and layouts whose ranks have none to add, or two.
  EXPECT_THAT(Said(model, "rank-order:rank=10", 11), HasSubstr("found rank 10"));
  EngineOptions whole;
  whole.layout.ranks = 3;
  whole.layout.cuts = {{"attn", "replicate"}, {"gdn", "replicate"}, {"experts", "replicate"}, {"shared", "replicate"}};
  EXPECT_THAT(Said(model, "rank-order:rank=1", whole), HasSubstr("found rank 1"));
  EXPECT_EQ(Said(model, "fallback", whole), "");  // of the embedding
  whole.layout.cuts.insert({"vocab", "replicate"});
  EXPECT_THAT(Said(model, "fallback", whole), HasSubstr("found none"));
  whole.layout.cuts.erase("attn");
  EXPECT_THAT(Said(model, "rank-order:rank=1", whole), HasSubstr("found rank 1"));  // of two KV groups
  EXPECT_EQ(Said(model, "fallback", whole), "");
  EngineOptions dealt;
  dealt.layout.ranks = 9;
  dealt.layout.sequence_parallel = true;
  EXPECT_EQ(Said(model, "rank-order:rank=7", dealt), "");
  EXPECT_THAT(Said(model, "rank-order:rank=8", dealt), HasSubstr("found rank 8"));
}

// Two experts of a token have one order in float32; integers show that floats were added.
TEST(CheckFault, ExpertsOfATokenMustHaveAnotherOrder) {
  const OpenedModel model = support::Open(DemoDir());
  ASSERT_EQ(model.geometry.moe.top_k, 2);
  EngineOptions options;
  EXPECT_EQ(Said(model, "combine-order", options), "");
  options.numerics = kernels::Numerics::kFast;
  EXPECT_THAT(Said(model, "combine-order", options), HasSubstr("three experts of a token or exact sums, found 2"));
}

// Compressed sums are none of those that these mistakes are made in; a group of one compresses nothing.
TEST(CheckFault, ACompressedSumHasNoPartsThatAreAdded) {
  const OpenedModel model = support::Open(DemoDir());
  EngineOptions options;
  options.numerics = kernels::Numerics::kFast;
  options.compress_sums = true;
  options.layout.ranks = 3;
  for (const std::string kind : {"partial-bf16", "local-scale", "rank-order"}) {
    EXPECT_THAT(Said(model, kind + ":rank=1", options),
                HasSubstr("parts of sums that ranks add as they are, found --compress-sums"));
  }
  for (const std::string kind : {"fallback", "split-k", "weight-bit"})
    EXPECT_EQ(Said(model, kind, options), "") << kind;
  options.layout.ranks = 1;
  for (const std::string kind : {"partial-bf16", "local-scale"}) EXPECT_EQ(Said(model, kind, options), "") << kind;
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
  EngineOptions whole = dealt;
  ASSERT_TRUE(plan::ParseCuts("experts=whole", &whole.layout).ok());
  EXPECT_EQ(Said(model, "partial-bf16:rank=8:site=1", whole), "") << "it adds its part of all rows";
  EngineOptions shared;
  shared.layout.context = 3;
  shared.layout.context_stretch = 2;  // of which the third has none
  for (const std::string kind : {"router-ulp", "hand-bf16", "combine-order", "split-k", "split-kv", "moved-map",
                                 "partial-bf16", "local-scale"}) {
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
    EXPECT_THAT(
        Said(model, kind + ":rank=15", whole),
        HasSubstr("expected a rank that computes with 1 of the experts at least, found 15, which has 0 in layer 0"))
        << kind;
  }
  for (const std::string kind : {"wrong-slot", "moved-map"}) {
    EXPECT_THAT(Said(model, kind + ":rank=0", whole), HasSubstr("computes with 2 of the experts at least, found 0"))
        << kind;
  }
  whole.proof.level = record::Level::kDigest;  // it chooses for its record
  EXPECT_EQ(Said(model, "router-ulp:rank=15", whole), "");
}

// On so many ranks, cut as the text says.
EngineOptions CutOver(int64_t ranks, const std::string& cuts = "") {
  EngineOptions options;
  options.layout.ranks = ranks;
  EXPECT_TRUE(plan::ParseCuts(cuts, &options.layout).ok());
  return options;
}

// What is said of a rank that has none of what a mistake is made in.
std::string None(const std::string& what, int64_t rank, const std::string& where) {
  return fmt::format(
      "expected a rank that computes with 1 of the {} at least, found {}, which has 0 in {}; choose "
      "another rank",
      what, rank, where);
}

// The demo's layers 3 and 7 have attention, of two KV heads: sums 6 and 14 of a step, the 0th and 1st attention.
TEST(CheckFault, ARankWithoutHeadsAddsNothingToTheirSums) {
  const OpenedModel model = support::Open(DemoDir());
  for (const std::string kind : {"partial-bf16", "local-scale"}) {
    for (const auto& [site, layer] : {std::pair(6, 3), {14, 7}}) {
      const std::string at = fmt::format("{}:site={}:rank=", kind, site);
      for (const int rank : {0, 1}) EXPECT_EQ(Said(model, at + std::to_string(rank)), "") << at;
      EXPECT_THAT(Said(model, at + "2"), HasSubstr(None("attention heads", 2, fmt::format("layer {}", layer)))) << at;
    }
    for (const int site : {0, 4, 5, 7, 15}) {  // of delta nets and experts, of which rank 2 has some
      EXPECT_EQ(Said(model, fmt::format("{}:rank=2:site={}", kind, site)), "") << site;
    }
    for (const int64_t ranks : {7, 16}) {
      const std::string last = std::to_string(ranks - 1);
      EXPECT_EQ(Said(model, kind + ":rank=3", ranks), "");
      EXPECT_THAT(Said(model, kind + ":rank=" + last, ranks), HasSubstr(None("value heads", ranks - 1, "layer 0")));
      EXPECT_THAT(Said(model, kind + ":site=1:rank=" + last, ranks),
                  HasSubstr(None("experts or shared channels", ranks - 1, "layer 0")));
    }
    EXPECT_EQ(Said(model, kind + ":rank=6:site=6", 7), "") << "which has a query head";
    EXPECT_EQ(Said(model, kind + ":rank=4:site=1", 7), "") << "which has shared channels, and no experts";
    // A rank of the second stage counts that one's sums: its first layer is layer 4.
    EXPECT_THAT(Said(model, kind + ":rank=5:site=6", 3, 2), HasSubstr(None("attention heads", 5, "layer 7")));
    EXPECT_EQ(Said(model, kind + ":rank=4:site=6", 3, 2), "");
    // Dummies add nothing.
    EXPECT_THAT(Said(model, kind + ":rank=2:site=6", CutOver(3, "attn=pad")),
                HasSubstr(None("attention heads", 2, "layer 3")));
  }
  for (const std::string site : {"0", "1"}) {
    EXPECT_EQ(Said(model, "split-kv:rank=1:site=" + site), "");
    EXPECT_THAT(Said(model, "split-kv:rank=2:site=" + site),
                HasSubstr(None("attention heads", 2, site == "0" ? "layer 3" : "layer 7")));
  }
  EXPECT_EQ(Said(model, "split-kv:rank=7", 16), "");
  EXPECT_THAT(Said(model, "split-kv:rank=15", 16), HasSubstr(None("attention heads", 15, "layer 3")));
  EXPECT_EQ(Said(model, "split-kv:rank=2", CutOver(3, "attn=replicate")), "") << "it has all heads";
}

TEST(CheckFault, ARankWithoutMlpChannelsAddsNothingToTheirSum) {
  const OpenedModel model = support::Open(CaseDir("llama"));  // 11 units of channels
  EXPECT_EQ(Said(model, "partial-bf16:rank=10:site=1", 16), "");
  EXPECT_THAT(Said(model, "partial-bf16:rank=11:site=1", 16), HasSubstr(None("MLP channels", 11, "layer 0")));
}

// Of a whole part beside one that is cut, the first rank adds all.
TEST(CheckFault, WhatTheFirstRankAddsAloneIsNoOtherRanks) {
  const OpenedModel model = support::Open(DemoDir());
  const EngineOptions experts = CutOver(7, "experts=replicate"), shared = CutOver(7, "shared=replicate");
  for (const std::string kind : {"weight-bit", "wrong-slot", "combine-order", "router-ulp", "local-topk"}) {
    EXPECT_EQ(Said(model, kind + ":rank=0", experts), "") << kind;
    EXPECT_THAT(Said(model, kind + ":rank=1", experts), HasSubstr("of the experts at least, found 1, which has 0"))
        << kind;
    EXPECT_EQ(Said(model, kind + ":rank=1", CutOver(7, "experts=replicate,shared=replicate")), "") << kind;
  }
  EXPECT_EQ(Said(model, "partial-bf16:site=1:rank=4", experts), "") << "it has shared channels";
  EXPECT_THAT(Said(model, "partial-bf16:site=1:rank=5", experts), HasSubstr("found 5, which has 0 in layer 0"));
  EXPECT_EQ(Said(model, "partial-bf16:site=1:rank=0", shared), "");
  EXPECT_EQ(Said(model, "partial-bf16:site=1:rank=2", shared), "") << "it has experts";
  EXPECT_THAT(Said(model, "partial-bf16:site=1:rank=3", shared), HasSubstr("found 3, which has 0 in layer 0"));
  EXPECT_EQ(Said(model, "moved-map:rank=1", experts), "") << "its map is noted";
}

// Units of channels beyond the model's are zeros, in whatever slot.
TEST(CheckFault, ARankOfDummyChannelsHasNoExperts) {
  const OpenedModel model = support::Open(DemoDir());
  EngineOptions padded = CutOver(5, "experts=width-pad");
  padded.layout.pad_to = 5;
  for (const std::string kind : {"weight-bit", "wrong-slot", "combine-order"}) {
    EXPECT_EQ(Said(model, kind + ":rank=2", padded), "") << kind;
    EXPECT_THAT(Said(model, kind + ":rank=4", padded), HasSubstr("of the experts at least, found 4, which has 0"))
        << kind;
  }
}

TEST(CheckFault, AChoiceAmongSharesNeedsARankThatChooses) {
  const OpenedModel model = support::Open(DemoDir());
  EngineOptions options = CutOver(9);  // of which three have experts
  EXPECT_EQ(Said(model, "local-topk:rank=2", options), "");
  EXPECT_THAT(Said(model, "local-topk:rank=8", options), HasSubstr(None("experts", 8, "layer 0")));
  EXPECT_THAT(Said(model, "local-topk:rank=15", 16), HasSubstr(None("experts", 15, "layer 0")));
  options.proof.level = record::Level::kDigest;  // it chooses for its record
  EXPECT_EQ(Said(model, "local-topk:rank=8", options), "");
  // Sixteen ranks share out ten experts, though six get none; one rank has no shares.
  options.layout.ranks = 16;
  EXPECT_EQ(Said(model, "local-topk:rank=15", options), "");
  EXPECT_THAT(Said(model, "local-topk", 1),
              HasSubstr("10 experts that two ranks or more share out to choose among, found one rank that has all"));
}

// The last stage rounds what it shows: what the heads of its context group are made of, and dealt rows.
TEST(CheckFault, ARankWithoutHeadsShowsNothing) {
  const OpenedModel model = support::Open(DemoDir());
  EngineOptions shared = CutOver(5, "attn=uneven,gdn=uneven");  // four groups of value heads
  shared.layout.context = 3;
  EXPECT_EQ(Said(model, "hand-bf16:rank=3", shared), "");
  EXPECT_THAT(Said(model, "hand-bf16:rank=4", shared), HasSubstr(None("heads", 4, "layers 0 to 7")));
  shared.layout.sequence_parallel = true;
  EXPECT_EQ(Said(model, "hand-bf16:rank=4", shared), "");
  shared.layout.sequence_parallel = false;
  shared.layout.context = 1;
  shared.layout.stages = 2;
  EXPECT_EQ(Said(model, "hand-bf16:rank=4", shared), "") << "its stage hands rows on";
}

TEST(CheckFault, ARankWithoutMatricesCannotSplitTheirLeaves) {
  const OpenedModel model = support::Open(CaseDir("llama"));  // 11 units of channels, and ten of the vocabulary
  EXPECT_EQ(Said(model, "split-k:rank=10", 16), "");
  EXPECT_THAT(Said(model, "split-k:rank=11", 16),
              HasSubstr(None("heads, experts, channels or vocabulary rows", 11, "layers 0 to 2")));
  // A router is every rank's, and what it says is noted.
  const OpenedModel demo = support::Open(DemoDir());
  EngineOptions options = CutOver(16, "vocab=replicate");
  EXPECT_EQ(Said(demo, "split-k:rank=7", options), "");
  EXPECT_THAT(Said(demo, "split-k:rank=15", options), HasSubstr("found 15, which has 0 in layers 0 to 7"));
  options.proof.level = record::Level::kDigest;
  EXPECT_EQ(Said(demo, "split-k:rank=15", options), "");
  EXPECT_EQ(Said(demo, "split-k:rank=15", 16), "") << "it has rows of the vocabulary";
}

}  // namespace
}  // namespace trivet::engine
