// SPDX-License-Identifier: Apache-2.0
#include "proof/rank_files.h"

#include <gtest/gtest.h>

namespace trivet::proof {
namespace {

record::Collective Sum(int64_t group) {
  return {record::Site::kMixer, 2, group, "all-reduce", "one-shot", "one-shot", "any", "i64", "i64", "grid"};
}

RankFacts Facts() {
  return {1, {1, 4, 7}, {1, 2}, {{"rank", 1}}, {{"experts", Json::array()}}, [](record::Site, int64_t layer) {
            return Json(layer);
          }};
}

TEST(RankFiles, RowsAreShownToAContextGroup) {
  record::Collective shown = Sum(2);
  for (const auto site : {record::Site::kShown, record::Site::kReturned}) {
    shown.site = site;
    EXPECT_EQ(CollectiveJson(shown, 1, Facts())["ranks"], Json::array({1, 2}));
  }
}

TEST(RankFiles, ASumSaysWhoTookPart) {
  const Json several = CollectiveJson(Sum(3), 7, Facts());
  EXPECT_EQ(several["ranks"], Json::array({1, 4, 7}));
  EXPECT_EQ(several["owners"], 2);
  EXPECT_EQ(several["calls"], 7);
  EXPECT_EQ(several["site"], "resid1");
  EXPECT_EQ(CollectiveJson(Sum(1), 1, Facts())["ranks"], Json::array({1}));
}

// The files of a log with one row and one sum.
Files FilesOf(record::Level level) {
  record::RunLog log({level, {}, 1, {{0, 0}}, 0});
  log.BeginStep({{5, 0, 0, 1, 0}}, {});
  log.Count(Sum(3));
  log.Sort();
  return LogFiles(log, Facts());
}

TEST(RankFiles, ALevelHasItsFiles) {
  EXPECT_EQ(FilesOf(record::Level::kDigest).size(), 6U);
  EXPECT_EQ(FilesOf(record::Level::kRows).size(), 7U);
  const Files files = FilesOf(record::Level::kFull);
  EXPECT_EQ(files.size(), 9U);
  EXPECT_TRUE(files.contains("ranks/00001/execute.bin"));
}

TEST(RankFiles, ALogAndItsRunGiveTheSame) {
  RankRun rank;
  rank.folder = rank.rank = 1;
  rank.env = Facts().env;
  rank.weights = Facts().weights;
  rank.rows = {{5, 0, 0, 1, 0}};
  rank.routes.top_k = 1;
  rank.collectives = {CollectiveJson(Sum(3), 1, Facts())};
  for (const record::Level level : {record::Level::kDigest, record::Level::kRows, record::Level::kFull}) {
    EXPECT_EQ(FilesOf(level), RankFiles(rank, level));
  }
}

}  // namespace
}  // namespace trivet::proof
