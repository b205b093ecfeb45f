// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/str.h"
#include "tests/plan/plan_fixtures.h"

namespace trivet::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Render(int64_t ranks, const std::string& cuts = "") {
  const plan::Geometry demo = plan::DemoGeometry();
  plan::LayoutOptions options;
  options.ranks = ranks;
  CHECK(plan::ParseCuts(cuts, &options).ok());
  const Result<plan::Layout> layout = plan::MakeLayout(demo, options);
  CHECK(layout.ok());
  return RenderLayoutTable(demo, *layout, plan::PriceLayout(demo, *layout, {}));
}

TEST(PlanTable, ShowsEveryAxisOfTheDemoOnThreeRanks) {
  const std::string text = Render(3);
  EXPECT_THAT(text, StartsWith("qwen3_5_moe: 8 layers, width 256, vocabulary 4096, on 3 ranks\n"));
  EXPECT_THAT(text, HasSubstr("gdn      value head       8       8  3/3/2      1.22x  overlap  4 key-head groups"));
  EXPECT_THAT(text, HasSubstr("vocab    32 rows        128     128  43/43/42   1.01x  uneven"));
  EXPECT_THAT(text, HasSubstr("bytes per token"));
  EXPECT_THAT(text, Not(HasSubstr(" \n")));
}

TEST(PlanTable, NamesTheMapOfExperts) {
  const plan::Geometry demo = plan::DemoGeometry();
  plan::LayoutOptions options;
  options.ranks = 3;
  options.ep = 2;
  const plan::Layout layout = plan::MakeLayout(demo, options).value();
  const std::string text = RenderLayoutTable(demo, layout, plan::PriceLayout(demo, layout, {}));
  EXPECT_THAT(text,
              HasSubstr("experts  32 channels of an expert     30      30  10/5/15    1.50x  ep       asked for: 2 "
                        "groups of 2/1 ranks hold 5/5 experts"));
  EXPECT_THAT(text, HasSubstr("experts live by the map block.ep2."));
}

TEST(PlanTable, StagesAndReplicasSayWhoHasWhichLayers) {
  const plan::Geometry demo = plan::DemoGeometry();
  plan::LayoutOptions options;
  options.ranks = 2;
  options.stage_layers = {1, 7};
  options.replicas = 2;
  const plan::Layout layout = plan::MakeLayout(demo, options).value();
  const std::string text = RenderLayoutTable(demo, layout, plan::PriceLayout(demo, layout, {}));
  EXPECT_THAT(text, HasSubstr("vocabulary 4096, on 8 ranks: 2 replicas of 2 stages of 1 share of 2 ranks\n"));
  EXPECT_THAT(text, HasSubstr("\n 1, 5       0 "));
  EXPECT_THAT(text, HasSubstr("\n 3, 7  1 to 7 "));
  EXPECT_THAT(text, HasSubstr("\nstage                   1       256 "));
  EXPECT_THAT(text, HasSubstr("of the ideal 1/4: "));
}

TEST(PlanTable, OneRankHasNoCollectives) {
  const std::string text = Render(1);
  EXPECT_THAT(text, HasSubstr("on 1 rank\n"));
  EXPECT_THAT(text, HasSubstr("no collectives"));
}

TEST(PlanTable, LongListsOfSharesBecomeRuns) {
  EXPECT_THAT(Render(16), HasSubstr("8 on 16 ranks"));
  EXPECT_THAT(Render(15), HasSubstr("9 on 8 ranks, 8 on 7"));
}

TEST(PlanTable, MemoryOfEveryRank) {
  plan::MemoryPlan memory;
  memory.source = "machine";
  memory.available = 4000000;
  memory.budget = 3000000;
  memory.kv_tokens = 128;
  memory.sequences = 2;
  memory.context = 100;
  memory.snapshots = 1;
  memory.ranks = {{1000000, 200000, 30000, 4000, 500}, {1000000, 100000, 30000, 4000, 500}};
  const std::string text = RenderMemoryTable(memory);
  EXPECT_THAT(text, HasSubstr("   1   1.0 MB  100.0 kB  30.0 kB     4.0 kB    500 B  1.1 MB\n"));
  EXPECT_THAT(
      text, HasSubstr("2.4 MB of 4.0 MB available (machine), at most 3.0 MB: 128 tokens of KV cache, 2 sequences of at "
                      "most 100 tokens, 1 snapshots\n"));
}

TEST(PlanTable, ForcedCutsSaySo) { EXPECT_THAT(Render(3, "attn=pad"), HasSubstr("pad      asked for")); }

TEST(PlanTable, OtherRanksHasOneLineEach) {
  const std::string text = RenderOtherRanks(plan::DemoGeometry(), {}, 3);
  EXPECT_EQ(Split(text, '\n').size(), static_cast<size_t>(plan::kMaxRanks) + 1);  // header, lines, final newline
  EXPECT_THAT(text, HasSubstr("\n    4 "));
  EXPECT_THAT(text, Not(HasSubstr("\n    3 ")));
  EXPECT_THAT(text, HasSubstr("1.00x"));
  EXPECT_THAT(text, HasSubstr("attn=overlap gdn=uneven experts=width"));
}

}  // namespace
}  // namespace trivet::cli
