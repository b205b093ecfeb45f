// SPDX-License-Identifier: Apache-2.0
#include "record/records.h"

#include <gtest/gtest.h>

namespace trivet::record {
namespace {

TEST(Records, LevelsHaveNames) {
  for (const Level level : {Level::kOff, Level::kDigest, Level::kRows, Level::kFull}) {
    EXPECT_EQ(ParseLevel(LevelName(level)), level);
  }
  EXPECT_EQ(ParseLevel("some"), std::nullopt);
}

TEST(Records, SitesHaveNames) {
  EXPECT_EQ(SiteName(Site::kEmbed), "embed");
  EXPECT_EQ(SiteName(Site::kMixer), "resid1");
  EXPECT_EQ(SiteName(Site::kLogits), "logits");
  EXPECT_EQ(SiteName(Site::kShown), "shown");
  EXPECT_EQ(SiteName(static_cast<Site>(2)), "site 2");
  EXPECT_TRUE(InContext(Site::kShown) && InContext(Site::kReturned) && !InContext(Site::kRouter));
}

TEST(Records, TokensComeApart) {
  const int64_t token = GlobalToken(7, 123456);
  EXPECT_EQ(RequestOf(token), 7);
  EXPECT_EQ(PositionOf(token), 123456);
  EXPECT_LT(GlobalToken(6, 4000000000), token);
}

}  // namespace
}  // namespace trivet::record
