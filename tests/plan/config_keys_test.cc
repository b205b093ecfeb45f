// SPDX-License-Identifier: Apache-2.0
#include "plan/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::plan {
namespace {

using ::testing::HasSubstr;

const Json& Sample() {
  static const Json sample =
      Json::parse(R"({"seven": 7, "zero": 0, "minus": -1, "half": 0.5, "word": "x", "null": null})");
  return sample;
}

TEST(ConfigKeys, ExtentsAreInRange) {
  EXPECT_EQ(*NeedExtent(Sample(), "seven"), 7);
  EXPECT_EQ(*NeedExtent(Sample(), "seven", 7), 7);
  EXPECT_THAT(NeedExtent(Sample(), "seven", 6).error().message, HasSubstr("expected 1 to 6, found 7"));
  for (const char* key : {"zero", "minus", "half", "word", "null", "absent"}) {
    EXPECT_EQ(NeedExtent(Sample(), key).error().code, Code::kInvalid) << key;
  }
  EXPECT_EQ(*GetExtent(Sample(), "zero"), 0);
  EXPECT_EQ(*GetExtent(Sample(), "absent"), 0);
  EXPECT_EQ(*GetExtent(Sample(), "null"), 0);
  EXPECT_FALSE(GetExtent(Sample(), "minus").ok());
}

TEST(ConfigKeys, PositiveNumbersAreNeededWithoutAFallback) {
  EXPECT_EQ(*PositiveDouble(Sample(), "half", 0), 0.5);
  EXPECT_EQ(*PositiveDouble(Sample(), "absent", 2), 2);
  EXPECT_THAT(PositiveDouble(Sample(), "absent", 0).error().message, HasSubstr("\"absent\""));
  EXPECT_FALSE(PositiveDouble(Sample(), "minus", 1).ok());
  EXPECT_FALSE(PositiveDouble(Sample(), "zero", 1).ok());
}

TEST(ConfigKeys, TheAliasStandsInForTheKey) {
  EXPECT_EQ(EitherKey(Sample(), "seven", "half"), "seven");
  EXPECT_EQ(EitherKey(Sample(), "null", "half"), "half");
  EXPECT_EQ(EitherKey(Sample(), "absent", "gone"), "absent");
  EXPECT_FALSE(Present(Sample(), "null"));
  EXPECT_TRUE(Present(Sample(), "zero"));
}

TEST(ConfigKeys, ErrorsNameKeyAndCode) {
  EXPECT_EQ(InvalidKey("a", "b", "c").message, "config.json: \"a\": expected b, found c; correct the file");
  EXPECT_EQ(UnsupportedKey("a", "b", "c").code, Code::kUnsupported);
}

}  // namespace
}  // namespace trivet::plan
