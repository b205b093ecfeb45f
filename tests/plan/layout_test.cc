// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/axis_rules.h"
#include "plan/leaf.h"
#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Layout Make(const Geometry& geometry, int64_t ranks, const std::string& cuts = "", int64_t pad_to = 0) {
  LayoutOptions options;
  options.ranks = ranks;
  options.pad_to = pad_to;
  CHECK(ParseCuts(cuts, &options).ok());
  Result<Layout> layout = MakeLayout(geometry, options);
  CHECK(layout.ok());
  return std::move(layout).value();
}

const AxisPlan& Row(const Layout& layout, const std::string& axis) {
  for (const AxisPlan& row : layout.axes) {
    if (row.axis == axis) return row;
  }
  CHECK_MSG(false, axis);
  return layout.axes.front();
}

TEST(Layout, OneRankHoldsAll) {
  const Layout layout = Make(DemoGeometry(), 1);
  ASSERT_EQ(layout.shards.size(), 1u);
  for (const AxisPlan& row : layout.axes) {
    EXPECT_EQ(row.cut, row.axis == "experts" ? "whole" : "uneven");
    EXPECT_EQ(row.factor, 1) << row.axis;
    EXPECT_EQ(row.reason, "one rank holds all");
    EXPECT_THAT(row.per_rank, ElementsAre(row.stock));
  }
  EXPECT_EQ(layout.shards[0].attention.q_heads, 8);
  EXPECT_THAT(layout.shards[0].attention.q_to_kv, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_EQ(layout.shards[0].experts.slots.size(), 10u);
  EXPECT_EQ(layout.shards[0].experts.channels.real, 96);
  EXPECT_EQ(layout.shards[0].vocab.real, 4096);
}

TEST(Layout, DemoOnThreeRanks) {
  const Layout layout = Make(DemoGeometry(), 3);
  EXPECT_EQ(Row(layout, "attn").cut, "uneven");
  EXPECT_THAT(Row(layout, "attn").per_rank, ElementsAre(1, 1, 0));
  EXPECT_EQ(Row(layout, "gdn").cut, "overlap");
  EXPECT_THAT(Row(layout, "gdn").per_rank, ElementsAre(3, 3, 2));
  EXPECT_THAT(Row(layout, "gdn").reason,
              HasSubstr("4 key-head groups do not divide by 3; splitting groups between ranks that share a key head is "
                        "cheapest (3 value heads against 4)"));
  EXPECT_EQ(Row(layout, "experts").cut, "width");
  EXPECT_THAT(Row(layout, "experts").per_rank, ElementsAre(1, 1, 1));
  EXPECT_THAT(Row(layout, "shared").per_rank, ElementsAre(2, 2, 1));
  EXPECT_DOUBLE_EQ(Row(layout, "shared").factor, 1.2);
  EXPECT_THAT(Row(layout, "vocab").per_rank, ElementsAre(43, 43, 42));
}

TEST(Layout, TheTableAgreesWithPublishedPaddedHeads) {
  // 24 query heads on 4 KV heads at 3 ranks: 36/6 padded, 8 heads on 2 KV heads each when groups are split.
  Geometry geometry = DemoGeometry();
  geometry.attention = {24, 4, 256, 64, true, true};
  const Layout padded = Make(geometry, 3, "attn=pad");
  for (const RankShard& shard : padded.shards) {
    EXPECT_EQ(shard.attention.q_heads, 12);
    EXPECT_EQ(shard.attention.kv_heads, 2);
  }
  EXPECT_EQ(Row(padded, "attn").padded, 6);
  const Layout overlap = Make(geometry, 3);
  EXPECT_EQ(Row(overlap, "attn").cut, "overlap");
  for (const RankShard& shard : overlap.shards) {
    EXPECT_EQ(shard.attention.q_heads, 8);
    EXPECT_EQ(shard.attention.kv_heads, 2);
  }
  EXPECT_THAT(overlap.shards[0].attention.q_to_kv, ElementsAre(0, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_THAT(overlap.shards[2].attention.q_to_kv, ElementsAre(0, 0, 1, 1, 1, 1, 1, 1));
}

TEST(Layout, PadToGivesOneRankThePaddedGeometry) {
  const Layout one = Make(DemoGeometry(), 1, "experts=width", 5);
  const Layout five = Make(DemoGeometry(), 5, "attn=pad,gdn=pad,experts=width-pad,shared=pad,vocab=pad");
  for (const AxisPlan& row : one.axes) EXPECT_EQ(row.padded, Row(five, row.axis).padded) << row.axis;
  const RankShard& shard = one.shards[0];
  EXPECT_EQ(shard.attention.q_heads, 20);
  EXPECT_EQ(shard.attention.q_real, 8);
  EXPECT_EQ(shard.attention.kv_heads, 5);
  EXPECT_EQ(shard.attention.kv_real, 2);
  EXPECT_EQ(shard.attention.q_to_kv.back(), 4);
  EXPECT_EQ(shard.experts.channels.width, 160);
  EXPECT_EQ(shard.experts.channels.real, 96);
}

TEST(Layout, ReplicatedAxesAreWholeAndNotPartial) {
  const Layout layout = Make(DemoGeometry(), 4, "shared=replicate");
  EXPECT_FALSE(layout.partial.shared);
  EXPECT_TRUE(layout.partial.experts);
  EXPECT_DOUBLE_EQ(Row(layout, "shared").factor, 4);
  EXPECT_EQ(Row(layout, "shared").padded, 5);
  for (const RankShard& shard : layout.shards) EXPECT_EQ(shard.shared.real, 160);
}

TEST(Layout, ReplicationIsNeverAutomatic) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    const Geometry geometry = RandomGeometry(&random);
    for (const int64_t ranks : {2, 7, 16}) {
      for (const AxisPlan& row : Make(geometry, ranks).axes) {
        EXPECT_NE(row.cut, "replicate") << row.axis;
        EXPECT_THAT(row.cut, Not(HasSubstr("pad"))) << row.axis;  // never cheaper than uneven
        EXPECT_THAT(row.reason, Not(IsEmpty()));
      }
    }
  }
}

// Every rank's shard is in range and the real units of all ranks add up.
TEST(Layout, InvariantsOverRandomGeometriesAndCuts) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    const Geometry geometry = RandomGeometry(&random);
    for (int64_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
      LayoutOptions options = RandomCuts(geometry, ranks, &random);
      options.pad_to = static_cast<int64_t>(random() % 6);
      const Result<Layout> made = MakeLayout(geometry, options);
      ASSERT_TRUE(made.ok()) << made.error().message;
      ASSERT_EQ(static_cast<int64_t>(made->shards.size()), ranks);
      for (const AxisPlan& row : made->axes) {
        int64_t real = 0;
        for (const int64_t units : row.real) real += units;
        EXPECT_EQ(real, row.cut == "replicate" ? row.stock * ranks : row.stock) << row.axis << " " << row.cut;
        EXPECT_GE(row.factor, 1 - 1e-9) << row.axis << " " << row.cut;
      }
      for (const RankShard& shard : made->shards) {
        const AttentionShard& heads = shard.attention;
        ASSERT_EQ(static_cast<int64_t>(heads.q_to_kv.size()), heads.q_heads);
        for (const int32_t kv : heads.q_to_kv) EXPECT_TRUE(kv >= 0 && kv < heads.kv_heads);
        for (int64_t i = 0; i < heads.q_real; ++i) {
          const int64_t group = geometry.attention.q_heads / geometry.attention.kv_heads;
          EXPECT_EQ(heads.kv_begin + heads.q_to_kv[static_cast<size_t>(i)], (heads.q_begin + i) / group);
        }
        EXPECT_EQ(shard.vocab.rows % kVocabTile, 0);
        EXPECT_EQ(shard.mlp.width % WidthLeaf(geometry.mlp_width), 0);
        EXPECT_EQ(shard.experts.channels.width % WidthLeaf(geometry.moe.width), 0);
      }
    }
  }
}

