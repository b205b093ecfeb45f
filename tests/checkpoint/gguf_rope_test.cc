// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/gguf_bytes.h"
#include "tests/io/temp_dir.h"

namespace trivet::checkpoint {
namespace {

using testing::HasSubstr;

// The rule of a file with these keys under "llama.rope." and a tensor of the factors 1 and 8, or the error's message.
Json Scaling(const Json& keys, const std::string& tensor, const GgufRope& rope = {"llama."}) {
  const TempDir dir;
  std::vector<std::string> pairs = {PairText("general.architecture", "llama")}, entries;
  for (const auto& [key, value] : keys.items()) {
    const auto [type, bytes] = ValueOf(value);
    pairs.push_back(Pair("llama.rope." + key, type, bytes));
  }
  if (!tensor.empty()) entries.push_back(Entry(tensor, {2}, 0, 0));
  dir.Write("m.gguf", GgufBytes(pairs, entries, ValueOf(1.0).second + ValueOf(8.0).second));
  std::vector<std::string> notices;
  const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.Path("m.gguf"), &notices);
  CHECK(checkpoint.ok());
  const Result<Json> rule = GgufScaling(*checkpoint, rope, "FILE");
  return rule.ok() ? *rule : Json(rule.error().message);
}

TEST(GgufRope, NoneAndLinear) {
  const Json none = {{"rope_type", "default"}};
  EXPECT_EQ(Scaling(Json::object(), ""), none);
  EXPECT_EQ(Scaling({{"scaling.type", "none"}, {"scaling.factor", 4.0}}, ""), none);
  EXPECT_EQ(Scaling({{"scaling.type", "linear"}, {"scaling.factor", 1.0}}, ""), none);
  const Json linear = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(Scaling({{"scaling.type", "linear"}, {"scaling.factor", 4.0}}, ""), linear);
  EXPECT_EQ(Scaling({{"scale_linear", 4.0}}, ""), linear);
}

TEST(GgufRope, FactorsOfATensor) {
  const Json freqs = {
      {"rope_type", "longrope"}, {"short_factor", {1.0, 8.0}}, {"factor", 1.0}, {"attention_factor", 1.0}};
  EXPECT_EQ(Scaling(Json::object(), "rope_freqs.weight"), freqs);
  const Json keys = {
      {"scaling.type", "longrope"}, {"scaling.attn_factor", 1.5}, {"scaling.original_context_length", 64}};
  const Json longrope = {{"rope_type", "longrope"},
                         {"original_max_position_embeddings", 64},
                         {"short_factor", {1.0, 8.0}},
                         {"attention_factor", 1.5}};
  EXPECT_EQ(Scaling(keys, "rope_factors_short.weight"), longrope);
}

TEST(GgufRope, Yarn) {
  const Json keys = {
      {"scaling.type", "yarn"},         {"scaling.factor", 4.0},         {"scaling.original_context_length", 64},
      {"scaling.yarn_beta_fast", 16.0}, {"scaling.yarn_beta_slow", 2.0}, {"scaling.yarn_log_multiplier", 0.125}};
  const Json yarn = {
      {"truncate", false}, {"rope_type", "yarn"}, {"factor", 4.0},  {"original_max_position_embeddings", 64},
      {"beta_fast", 16.0}, {"beta_slow", 2.0},    {"mscale", 1.25}, {"mscale_all_dim", 1.25}};
  EXPECT_EQ(Scaling(keys, "", {"llama.", true, {{"truncate", false}}}), yarn);
  EXPECT_THAT(DumpJson(Scaling(keys, "")), HasSubstr("yarn_log_multiplier"));
}

TEST(GgufRope, WhatIsNotSupportedIsNamed) {
  const auto message = [](const Json& keys, const std::string& tensor) { return DumpJson(Scaling(keys, tensor)); };
  EXPECT_THAT(message({{"scaling.type", "ntk"}}, ""), HasSubstr("found ntk"));
  EXPECT_THAT(message({{"scaling.type", "longrope"}}, ""), HasSubstr("tensors of factors"));
  EXPECT_THAT(message(Json::object(), "rope_factors_short.weight"), HasSubstr("tensors of factors"));
  EXPECT_THAT(message({{"scaling.type", "yarn"}, {"scaling.factor", 4.0}}, "rope_freqs.weight"),
              HasSubstr("tensors of factors"));
  for (const char* key : {"yarn_ext_factor", "yarn_attn_factor", "attn_factor"}) {
    EXPECT_THAT(message({{"scaling.type", "yarn"}, {std::string("scaling.") + key, 0.5}}, ""), HasSubstr(key));
  }
}

}  // namespace
}  // namespace trivet::checkpoint
