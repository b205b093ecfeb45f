// SPDX-License-Identifier: Apache-2.0
#include "record/sites.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::record {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void AddText(SiteLog* log, std::string_view site, int64_t layer, std::string_view text) {
  log->Add(site, layer, std::as_bytes(std::span(text.data(), text.size())));
}

SiteLog ThreeSites() {
  SiteLog log;
  AddText(&log, "embed", kNoLayer, "x");
  AddText(&log, "attn.out", 3, "abc");
  AddText(&log, "mlp.out", 3, "");
  return log;
}

TEST(SiteLog, DigestsAreXxh3InOrder) {
  const SiteLog log = ThreeSites();
  ASSERT_EQ(log.digests().size(), 3u);
  EXPECT_EQ(log.digests()[1], (SiteDigest{"attn.out", 3, 0x78af5f94892f3950u}));
  EXPECT_EQ(log.digests()[2], (SiteDigest{"mlp.out", 3, 0x2d06800538d394c2u}));
}

TEST(SiteLog, Json) {
  SiteLog log = ThreeSites();
  const Json json = log.ToJson();
  EXPECT_EQ(DumpJson(json[1]), R"({"site":"attn.out","layer":3,"xxh3":"78af5f94892f3950"})");
  EXPECT_FALSE(json[0].contains("layer"));
  log.Clear();
  EXPECT_EQ(DumpJson(log.ToJson()), "[]");
}

TEST(FirstDifference, EqualLogsHaveNone) {
  EXPECT_EQ(FirstDifference(ThreeSites().digests(), ThreeSites().digests()), std::nullopt);
  EXPECT_EQ(FirstDifference({}, {}), std::nullopt);
}

TEST(FirstDifference, NamesTheFirstOfSeveral) {
  const SiteLog a = ThreeSites();
  std::vector<SiteDigest> b = a.digests();
  b[1].digest = 1;
  b[2].digest = 2;
  const auto text = FirstDifference(a.digests(), b);
  ASSERT_TRUE(text.has_value());
  EXPECT_THAT(*text, StartsWith("layer 3 attn.out"));
  EXPECT_THAT(*text, HasSubstr("0000000000000001"));
  b[0].digest = 0;
  EXPECT_THAT(*FirstDifference(a.digests(), b), StartsWith("embed: "));
}

TEST(FirstDifference, OtherSiteOrLayerAtTheSamePlace) {
  const SiteLog a = ThreeSites();
  std::vector<SiteDigest> b = a.digests();
  b[1].layer = 4;
  EXPECT_THAT(*FirstDifference(a.digests(), b), HasSubstr("layer 4 attn.out"));
  b[1] = a.digests()[1];
  b[1].site = "gdn.out";
  EXPECT_THAT(*FirstDifference(a.digests(), b), HasSubstr("layer 3 gdn.out"));
}

TEST(FirstDifference, LengthDifferenceNamesTheExtraSite) {
  const SiteLog a = ThreeSites();
  const std::span<const SiteDigest> whole = a.digests();
  EXPECT_THAT(*FirstDifference(whole, whole.first(2)), HasSubstr("layer 3 mlp.out: only in the first log"));
  EXPECT_THAT(*FirstDifference(whole.first(1), whole), HasSubstr("layer 3 attn.out: only in the second log"));
}

}  // namespace
}  // namespace trivet::record