TEST(Layout, LegalCutsNamesOnlyAxesTheModelHas) {
  const Geometry demo = DemoGeometry();
  EXPECT_THAT(LegalCuts(demo, "gdn", 3), ElementsAre("uneven", "overlap", "pad", "replicate"));
  EXPECT_THAT(LegalCuts(demo, "mlp", 3), IsEmpty());
  EXPECT_THAT(LegalCuts(demo, "nonsense", 3), IsEmpty());
}

bool SameExperts(const ExpertShard& a, const ExpertShard& b) {
  const auto same = [](const WidthShard& x, const WidthShard& y) {
    return x.begin == y.begin && x.width == y.width && x.real == y.real;
  };
  return a.slots == b.slots && a.group == b.group && same(a.channels, b.channels);
}

// As many groups as ranks are whole experts, one group is cut channels.
TEST(Layout, GroupsOfOneRankAndOneGroupAreTheOldCuts) {
  std::mt19937_64 random(21);
  for (int round = 0; round < 20; ++round) {
    const Geometry geometry = RandomGeometry(&random);
    for (int64_t ranks = 1; ranks <= 8; ++ranks) {
      for (const auto& [ep, word] : {std::pair(ranks, "whole"), std::pair(int64_t{1}, "width")}) {
        LayoutOptions options;
        options.ranks = ranks;
        options.ep = ep;
        const Result<Layout> groups = MakeLayout(geometry, options);
        ASSERT_TRUE(groups.ok()) << groups.error().message;
        const Layout cut = Make(geometry, ranks, fmt::format("experts={}", word));
        for (size_t r = 0; r < cut.shards.size(); ++r) {
          EXPECT_TRUE(SameExperts(groups->shards[r].experts, cut.shards[r].experts)) << word << " rank " << r;
        }
        EXPECT_DOUBLE_EQ(Row(*groups, "experts").factor, Row(cut, "experts").factor);
        EXPECT_EQ(groups->placement->ContentDigest(), cut.placement->ContentDigest());
      }
    }
  }
}

