// SPDX-License-Identifier: Apache-2.0
#include "plan/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "base/str.h"
#include "tests/io/temp_dir.h"

namespace trivet::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Placement Value(Result<Placement> made) {
  CHECK_MSG(made.ok(), made.error().message);
  return std::move(made).value();
}

Placement Block(int64_t experts, int64_t ep_size) {
  return Value(Placement::FromEpConfig(experts, ep_size, PlacementStrategy::kBlock));
}

Placement Interleave(int64_t experts, int64_t ep_size) {
  return Value(Placement::FromEpConfig(experts, ep_size, PlacementStrategy::kInterleave));
}

// Maps of every kind, in both readings.
std::vector<Placement> Maps() {
  std::vector<Placement> maps;
  for (const PlacementSemantics semantics : {PlacementSemantics::kGlobal, PlacementSemantics::kRankLocal}) {
    const PlacementLabel label{"v3", semantics};
    for (const int64_t experts : {1, 2, 7, 10, 64}) {
      maps.push_back(Value(Placement::Identity(experts, label)));
      for (const int64_t ep_size : {1, 2, 3, 8, 11}) {
        maps.push_back(Value(Placement::FromEpConfig(experts, ep_size, PlacementStrategy::kBlock, label)));
        maps.push_back(Value(Placement::FromEpConfig(experts, ep_size, PlacementStrategy::kInterleave, label)));
        for (const uint64_t seed : {1, 2, 3}) maps.push_back(Value(Placement::Random(experts, ep_size, seed, label)));
      }
    }
  }
  return maps;
}

TEST(Placement, InterleaveOf256OnEightByHand) {
  const Placement map = Interleave(256, 8);
  EXPECT_EQ(map.Addresses()[9], (ExpertAddress{1, 1}));
  EXPECT_EQ(map.LogicalToPhysical()[9], 33);
}

TEST(Placement, UnevenRestGoesToTheLowerGroups) {
  EXPECT_THAT(Block(10, 3).Sizes(), ElementsAre(4, 3, 3));
  EXPECT_THAT(Interleave(10, 3).Sizes(), ElementsAre(4, 3, 3));
  EXPECT_THAT(Block(2, 4).Sizes(), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(Block(10, 3).tables[1], ElementsAre(4, 5, 6));
  EXPECT_THAT(Interleave(10, 3).tables[1], ElementsAre(1, 4, 7));
}

TEST(Placement, GlobalIdsAreARankMajorConcatenation) {
  Placement map;
  map.tables = {{3, 0}, {}, {2, 4, 1}};
  EXPECT_THAT(map.LogicalToPhysical(), ElementsAre(1, 4, 2, 0, 3));
  EXPECT_THAT(map.PhysicalIds(), ElementsAre(1, 4, 2, 0, 3));
  map.semantics = PlacementSemantics::kRankLocal;
  EXPECT_THAT(map.PhysicalIds(), ElementsAre(1, 2, 0, 0, 1));
  EXPECT_THAT(map.LogicalToPhysical(), ElementsAre(1, 4, 2, 0, 3));
}

// Whatever the map: subtracting the slots of earlier groups from a global id gives the slot, and every id is taken
// once.
TEST(Placement, GlobalIdLessTheGroupsBaseIsTheSlot) {
  for (const Placement& map : Maps()) {
    const std::vector<int64_t> sizes = map.Sizes(), ids = map.LogicalToPhysical();
    const std::vector<ExpertAddress> addresses = map.Addresses();
    for (size_t e = 0; e < ids.size(); ++e) {
      const auto before = sizes.begin() + addresses[e].ep_rank;
      EXPECT_EQ(ids[e] - std::accumulate(sizes.begin(), before, int64_t{0}), addresses[e].local_slot);
    }
    EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), ids.size());
  }
}

TEST(Placement, BlockHasTheFlatListOfIdentity) {
  for (const int64_t ep_size : {1, 2, 3, 7, 12}) {
    EXPECT_EQ(Block(10, ep_size).LogicalToPhysical(), Value(Placement::Identity(10)).LogicalToPhysical());
  }
}

TEST(Placement, FragmentsReadBackAsTheMapTheyAreOf) {
  for (const Placement& map : Maps()) {
    const Json written = map.PlanFragment();
    const Placement read = Value(Placement::FromPlanFragment(ParseJson(DumpJson(written), "map").value(), "map"));
    EXPECT_EQ(read.tables, map.tables);
    EXPECT_EQ(read.ContentDigest(), map.ContentDigest());
    EXPECT_EQ(read.ProvenanceDigest(), map.ProvenanceDigest());
    EXPECT_EQ(DumpJson(read.PlanFragment()), DumpJson(written));
  }
}

TEST(Placement, FlatListsAndSizesReadBackAsTheTables) {
  for (const Placement& map : Maps()) {
    const PlacementLabel label{"", map.semantics};
    const Placement flat = Value(Placement::FromLogicalToPhysical(map.LogicalToPhysical(), map.Sizes(), label));
    EXPECT_EQ(flat.tables, map.tables);
    EXPECT_EQ(flat.ContentDigest(), map.ContentDigest());
  }
}

