// SPDX-License-Identifier: Apache-2.0
// One defect each, except where two show which gate answers first.
#include "plan/placement_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Ten experts, interleaved over groups of 4, 3 and 3.
Placement Map(PlacementSemantics semantics = PlacementSemantics::kGlobal) {
  return Placement::FromEpConfig(10, 3, PlacementStrategy::kInterleave, {"v7", semantics}).value();
}

// Rows of a dispatch by the map, in no order of experts, with padding.
std::vector<PlacementRow> Rows(const Placement& map) {
  std::vector<PlacementRow> rows;
  for (const int64_t expert : {7, 0, 3, 9, 3}) {
    rows.push_back({map.version, expert, map.Addresses()[static_cast<size_t>(expert)]});
  }
  rows.push_back({map.version, -1, {}});
  return rows;
}

void ExpectVerdict(const Verdict& verdict, int code, const std::string& text) {
  EXPECT_EQ(verdict.code, code) << verdict.sentence;
  EXPECT_THAT(verdict.sentence, HasSubstr(text));
}

TEST(PlacementGates, AMapAndItsRowsPass) {
  for (const auto semantics : {PlacementSemantics::kGlobal, PlacementSemantics::kRankLocal}) {
    const Placement map = Map(semantics);
    ExpectVerdict(CheckPlacement(RecordOf(map), Rows(map)), 0, "");
    ExpectVerdict(CheckPlacement(ParsePlacementRecord(map.PlanFragment(), "map").value(), Rows(map)), 0, "");
    ExpectVerdict(CheckPlacementFits(map, 10, 3), 0, "");
  }
}

// Tokens are not on the rank of their experts, and nothing asks that they were; order and padding do not matter.
TEST(PlacementGates, OrderAndPaddingOfRowsDoNotMatter) {
  const Placement map = Map();
  std::vector<PlacementRow> rows = Rows(map);
  std::reverse(rows.begin(), rows.end());
  rows.insert(rows.begin() + 2, 5, {map.version, -1, {}});
  ExpectVerdict(CheckPlacement(RecordOf(map), rows), 0, "");
}

TEST(PlacementGates, ARowOfAnotherVersion) {
  const Placement map = Map();
  std::vector<PlacementRow> rows = Rows(map);
  rows[3].version = "v6";
  ExpectVerdict(CheckPlacement(RecordOf(map), rows), 65, "expected \"v6\", found the map \"v7\"");
}

TEST(PlacementGates, TwoExpertsInOneSlot) {
  PlacementRecord global = RecordOf(Map());
  global.physical[4] = global.physical[2];
  ExpectVerdict(CheckPlacementStructure(global), 64, "for experts 2 and 4");
  PlacementRecord local = RecordOf(Map(PlacementSemantics::kRankLocal));
  local.physical[4] = local.physical[1];  // 1 and 4 are both in group 1
  ExpectVerdict(CheckPlacementStructure(local), 64, "slot 0 of group 1: expected one expert, found 1 and 4");
}

TEST(PlacementGates, AHoleInATable) {
  PlacementRecord local = RecordOf(Map(PlacementSemantics::kRankLocal));
  local.physical[7] = 3;  // group 1: slots 0, 1 and 3
  ExpectVerdict(CheckPlacementStructure(local), 64, "group 1: expected its 3 experts in slots 0 to 2, found none in");
  PlacementRecord table = RecordOf(Map());
  (*table.tables)[1][1] = -1;
  ExpectVerdict(CheckPlacementStructure(table), 64, "in slot 1 of group 1, found -1; fill the hole");
}

TEST(PlacementGates, RankLocalIdsDeclaredAsGlobal) {
  PlacementRecord map = RecordOf(Map(PlacementSemantics::kRankLocal));
  map.semantics = "global";
  ExpectVerdict(CheckPlacementStructure(map), 64, "declare rank-local ids");
}

TEST(PlacementGates, GlobalIdsDeclaredAsRankLocal) {
  PlacementRecord map = RecordOf(Map());
  map.semantics = "rank_local";
  ExpectVerdict(CheckPlacementStructure(map), 64, "group 1: expected its 3 experts in slots 0 to 2");
}

TEST(PlacementGates, ARowWhoseAddressIsNotTheMaps) {
  const Placement map = Map();
  for (const ExpertAddress wrong : {ExpertAddress{1, 1}, ExpertAddress{0, 2}, ExpertAddress{-1, -1}}) {
    std::vector<PlacementRow> rows = Rows(map);
    rows[1].address = wrong;  // expert 0 is in slot 0 of group 0
    ExpectVerdict(CheckPlacement(RecordOf(map), rows), 64, "row 1: expected slot 0 of group 0 for expert 0");
  }
  std::vector<PlacementRow> rows = Rows(map);
  rows[5].address = {0, 0};
  ExpectVerdict(CheckPlacement(RecordOf(map), rows), 64, "row 5: expected slot -1 of group -1");
  rows = Rows(map);
  rows[0].logical = 10;
  ExpectVerdict(CheckPlacement(RecordOf(map), rows), 64, "row 0: expected one of 10 experts, found 10");
}