TEST(Layout, DemoOnFiveRanksInTwoGroups) {
  LayoutOptions options;
  options.ranks = 5;
  options.placement =
      Placement::FromPairs({{1, 1}, {0, 0}, {1, 0}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}, {0, 2}, {0, 1}}).value();
  const Layout layout = MakeLayout(DemoGeometry(), options).value();
  const AxisPlan& row = Row(layout, "experts");
  EXPECT_EQ(row.cut, "ep");
  EXPECT_EQ(row.unit, "32 channels of an expert");
  EXPECT_EQ(row.stock, 30);
  EXPECT_EQ(row.padded, 30);
  EXPECT_THAT(row.per_rank, ElementsAre(3, 3, 3, 14, 7));  // three and seven experts of three leaves
  EXPECT_THAT(row.reason, HasSubstr("2 groups of 3/2 ranks hold 3/7 experts"));
  EXPECT_DOUBLE_EQ(row.factor, 14 * 5 / 30.0);
  for (const size_t rank : {0, 1, 2}) EXPECT_THAT(layout.shards[rank].experts.slots, ElementsAre(1, 9, 8));
  for (const size_t rank : {3, 4}) EXPECT_THAT(layout.shards[rank].experts.slots, ElementsAre(2, 0, 3, 4, 5, 6, 7));
  EXPECT_EQ(layout.shards[3].experts.channels.width, 64);
  EXPECT_EQ(layout.shards[4].experts.channels.begin, 64);
  EXPECT_EQ(layout.shards[4].experts.group, 1);
  EXPECT_EQ(layout.placement->ProvenanceDigest(), options.placement->ProvenanceDigest());
}

