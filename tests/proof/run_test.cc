// SPDX-License-Identifier: Apache-2.0
#include "proof/run.h"

#include <gtest/gtest.h>

#include "proof/rank_files.h"
#include "proof/synthetic.h"

namespace trivet::proof {
namespace {

Verdict Parsed(const Files& files, RecordedRun* run) {
  const Gate gate = ParseRun(files, run);
  return gate ? gate->verdict : Verdict::kPass;
}

TEST(RecordedRun, WhatIsWrittenIsRead) {
  for (const record::Level level : {record::Level::kDigest, record::Level::kRows, record::Level::kFull}) {
    SyntheticOptions options;
    options.sizes = {2, 1, 1, 1, 1};
    options.level = level;
    const RecordedRun made = MakeSynthetic(options);
    RecordedRun read;
    ASSERT_EQ(Parsed(EncodeRun(made), &read), Verdict::kPass);
    ASSERT_EQ(read.ranks.size(), 2U);
    EXPECT_EQ(read.ranks[1].decisions.size(), made.ranks[1].decisions.size());
    EXPECT_EQ(read.ranks[1].routes.slots.size(), level >= record::Level::kRows ? made.ranks[1].routes.slots.size() : 0);
    EXPECT_EQ(read.ranks[1].executions.size(), level == record::Level::kFull ? made.ranks[1].executions.size() : 0);
    EXPECT_EQ(read.logits.size(), level >= record::Level::kRows ? made.logits.size() : 0);
    EXPECT_EQ(read.tokens.world, 2);
    EXPECT_EQ(read.moe_layers, (std::vector<int64_t>{0, 1, 2, 3}));
  }
}

TEST(RecordedRun, EveryFileOfALevelIsNeeded) {
  const Files files = EncodeRun(MakeSynthetic({}));
  RecordedRun run;
  for (const auto& [path, bytes] : files) {
    if (path == "seal.json" || path == "COMPLETE") continue;
    Files without = files;
    without.erase(path);
    EXPECT_EQ(Parsed(without, &run), Verdict::kIncompleteArtifact) << path;
    Files other = files;
    other[path] = "something else";
    EXPECT_EQ(Parsed(other, &run), Verdict::kSchemaMismatch) << path;
  }
  Files more = files;
  more["ranks/7/env.json"] = "{}";
  EXPECT_EQ(Parsed(more, &run), Verdict::kSchemaMismatch);
}

TEST(RecordedRun, RecordsAreInOrder) {
  RecordedRun made = MakeSynthetic({}), run;
  std::swap(made.ranks[0].bounds[3], made.ranks[0].bounds[9]);
  EXPECT_EQ(Parsed(EncodeRun(made), &run), Verdict::kSchemaMismatch);
}

TEST(RecordedRun, ClaimsGrowWithTheLevel) {
  const auto digest = ClaimsOf(record::Level::kDigest), full = ClaimsOf(record::Level::kFull);
  EXPECT_EQ(digest.size() + 2, full.size());
  EXPECT_EQ(full.back(), "execution");
}

}  // namespace
}  // namespace trivet::proof
