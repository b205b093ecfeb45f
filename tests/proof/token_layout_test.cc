// SPDX-License-Identifier: Apache-2.0
#include "proof/token_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "proof/synthetic.h"
#include "record/records.h"

namespace trivet::proof {
namespace {

constexpr size_t kTp = 0, kCp = 1, kPp = 3, kEp = 4;

TokenLayout LayoutOf(const SyntheticOptions& options) { return MakeSynthetic(options).tokens; }

SyntheticOptions AllTwo() {
  SyntheticOptions options;
  options.sizes = {2, 2, 2, 2, 2};
  options.rank_order.push_back(Dimension::kEp);
  options.dp_of = {0, 1};
  return options;
}

TEST(TokenLayout, RankOrderDecidesWhereARankStands) {
  TokenLayout layout = LayoutOf(AllTwo());
  EXPECT_EQ(layout.world, 32);
  // 19 is 10011 in binary.
  EXPECT_EQ(layout.At(19), (Coordinates{1, 1, 0, 0, 1}));
  std::reverse(layout.rank_order.begin(), layout.rank_order.end());
  EXPECT_EQ(layout.At(19), (Coordinates{1, 0, 0, 1, 1}));
}

TEST(TokenLayout, ModesAreOneTable) {
  EXPECT_STREQ(ModeName(ModeOf(Dimension::kTp, false)), "replica");
  EXPECT_STREQ(ModeName(ModeOf(Dimension::kTp, true)), "partition_by_sequence");
  EXPECT_STREQ(ModeName(ModeOf(Dimension::kPp, true)), "replica_by_layer");
  EXPECT_STREQ(ModeName(ModeOf(Dimension::kEp, true)), "not_a_token_dimension");
}

// Each decision is carried by (1 or tp) times ep ranks, and carriers are expected decisions seen from the other side.
TEST(TokenLayout, CarriersInvertExpectedDecisions) {
  for (const bool sp : {false, true}) {
    for (const bool zigzag : {false, true}) {
      for (const bool cp_first : {false, true}) {
        SyntheticOptions options = AllTwo();
        options.sp = sp;
        options.zigzag = zigzag;
        options.cp_first = cp_first;
        const TokenLayout layout = LayoutOf(options);
        std::map<Decision, std::set<int64_t>> carriers;
        for (int64_t rank = 0; rank < layout.world; ++rank) {
          for (const Decision& decision : layout.ExpectedDecisions(rank, {0, 1, 2, 3})) carriers[decision].insert(rank);
        }
        EXPECT_EQ(carriers.size(), static_cast<size_t>(4 * (7 + 5)));
        for (const auto& [decision, ranks] : carriers) {
          EXPECT_EQ(ranks.size(), sp ? 2U : 4U);
          const std::vector<int64_t> found = layout.Carriers(decision);
          EXPECT_TRUE(std::equal(found.begin(), found.end(), ranks.begin(), ranks.end()));
        }
      }
    }
  }
}

// Which cp coordinates hold positions 0, 1, ... of a request.
std::vector<int64_t> Parts(const SyntheticOptions& options, size_t dimension) {
  const TokenLayout layout = LayoutOf(options);
  std::vector<int64_t> parts;
  for (int64_t position = 0; position < options.lengths[0]; ++position) {
    parts.push_back(layout.At(layout.Carriers({0, position})[0])[dimension]);
  }
  return parts;
}

TEST(TokenLayout, SequencesAreCutAsDeclared) {
  SyntheticOptions options;
  options.sizes = {1, 2, 1, 1, 1};
  options.lengths = {7, 5};
  EXPECT_EQ(Parts(options, kCp), (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1}));
  options.zigzag = true;  // chunks of two: 0, 1, 1, 0
  EXPECT_EQ(Parts(options, kCp), (std::vector<int64_t>{0, 0, 1, 1, 1, 1, 0}));
  options.zigzag = false;
  options.sp = true;
  options.sizes = {2, 2, 1, 1, 1};
  EXPECT_EQ(Parts(options, kTp), (std::vector<int64_t>{0, 0, 1, 1, 0, 0, 1}));
  options.cp_first = false;
  EXPECT_EQ(Parts(options, kTp), (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(Parts(options, kCp), (std::vector<int64_t>{0, 0, 1, 1, 0, 0, 1}));
}

TEST(TokenLayout, StretchesAreCutAlike) {
  SyntheticOptions options;
  options.sizes = {1, 3, 1, 1, 1};
  options.lengths = {12, 5};
  options.cp_stretch = 5;  // chunks of 2, 2 and 1
  EXPECT_EQ(Parts(options, kCp), (std::vector<int64_t>{0, 0, 1, 1, 2, 0, 0, 1, 1, 2, 0, 0}));
  options.cp_stretch = 4;  // the last part is empty
  EXPECT_EQ(Parts(options, kCp), (std::vector<int64_t>{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
  options.zigzag = true;
  options.cp_stretch = 5;  // six chunks of one position, of which the last is empty
  EXPECT_EQ(Parts(options, kCp), (std::vector<int64_t>{0, 1, 2, 2, 1, 0, 1, 2, 2, 1, 0, 1}));
}

TEST(TokenLayout, StagesAndFoldedExpertGroups) {
  SyntheticOptions options;
  options.sizes = {3, 1, 2, 2, 2};
  options.dp_of = {0, 1};
  options.expert_group_over = {Dimension::kTp, Dimension::kDp};
  const TokenLayout layout = LayoutOf(options);
  EXPECT_EQ(layout.world, 12);
  std::vector<int64_t> groups;
  for (int64_t rank = 0; rank < 6; ++rank) groups.push_back(layout.At(rank)[kEp]);
  EXPECT_EQ(groups, (std::vector<int64_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(layout.Carriers({3, 0}), (std::vector<int64_t>{6, 7, 8}));
  EXPECT_EQ(layout.At(6)[kPp], 1);
  // The sites before the first and behind the last layer belong to the first and to the last stage.
  EXPECT_EQ(layout.Carriers({-1, 0}), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(layout.Carriers({4, 0}), (std::vector<int64_t>{6, 7, 8}));
}

TEST(TokenLayout, NothingIsInferred) {
  const RecordedRun run = MakeSynthetic({});
  TokenLayout out;
  for (const char* fact : {"group", "world", "rank_order", "sizes", "sp", "cp_layout", "cp_stretch", "split_order",
                           "expert_group_over", "stages", "dp_assignment"}) {
    Json layout = run.layout;
    layout.erase(fact);
    const Gate gate = ReadTokenLayout(layout, run.run, &out);
    ASSERT_TRUE(gate) << fact;
    EXPECT_EQ(gate->verdict, Verdict::kLayoutUndeclared) << fact;
  }
}

TEST(TokenLayout, ContradictionsAreRefused) {
  const RecordedRun run = MakeSynthetic({});
  TokenLayout out;
  const struct {
    const char* fact;
    Json value;
  } cases[] = {{"world", 2},
               {"world", "one"},
               {"rank_order", Json::array({"tp", "tp"})},
               {"rank_order", Json::array({"xp"})},
               {"sizes", Json::object()},
               {"sp", 1},
               {"cp_layout", "round"},
               {"cp_stretch", -1},
               {"cp_stretch", "all"},
               {"split_order", Json::array({"sp"})},
               {"stages", Json::array()},
               {"stages", 4},
               {"stages", Json::parse(R"([{"pp": 0, "layers": [[0, 9]]}])")},
               {"experts", Json::parse(R"({"ep_rank": 0})")},
               {"experts", Json::parse(R"({"ep_rank": [0, 0]})")},
               {"experts", Json::parse(R"({"ep_rank": [1]})")},
               {"experts", Json::parse(R"({"ep_rank": [-2]})")},
               {"stages", Json::parse(R"([{"pp": 0, "layers": [[0, 4], [1, 2]]}])")},
               {"dp_assignment", Json::parse(R"({"requests": [0]})")},
               {"dp_assignment", Json::parse(R"({"requests": [0, 1]})")}};
  for (const auto& one : cases) {
    Json layout = run.layout;
    layout[one.fact] = one.value;
    const Gate gate = ReadTokenLayout(layout, run.run, &out);
    ASSERT_TRUE(gate) << one.fact << DumpJson(one.value);
    EXPECT_EQ(gate->verdict, Verdict::kSchemaMismatch) << one.fact;
  }
  Json declared = run.layout;
  declared["experts"]["ep_rank"] = Json::array({-1});
  EXPECT_FALSE(ReadTokenLayout(declared, run.run, &out));
  const auto requests = [&](const std::function<void(Json*)>& edit) {
    Json other = run.run;
    edit(&other["requests"]);
    const Gate gate = ReadTokenLayout(run.layout, other, &out);
    return gate ? gate->verdict : Verdict::kPass;
  };
  EXPECT_EQ(requests([](Json*) {}), Verdict::kPass);
  EXPECT_EQ(requests([](Json* list) { (*list)[0]["computed"] = 1 << 30; }), Verdict::kSchemaMismatch);
  EXPECT_EQ(requests([](Json* list) { (*list)[1]["request"] = 0; }), Verdict::kSchemaMismatch) << "twice";
  EXPECT_EQ(requests([](Json* list) { std::swap((*list)[0], (*list)[1]); }), Verdict::kSchemaMismatch) << "order";
}

}  // namespace
}  // namespace trivet::proof