// A map of another version is called stale, whatever else is wrong with it; a malformed map, before its rows.
TEST(PlacementGates, VersionIsJudgedBeforeStructureAndStructureBeforeRows) {
  const Placement map = Map();
  PlacementRecord broken = RecordOf(map);
  (*broken.tables)[0][0] = -1;
  std::vector<PlacementRow> rows = Rows(map);
  rows[0].address = {2, 2};
  ExpectVerdict(CheckPlacement(broken, rows), 64, "fill the hole");
  rows[2].version = "v6";
  ExpectVerdict(CheckPlacement(broken, rows), 65, "\"v6\"");
}

TEST(PlacementGates, AFileIsStaleBeforeItIsMalformed) {
  PlacementRecord record;
  const Json good = Map().PlanFragment();
  ExpectVerdict(CheckPlacementFile(good, "v7", &record).value(), 0, "");
  EXPECT_EQ(record.tables, Map().tables);
  for (const char* key : {"tables", "ep_size", "logical_to_physical"}) {
    Json wrong = good;
    wrong[key] = "x";
    ExpectVerdict(CheckPlacementFile(wrong, "v6", &record).value(), 65, "expected \"v6\"");
    ExpectVerdict(CheckPlacementFile(wrong, "v7", &record).value(), 64, key);
    ExpectVerdict(CheckPlacementFile(wrong, {}, &record).value(), 64, key);
  }
  Json other = good;
  other["version"] = 7;
  ExpectVerdict(CheckPlacementFile(other, "v6", &record).value(), 64, "\"version\": expected a text, found 7");
  other = good;
  other["schema"] = "placement.v2";
  EXPECT_EQ(CheckPlacementFile(other, "v7", &record).error().code, Code::kUnsupported);
}

// The advice is for who can follow it: a flat list has no reading to declare.
TEST(PlacementGates, OnlyAMapThatDeclaresAReadingIsToldOfAnother) {
  EXPECT_THAT(CheckPermutation({0, 0}).sentence, Not(HasSubstr("declare")));
  PlacementRecord map = RecordOf(Map(PlacementSemantics::kRankLocal));
  map.logical_to_physical = map.physical;
  ExpectVerdict(CheckPlacementStructure(map), 64, "give every expert an id of its own");
  EXPECT_THAT(CheckPlacementStructure(map).sentence, Not(HasSubstr("declare")));
}

TEST(PlacementGates, ReplicasAreRefusedByName) {
  PlacementRecord map = RecordOf(Map());
  (*map.tables)[2].push_back(0);
  ExpectVerdict(CheckPlacementStructure(map), 64, "replicas are not supported");
  Json fragment = Map().PlanFragment();
  fragment["replicas"] = "any";
  const Result<PlacementRecord> parsed = ParsePlacementRecord(fragment, "map");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, Code::kUnsupported);
}

TEST(PlacementGates, PartsOfARecordAgreeWithEachOther) {
  const struct {
    const char* text;
    void (*change)(PlacementRecord*);
  } cases[] = {
      {"semantics: expected global or rank_local", [](PlacementRecord* map) { map->semantics = "flat"; }},
      {"strategy: expected identity", [](PlacementRecord* map) { map->strategy = "linear"; }},
      {"experts: expected 1 to", [](PlacementRecord* map) { map->experts = -1; }},
      {"ep_size: expected 1 to", [](PlacementRecord* map) { map->ep_size = int64_t{1} << 40; }},
      {"physical: expected 10 experts, found 9", [](PlacementRecord* map) { map->physical.pop_back(); }},
      {"ep_rank: expected 10 experts, found 11", [](PlacementRecord* map) { map->ep_rank.push_back(0); }},
      {"expert 3: expected a group of 0 to 2, found 3", [](PlacementRecord* map) { map->ep_rank[3] = 3; }},
      {"expert 4: expected a slot of groups 0 to 2, found slot -2",  // its global id is one of group 1
       [](PlacementRecord* map) { std::swap(map->ep_rank[4], map->ep_rank[5]); }},
      {"found 10 for expert 9", [](PlacementRecord* map) { map->physical[9] = 10; }},
      {"logical_to_physical: expected the global id 0 for expert 0",
       [](PlacementRecord* map) { std::swap(map->logical_to_physical[0], map->logical_to_physical[1]); }},
      {"found 7 for experts", [](PlacementRecord* map) { map->logical_to_physical[0] = 7; }},
      {"tables: expected the slots", [](PlacementRecord* map) { std::swap((*map->tables)[0], (*map->tables)[1]); }},
      {"tables: expected the slots", [](PlacementRecord* map) { map->tables->emplace_back(); }},
      {"strategy: expected the map that block gives", [](PlacementRecord* map) { map->strategy = "block"; }},
      {"strategy: expected the map that identity gives", [](PlacementRecord* map) { map->strategy = "identity"; }},
      {"content: expected the digest xxh3:", [](PlacementRecord* map) { map->content = "xxh3:0"; }},
      {"provenance: expected the digest xxh3:", [](PlacementRecord* map) { map->origin = "elsewhere"; }},
  };
  for (const auto& test : cases) {
    PlacementRecord map = RecordOf(Map());
    test.change(&map);
    ExpectVerdict(CheckPlacementStructure(map), 64, test.text);
    const Result<Placement> made = MakePlacement(map, "map.json");
    ASSERT_FALSE(made.ok());
    EXPECT_THAT(made.error().message, HasSubstr("map.json: "));
  }
}