TEST(Layout, AGroupWithoutExpertsHoldsNone) {
  LayoutOptions options;
  options.ranks = 5;
  options.placement = Placement::FromLogicalToPhysical({4, 3, 2, 1, 0, 5, 6, 7, 8, 9}, {0, 10, 0}).value();
  const Layout layout = MakeLayout(DemoGeometry(), options).value();
  EXPECT_THAT(Row(layout, "experts").per_rank, ElementsAre(0, 0, 20, 10, 0));
  for (const size_t rank : {0, 1, 4}) {
    EXPECT_TRUE(layout.shards[rank].experts.slots.empty());
    EXPECT_EQ(layout.shards[rank].experts.channels.width, 0);
  }
  EXPECT_THAT(layout.shards[3].experts.slots, ElementsAre(4, 3, 2, 1, 0, 5, 6, 7, 8, 9));
}

// Every expert's every channel is on one rank, and the placement that a layout names is the one that it carries out.
TEST(Layout, ThePlacementIsCarriedOut) {
  std::mt19937_64 random(22);
  for (int round = 0; round < 60; ++round) {
    const Geometry geometry = RandomGeometry(&random);
    for (int64_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
      LayoutOptions options = RandomCuts(geometry, ranks, &random);
      if (round % 2 == 0) RandomGroups(geometry, &random, &options);
      options.pad_to = static_cast<int64_t>(random() % 4);
      const Layout layout = MakeLayout(geometry, options).value();
      if (!layout.partial.experts) {
        EXPECT_FALSE(layout.placement.has_value());
        continue;
      }
      ASSERT_TRUE(layout.placement.has_value());
      std::vector<int64_t> channels(static_cast<size_t>(geometry.moe.experts), 0);
      for (const RankShard& shard : layout.shards) {
        if (shard.experts.slots.empty()) continue;
        std::vector<int64_t> real;
        for (const int64_t expert : shard.experts.slots) {
          if (expert < 0) continue;
          real.push_back(expert);
          channels[static_cast<size_t>(expert)] += shard.experts.channels.real;
        }
        EXPECT_EQ(real, layout.placement->tables[static_cast<size_t>(shard.experts.group)]);
      }
      for (const int64_t held : channels) EXPECT_EQ(held, geometry.moe.width);
      if (options.placement) {
        EXPECT_EQ(layout.placement->ContentDigest(), options.placement->ContentDigest());
      }
    }
  }
}

TEST(Layout, BadGroupsAreNamed) {
  const Placement nine = Placement::Identity(9).value();
  const Placement three = Placement::Random(10, 3, 1).value();
  const struct {
    int64_t ep;
    std::optional<Placement> placement;
    std::map<std::string, std::string> cuts;
    Code code;
    const char* text;
  } cases[] = {{-1, {}, {}, Code::kUsage, "ep: expected 1 to"},
               {3, {}, {}, Code::kInfeasible, "--ep: expected at most 2 ranks, found 3 groups"},
               {0, three, {}, Code::kInfeasible, "placement: ep_size: expected at most the 2 ranks, found 3 groups"},
               {0, nine, {}, Code::kInvalid, "placement: experts: expected the model's 10, found 9"},
               {2, Placement::Identity(10).value(), {}, Code::kUsage, "as many groups as the placement, 1, found 2"},
               {2, {}, {{"experts", "whole"}}, Code::kUsage, "expected one way to cut experts, found --ep besides"},
               {0, three, {{"experts", "whole"}}, Code::kUsage, "one way to cut experts, found placement besides"}};
  for (const auto& test : cases) {
    LayoutOptions options;
    options.ranks = 2;
    options.ep = test.ep;
    options.placement = test.placement;
    options.cuts = test.cuts;
    const Result<Layout> layout = MakeLayout(DemoGeometry(), options);
    ASSERT_FALSE(layout.ok()) << test.text;
    EXPECT_EQ(layout.error().code, test.code) << layout.error().message;
    EXPECT_THAT(layout.error().message, HasSubstr(test.text));
  }
  Geometry dense = DemoGeometry();
  for (LayerGeometry& layer : dense.layers) layer.channel_mixer = ChannelMixer::kMlp;
  dense.mlp_width = 64;
  LayoutOptions options;
  options.ep = 1;
  EXPECT_THAT(MakeLayout(dense, options).error().message, HasSubstr("a model with routed experts"));
  EXPECT_FALSE(MakeLayout(dense, {}).value().placement.has_value());
}