// By formula, by pairs and by plan fragment: one content, and provenance tells them apart.
TEST(Placement, ContentDoesNotDependOnTheWayItWasMade) {
  for (const Placement& map : Maps()) {
    const Placement pairs = Value(Placement::FromPairs(map.Addresses(), map.ep_size(), {map.version, map.semantics}));
    EXPECT_EQ(pairs.tables, map.tables);
    EXPECT_EQ(pairs.ContentDigest(), map.ContentDigest());
    EXPECT_NE(pairs.ProvenanceDigest(), map.ProvenanceDigest());
    EXPECT_EQ(Value(Placement::FromPlanFragment(pairs.PlanFragment(), "map")).ContentDigest(), map.ContentDigest());
  }
}

TEST(Placement, ContentDiffersForEveryOtherMap) {
  const Placement map = Value(Placement::FromPairs({{0, 0}, {1, 0}, {0, 1}, {1, 1}}));
  std::set<std::string> digests = {map.ContentDigest()};
  const auto expect_new = [&](const Placement& other) { EXPECT_TRUE(digests.insert(other.ContentDigest()).second); };
  Placement other = map;
  other.semantics = PlacementSemantics::kRankLocal;
  expect_new(other);
  expect_new(Value(Placement::FromPairs({{0, 1}, {1, 0}, {0, 0}, {1, 1}})));     // two slots exchanged
  expect_new(Value(Placement::FromPairs({{0, 0}, {1, 0}, {0, 1}, {1, 1}}, 3)));  // a group more, without experts
  expect_new(Value(Placement::FromPairs({{0, 0}, {0, 2}, {0, 1}, {1, 0}})));     // the same flat list, other tables
  expect_new(Value(Placement::FromPairs({{0, 0}, {0, 2}, {0, 1}, {0, 3}})));
  other = map;
  other.version = "v9";
  EXPECT_EQ(other.ContentDigest(), map.ContentDigest());
  EXPECT_NE(other.ProvenanceDigest(), map.ProvenanceDigest());
}

TEST(Placement, OlderFragmentsOfTwoKeysAreRead) {
  const Json old = {{"version", "rebalanced.7"}, {"logical_to_physical", {2, 0, 1}}};
  const Placement map = Value(Placement::FromPlanFragment(old, "old"));
  EXPECT_EQ(map.version, "rebalanced.7");
  EXPECT_THAT(map.tables, ElementsAre(ElementsAre(1, 2, 0)));
  EXPECT_EQ(map.ContentDigest(), Value(Placement::FromLogicalToPhysical({2, 0, 1})).ContentDigest());
}

// Who reads only the two old keys sees them where and as they were, in either reading.
TEST(Placement, TheOldKeysKeepPlaceAndMeaning) {
  for (const Placement& map : Maps()) {
    const Json fragment = map.PlanFragment();
    EXPECT_EQ(fragment.begin().key(), "version");
    EXPECT_EQ(std::next(fragment.begin()).key(), "logical_to_physical");
    std::vector<int64_t> list = fragment["logical_to_physical"];
    EXPECT_EQ(list, map.LogicalToPhysical());
    std::sort(list.begin(), list.end());
    for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(list[i], static_cast<int64_t>(i));
  }
}

// A label made from the content tells maps apart, and is the same for the same map.
TEST(Placement, MapsWithoutALabelHaveOneThatTellsThemApart) {
  std::set<std::string> labels;
  const std::vector<Placement> maps = {
      Block(10, 2),
      Block(10, 3),
      Block(12, 3),
      Interleave(10, 3),
      Value(Placement::Identity(10)),
      Value(Placement::Random(10, 3, 1)),
      Value(Placement::Random(10, 3, 2)),
      Value(Placement::FromEpConfig(10, 3, PlacementStrategy::kBlock, {"", PlacementSemantics::kRankLocal}))};
  for (const Placement& map : maps) labels.insert(map.version);
  EXPECT_EQ(labels.size(), maps.size());
  EXPECT_EQ(Block(10, 3).version, Block(10, 3).version);
  EXPECT_EQ(Block(10, 3).version, "block.ep3." + Block(10, 3).ContentDigest().substr(5, 8));
}

// A file of it would hold other bytes than its digest covers.
TEST(Placement, ALabelThatIsNotUtf8IsRefused) {
  const PlacementLabel label{"v\xff", {}};
  for (const Result<Placement>& made :
       {Placement::Identity(4, label), Placement::FromEpConfig(4, 2, PlacementStrategy::kBlock, label),
        Placement::Random(4, 2, 1, label), Placement::FromPairs({{0, 0}}, 0, label),
        Placement::FromLogicalToPhysical({0}, {}, label)}) {
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::kUsage);
    EXPECT_THAT(made.error().message, HasSubstr("--label: expected UTF-8"));
  }
}