TEST(PlacementGates, AMapFitsAModelAndItsRanks) {
  ExpectVerdict(CheckPlacementFits(Map(), 8, 3), 64, "expected the model's 8, found 10");
  ExpectVerdict(CheckPlacementFits(Map(), 10, 2), 64, "at most the 2 ranks, found 3 groups");
}

TEST(PlacementGates, VersionOfAMap) {
  ExpectVerdict(CheckPlacementVersion("v7", "v7"), 0, "");
  ExpectVerdict(CheckPlacementVersion("v7", "v8"), 65, "expected \"v8\"");
  EXPECT_STREQ(PlacementVerdictName(64), "INVALID_PLACEMENT_MAP");
  EXPECT_STREQ(PlacementVerdictName(65), "PLACEMENT_MAP_VERSION_MISMATCH");
  EXPECT_STREQ(PlacementVerdictName(0), "PASS");
}

TEST(PlacementRecord, MembersHaveTheirTypes) {
  const Json good = Map().PlanFragment();
  ASSERT_TRUE(ParsePlacementRecord(good, "map").ok());
  for (const auto& [key, value] : good.items()) {
    for (const Json& wrong : {Json(nullptr), Json(1.5), Json{{"a", 1}}, Json{1, "x"}, Json{uint64_t{1} << 63}}) {
      Json fragment = good;
      fragment[key] = wrong;
      const Result<PlacementRecord> parsed = ParsePlacementRecord(fragment, "map");
      ASSERT_FALSE(parsed.ok()) << key << " " << DumpJson(wrong);
      EXPECT_THAT(parsed.error().message, HasSubstr("map")) << key;
      EXPECT_THAT(parsed.error().message, HasSubstr(key));
    }
  }
  const struct {
    const char* at;
    Json wrong;
    const char* text;
  } entries[] = {
      {"/physical/3", "x", R"("physical"[3]: expected a 64-bit integer, found "x")"},
      {"/tables/1/2", uint64_t{18446744073709551615U}, R"("tables"[1][2]: expected a 64-bit integer, found 18446744)"},
      {"/tables/0", 5, R"("tables"[0]: expected a list of integers, found 5)"},
      {"/strategy", nullptr, R"("strategy": expected a text, found null)"}};
  for (const auto& entry : entries) {
    Json fragment = good;
    fragment[Json::json_pointer(entry.at)] = entry.wrong;
    EXPECT_THAT(ParsePlacementRecord(fragment, "map").error().message, HasSubstr(entry.text));
  }
  Json fragment = good;
  fragment.erase("tables");
  EXPECT_THAT(ParsePlacementRecord(fragment, "map").error().message, HasSubstr("found nothing"));
  fragment = good;
  fragment["schema"] = "placement.v2";
  EXPECT_EQ(ParsePlacementRecord(fragment, "map").error().code, Code::kUnsupported);
  fragment = good;
  fragment["physical"] = std::vector<int64_t>(kMostExperts + 1, 0);
  EXPECT_THAT(ParsePlacementRecord(fragment, "map").error().message, HasSubstr("at most 65536 experts"));
}

// It would be read as one group of global ids, whatever its tables say.
TEST(PlacementRecord, NewKeysWithoutASchemaAreRefused) {
  const Json good = Map().PlanFragment();
  const Json old = {{"version", good["version"]}, {"logical_to_physical", good["logical_to_physical"]}};
  ASSERT_TRUE(ParsePlacementRecord(old, "map").ok());
  for (const auto& [key, value] : good.items()) {
    if (old.contains(key) || key == "schema") continue;
    Json mixed = old;
    mixed[key] = value;
    const Result<PlacementRecord> parsed = ParsePlacementRecord(mixed, "map");
    ASSERT_FALSE(parsed.ok()) << key;
    EXPECT_EQ(parsed.error().code, Code::kInvalid);
    EXPECT_THAT(parsed.error().message, HasSubstr("map: expected \"schema\" beside \"" + key + "\""));
  }
}

}  // namespace
}  // namespace trivet::plan