TEST(Layout, BadOptionsAreNamed) {
  Geometry geometry = DemoGeometry();
  geometry.attention.kv_heads = 8;
  const struct {
    int64_t ranks;
    int64_t pad_to;
    std::map<std::string, std::string> cuts;
    Code code;
    const char* text;
  } cases[] = {{0, 0, {}, Code::kUsage, "expected 1 to 16, found 0"},
               {17, 0, {}, Code::kUsage, "found 17"},
               {2, -1, {}, Code::kUsage, "--pad-to"},
               {2, 17, {}, Code::kUsage, "--pad-to"},
               {2, 0, {{"mlp", "pad"}}, Code::kUsage, "this model has the axes attn, gdn, experts, shared, vocab"},
               {2, 0, {{"x\n", "pad"}}, Code::kUsage, "x\\x0a"},
               {2, 0, {{"vocab", "whole"}}, Code::kUsage, "expected one of uneven, pad, replicate"},
               {8, 0, {{"attn", "overlap"}}, Code::kInfeasible, "cut attn=overlap at 8 ranks"}};
  for (const auto& test : cases) {
    LayoutOptions options;
    options.ranks = test.ranks;
    options.pad_to = test.pad_to;
    options.cuts = test.cuts;
    const Result<Layout> layout = MakeLayout(geometry, options);
    ASSERT_FALSE(layout.ok()) << test.text;
    EXPECT_EQ(layout.error().code, test.code) << test.text;
    EXPECT_THAT(layout.error().message, HasSubstr(test.text));
  }
}

TEST(Layout, RanksOfAStageAndThenOfAReplicaAreConsecutive) {
  LayoutOptions options;
  options.ranks = 3;
  options.stages = 2;
  options.replicas = 2;
  const Layout layout = MakeLayout(DemoGeometry(), options).value();
  EXPECT_EQ(layout.world(), 12);
  EXPECT_EQ(layout.shards.size(), 6U);
  EXPECT_THAT(Row(layout, "attn").per_rank, testing::SizeIs(3));
  for (int64_t rank = 0; rank < layout.world(); ++rank) {
    const RankPlace place = layout.At(rank);
    EXPECT_EQ(layout.RankAt(place), rank);
    EXPECT_EQ(place.tp, rank % 3);
    EXPECT_EQ(place.pp, rank / 3 % 2);
    EXPECT_EQ(place.dp, rank / 6);
    EXPECT_EQ(layout.ShardOf(rank).stage, layout.stages[static_cast<size_t>(place.pp)]);
    EXPECT_EQ(layout.ShardOf(rank).vocab.begin, layout.ShardOf(place.tp).vocab.begin);
  }
}

TEST(Layout, StagesAreDealtOrAskedFor) {
  LayoutOptions options;
  const Geometry geometry = DemoGeometry();
  EXPECT_EQ(MakeLayout(geometry, options).value().stages, StagesOf({8}));
  options.stages = 3;
  const Layout dealt = MakeLayout(geometry, options).value();
  ASSERT_EQ(dealt.stages.size(), 3U);
  EXPECT_EQ(dealt.stages.back().end, 8);
  options.stage_layers = {1, 3, 4};
  EXPECT_EQ(MakeLayout(geometry, options).value().stages, StagesOf({1, 3, 4}));
  options.stages = 1;  // the list is enough
  EXPECT_EQ(MakeLayout(geometry, options).value().stages, StagesOf({1, 3, 4}));
}