TEST(Placement, RandomMapsRepeatAndDiffer) {
  const Placement one = Value(Placement::Random(10, 3, 5));
  EXPECT_EQ(one.tables, Value(Placement::Random(10, 3, 5)).tables);
  EXPECT_NE(one.tables, Value(Placement::Random(10, 3, 6)).tables);
  // The numbers are the same on every machine.
  EXPECT_EQ(one.ContentDigest(), "xxh3:c8d713a21000bbd3");
}

TEST(Placement, RanksFoldIntoConsecutiveGroups) {
  EXPECT_THAT(FoldGroups(7, 3), ElementsAre(0, 0, 0, 1, 1, 2, 2));
  EXPECT_THAT(FoldGroups(4, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(FoldGroups(3, 1), ElementsAre(0, 0, 0));
}

TEST(Placement, WhatIsNoMapIsRefused) {
  const struct {
    Result<Placement> made;
    Code code;
    const char* text;
  } cases[] = {
      {Placement::Identity(0), Code::kUsage, "experts: expected 1 to 65536, found 0"},
      {Placement::FromEpConfig(4, 0, PlacementStrategy::kBlock), Code::kUsage, "ep: expected 1 to"},
      {Placement::FromEpConfig(4, 2, PlacementStrategy::kIrregular), Code::kUsage, "block or interleave"},
      {Placement::Random(4, 70000, 1), Code::kUsage, "ep: expected 1 to"},
      {Placement::FromLogicalToPhysical({0, 0, 1}), Code::kInvalid, "found 0 for experts 0 and 1"},
      {Placement::FromLogicalToPhysical({0, 3, 1}), Code::kInvalid, "found 3 for expert 1"},
      {Placement::FromLogicalToPhysical({0, 1}, {1, 2}), Code::kInvalid, "table sizes"},
      {Placement::FromLogicalToPhysical({0, 1}, {3, -1}), Code::kInvalid, "table sizes"},
      {Placement::FromLogicalToPhysical({}), Code::kUsage, "experts"},
      {Placement::FromPairs({{0, 0}, {0, 0}}), Code::kInvalid, "slot 0 of group 0: expected one expert, found 0 and 1"},
      {Placement::FromPairs({{0, 0}, {0, 2}}), Code::kInvalid, "found none in slot 1"},
      {Placement::FromPairs({{0, 0}, {2, 0}}, 2), Code::kInvalid,
       "expert 1: expected a slot of groups 0 to 1, found slot 0 of group 2"},
      {Placement::FromPairs({{-1, 0}}), Code::kInvalid, "groups 0 to 65535, found slot 0 of group -1"},
      {Placement::FromPairs({{0, -1}}), Code::kInvalid, "found slot -1 of group 0"},
      {Placement::FromPairs({{0, 0}}, -1), Code::kUsage, "ep: expected 1 to 65536, found -1"},
      {Placement::FromPairs({{4000000000, 0}}), Code::kInvalid, "found slot 0 of group 4000000000"},
      {Placement::FromPairs({{INT64_MAX, 0}}), Code::kInvalid, "found slot 0 of group 9223372036854775807"},
  };
  for (const auto& test : cases) {
    ASSERT_FALSE(test.made.ok()) << test.text;
    EXPECT_EQ(test.made.error().code, test.code) << test.made.error().message;
    EXPECT_THAT(test.made.error().message, HasSubstr(test.text));
  }
}

TEST(Placement, NamesOfReadingsAndStrategies) {
  for (const auto semantics : {PlacementSemantics::kGlobal, PlacementSemantics::kRankLocal}) {
    EXPECT_EQ(ParseSemantics(SemanticsName(semantics)).value(), semantics);
  }
  for (const auto strategy : {PlacementStrategy::kIdentity, PlacementStrategy::kBlock, PlacementStrategy::kInterleave,
                              PlacementStrategy::kIrregular}) {
    EXPECT_EQ(ParseStrategy(StrategyName(strategy)).value(), strategy);
  }
  EXPECT_EQ(ParseSemantics("local").error().code, Code::kUsage);
  EXPECT_EQ(ParseStrategy("linear").error().code, Code::kUsage);
}

TEST(Placement, FilesAreReadAndNamedWhenTheyAreNone) {
  const TempDir dir;
  const Placement map = Interleave(10, 4);
  ASSERT_TRUE(WriteTextFile(dir.Path("map.json"), DumpJson(map.PlanFragment())).ok());
  EXPECT_EQ(Value(ReadPlacement(dir.Path("map.json"))).tables, map.tables);
  EXPECT_EQ(ReadPlacement(dir.Path("none.json")).error().code, Code::kNotFound);
  ASSERT_TRUE(WriteTextFile(dir.Path("bad.json"), "[1]").ok());
  EXPECT_THAT(ReadPlacement(dir.Path("bad.json")).error().message, HasSubstr("bad.json"));
}

}  // namespace
}  // namespace trivet::plan
