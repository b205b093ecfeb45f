// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(ShardIndex, MapsNamesToShards) {
  const auto index = ParseShardIndex(
      R"({"metadata":{"total_size":12.0,"other":[1]},"weight_map":{"z":"m-2.safetensors","b":"m-1.safetensors",)"
      R"("a":"m-2.safetensors"}})",
      "index");
  ASSERT_TRUE(index.ok()) << index.error().message;
  EXPECT_THAT(index->shards, ElementsAre("m-1.safetensors", "m-2.safetensors"));
  EXPECT_THAT(index->weight_map, ElementsAre(Pair("a", 1), Pair("b", 0), Pair("z", 1)));
  EXPECT_EQ(index->total_size, 12.0);
}

TEST(ShardIndex, TotalSizeIsOptional) {
  EXPECT_FALSE(ParseShardIndex(R"({"weight_map":{}})", "index")->total_size.has_value());
  EXPECT_FALSE(ParseShardIndex(R"({"weight_map":{},"metadata":{}})", "index")->total_size.has_value());
}

TEST(ShardIndex, RefusesEachDefectWithItsOwnMessage) {
  const std::pair<std::string, std::string> defects[] = {
      {"{", "expected valid JSON"},
      {"[]", "expected \"weight_map\", found none"},
      {R"({"weight_map":[]})", "\"weight_map\" to be an object, found array"},
      {R"({"weight_map":{"a":1}})", "a file name for tensor \"a\", found number"},
      {R"({"weight_map":{"a":"x","a":"y"}})", "duplicate key"},
      {R"({"weight_map":{"a":"../x"}})", "file name without path for tensor \"a\", found \"../x\""},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "found \"/etc/passwd\""},
      {R"({"weight_map":{"a":"d\\x"}})", "found \"d\\x\""},
      {R"({"weight_map":{"a":".."}})", "found \"..\""},
      {R"({"weight_map":{"a":"."}})", "found \".\""},
      {R"({"weight_map":{"a":""}})", "found \"\""},
      {R"({"weight_map":{"a":"x\u0000y"}})", "found \"x\\x00y\""},
      {R"({"weight_map":{},"metadata":{"total_size":"12"}})", "\"metadata.total_size\" to be a number, found string"},
  };
  for (const auto& [json, message] : defects) {
    const auto index = ParseShardIndex(json, "the index");
    ASSERT_FALSE(index.ok()) << json;
    EXPECT_EQ(index.error().code, Code::kInvalid);
    EXPECT_THAT(index.error().message, HasSubstr("the index"));
    EXPECT_THAT(index.error().message, HasSubstr(message));
  }
}

}  // namespace
}  // namespace trivet::checkpoint