TEST(Layout, BadStagesAndReplicasAreNamed) {
  const struct {
    int64_t ranks, stages, replicas;
    std::vector<int64_t> layers;
    Code code;
    const char* text;
  } cases[] = {
      {1, 0, 1, {}, Code::kUsage, "--pp: expected 1 stage or more, found 0"},
      {1, 9, 1, {}, Code::kInfeasible, "--pp: expected at most 8 stages"},
      {1, 1, 0, {}, Code::kUsage, "--dp: expected 1 to 16 replicas, found 0"},
      {1, 1, 17, {}, Code::kUsage, "--dp"},
      {3, 3, 2, {}, Code::kUsage, "expected at most 16, found 2 replicas of 3 stages of 1 shares of sequences of 3"},
      {1, 2, 1, {1, 3, 4}, Code::kUsage, "--pp-layers"},
      {1, 1, 1, {1, 3, 5}, Code::kUsage, "8 in all, found 1,3,5"},
      {1, 1, 1, {8, 0}, Code::kUsage, "--pp-layers: expected at least 1 layer"},
      {1, 1, 1, {9, -1}, Code::kUsage, "--pp-layers"},
      {1, 1, 1, {INT64_MAX, INT64_MAX}, Code::kUsage, "--pp-layers"}};
  for (const auto& test : cases) {
    LayoutOptions options;
    options.ranks = test.ranks;
    options.stages = test.stages;
    options.replicas = test.replicas;
    options.stage_layers = test.layers;
    const Result<Layout> layout = MakeLayout(DemoGeometry(), options);
    ASSERT_FALSE(layout.ok()) << test.text;
    EXPECT_EQ(layout.error().code, test.code) << test.text;
    EXPECT_THAT(layout.error().message, HasSubstr(test.text));
  }
}

TEST(Layout, ParseCutsReadsPiecesAndRefusesTheRest) {
  LayoutOptions options;
  ASSERT_TRUE(ParseCuts("attn=pad,experts=whole", &options).ok());
  EXPECT_EQ(options.cuts["attn"], "pad");
  EXPECT_EQ(options.cuts["experts"], "whole");
  ASSERT_TRUE(ParseCuts("", &options).ok());
  const struct {
    const char* text;
    const char* message;
  } cases[] = {{"attn", "found \"attn\""},          {"attn=", "expected for attn one of uneven"},
               {"=pad", "expected an axis of"},     {"heads=pad", "found \"heads\""},
               {"vocab=whole", "found \"whole\""},  {"vocab=pad,vocab=pad", "vocab twice"},
               {"vocab=pad,", "none of them empty"}};
  for (const auto& test : cases) {
    LayoutOptions fresh;
    const Status status = ParseCuts(test.text, &fresh);
    ASSERT_FALSE(status.ok()) << test.text;
    EXPECT_EQ(status.error().code, Code::kUsage);
    EXPECT_THAT(status.error().message, HasSubstr(test.message));
  }
}

TEST(Layout, CutNames) {
  EXPECT_STREQ(CutName(Cut::kUneven), "uneven");
  EXPECT_STREQ(CutName(Cut::kPad), "pad");
  EXPECT_STREQ(CutName(Cut::kOverlap), "overlap");
  EXPECT_STREQ(CutName(Cut::kReplicate), "replicate");
}

