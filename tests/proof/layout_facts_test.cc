// SPDX-License-Identifier: Apache-2.0
#include "proof/layout_facts.h"

#include <gtest/gtest.h>

#include "proof/synthetic.h"
#include "record/records.h"

namespace trivet::proof {
namespace {

TokenLayout Zigzag() {
  SyntheticOptions options;
  options.sizes = {2, 2, 1, 2, 1};
  options.zigzag = true;
  return MakeSynthetic(options).tokens;
}

TEST(LayoutFacts, OwnersStandSomewhere) {
  const Json json = OwnersJson(Zigzag(), {3, record::GlobalToken(0, 2)});
  ASSERT_EQ(json["owners"].size(), 2U);
  EXPECT_EQ(json["owners"][1]["rank"], 7);
  EXPECT_EQ(json["owners"][1]["at"]["cp"], 1);
  EXPECT_EQ(json["owners"][1]["at"]["pp"], 1);
  EXPECT_EQ(json["dimensions"]["tp"]["mode"], "replica");
  EXPECT_TRUE(OwnersJson(Zigzag(), {3, record::GlobalToken(0, 100)})["owners"].empty());
}

TEST(LayoutFacts, HoldingsAreRanges) {
  const Json json = HoldingsJson(Zigzag(), 4);
  EXPECT_EQ(json["layers"], Json::array({2, 3}));
  EXPECT_EQ(DumpJson(json["requests"][0]["positions"]), "[[0,2],[6,7]]");
}

}  // namespace
}  // namespace trivet::proof