// Geometries of published models at the rank counts that other engines refuse: every head and expert is dealt out, and
// no rank holds far more than its part.
TEST(Layout, PublishedGeometriesAtOddRankCounts) {
  struct Case {
    int64_t q_heads, kv_heads, head_dim;
    std::vector<int64_t> ranks;
    double factor;  // bound of the attention axis
  };
  for (const Case& one : {Case{28, 4, 128, {8}, 1.4},
                          {52, 52, 128, {3, 8}, 1.1},
                          {40, 8, 128, {3, 5, 6}, 1.3},
                          {64, 8, 128, {3}, 1.2},
                          {96, 8, 128, {6}, 1.1},
                          {16, 2, 256, {3}, 1.4},
                          {24, 4, 256, {3}, 1.3}}) {
    for (const int64_t ranks : one.ranks) {
      SCOPED_TRACE(std::to_string(one.q_heads) + "/" + std::to_string(one.kv_heads) + " at " + std::to_string(ranks));
      Geometry geometry = DemoGeometry();
      geometry.hidden = 4096;
      geometry.vocab = 151552;
      geometry.attention = {one.q_heads, one.kv_heads, one.head_dim, one.head_dim, false, true};
      const Layout layout = Make(geometry, ranks);
      int64_t heads = 0, rows = 0;
      for (const RankShard& shard : layout.shards) {
        heads += shard.attention.q_real;
        rows += shard.vocab.real;
      }
      EXPECT_EQ(heads, one.q_heads);
      EXPECT_EQ(rows, geometry.vocab);
      EXPECT_LE(Row(layout, "attn").factor, one.factor);
      EXPECT_LE(Row(layout, "vocab").factor, 1.01);
    }
  }
}

TEST(Layout, AHybridOf48ValueHeadsAtThreeRanks) {
  Geometry geometry = DemoGeometry();
  geometry.hidden = 5120;
  geometry.attention = {24, 4, 256, 64, true, true};
  geometry.delta_net = {16, 48, 128, 128, 4};
  for (LayerGeometry& layer : geometry.layers) layer.channel_mixer = ChannelMixer::kMlp;
  geometry.mlp_width = 17408;
  const Layout layout = Make(geometry, 3);
  // Whole groups would be 6/5/5 of 16; split, every rank has 16 value heads.
  EXPECT_THAT(Row(layout, "gdn").per_rank, ElementsAre(16, 16, 16));
  EXPECT_THAT(Row(layout, "mlp").per_rank, ElementsAre(46, 45, 45));
}

TEST(Layout, LatentHeadsAndManyExperts) {
  Geometry geometry = DemoGeometry();
  geometry.hidden = 7168;
  for (LayerGeometry& layer : geometry.layers) layer = {Mixer::kLatentAttention, ChannelMixer::kMoe};
  geometry.layers[0].channel_mixer = ChannelMixer::kMlp;
  geometry.mlp_width = 18432;
  geometry.latent = {1536, 512, 128, 64, 128, true};
  geometry.attention = {128, 1, 192, 64};
  geometry.moe = {256, 8, 2048, 2048};
  for (const int64_t ranks : {3, 5, 6, 7}) {
    const Layout layout = Make(geometry, ranks);
    int64_t heads = 0;
    for (const RankShard& shard : layout.shards) {
      heads += shard.attention.q_real;
      EXPECT_EQ(shard.attention.kv_heads, 1);
      EXPECT_EQ(shard.attention.q_to_kv, std::vector<int32_t>(static_cast<size_t>(shard.attention.q_heads), 0));
    }
    EXPECT_EQ(heads, 128);
    EXPECT_EQ(Row(layout, "attn").per_rank[0], (128 + ranks - 1) / ranks);
    EXPECT_EQ(Row(layout, "attn").unit, "head");
    EXPECT_THAT(LegalCuts(geometry, "attn", ranks), ElementsAre("uneven", "pad", "replicate"));
    EXPECT_FALSE(Row(layout, "mlp").per_rank.empty() || Row(layout, "experts").per_rank.empty());
  }
  EXPECT_THAT(Row(Make(geometry, 3, "experts=whole"), "experts").per_rank, ElementsAre(86, 85, 85));
}

}  // namespace
}  // namespace trivet::plan
