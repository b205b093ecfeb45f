// SPDX-License-Identifier: Apache-2.0
#include "plan/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace trivet::plan {
namespace {

using ::testing::HasSubstr;

RopeRule Rule(const char* json, int64_t dim = 8, int64_t positions = 256) {
  Result<RopeRule> rule = MakeRopeTable(Json::parse(json), {dim, positions});
  CHECK_MSG(rule.ok(), rule.error().message);
  return std::move(rule).value();
}

void ExpectFrequencies(const RopeRule& rule, const std::vector<double>& expected) {
  ASSERT_EQ(rule.table.frequencies.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(rule.table.frequencies[i], expected[i], 1e-6 * expected[i]) << i;
  }
}

TEST(Rope, DefaultIsAGeometricSeries) {
  const RopeRule rule = Rule(R"({"rope_theta": 10000})");
  ExpectFrequencies(rule, {1, 0.1, 0.01, 0.001});
  EXPECT_EQ(rule.table.scale, 1);
  EXPECT_EQ(rule.max_positions, 256);
}

TEST(Rope, LinearStretchesAll) {
  ExpectFrequencies(Rule(R"({"rope_type": "linear", "rope_theta": 10000, "factor": 4})"),
                    {0.25, 0.025, 0.0025, 0.00025});
}

TEST(Rope, DynamicIsTheDefaultWithinTheContext) {
  ExpectFrequencies(Rule(R"({"rope_type": "dynamic", "rope_theta": 10000, "factor": 4})"), {1, 0.1, 0.01, 0.001});
}

TEST(Rope, Llama3KeepsShortStretchesLongAndBlendsBetween) {
  // Wavelengths 6.3, 63, 628 and 6283 against 64 / 4 and 64 / 1.
  const RopeRule rule = Rule(R"({"rope_type": "llama3", "rope_theta": 10000, "factor": 8, "low_freq_factor": 1,
                                 "high_freq_factor": 4, "original_max_position_embeddings": 64})");
  const double blend = (64 / (2 * M_PI / 0.1) - 1) / 3;
  ExpectFrequencies(rule, {1, (1 - blend) * 0.1 / 8 + blend * 0.1, 0.01 / 8, 0.001 / 8});
}

TEST(Rope, YarnRampsBetweenItsTurns) {
  const char* text = R"({"rope_type": "yarn", "rope_theta": 10000, "factor": 4, "beta_fast": 4, "beta_slow": 1,
                         "original_max_position_embeddings": 64})";
  // Channels with 4 turns and 1 turn: 8 ln(64 / (2 pi r)) / (2 ln 10000) = 0.405 and 1.008, so the ramp goes from 0
  // to 2.
  const RopeRule rule = Rule(text);
  ExpectFrequencies(rule, {1, 0.1 * (0.5 / 4 + 0.5), 0.01 / 4, 0.001 / 4});
  EXPECT_NEAR(rule.table.scale, 0.1 * std::log(4.0) + 1, 1e-6);
  Json rope = Json::parse(text);
  rope["truncate"] = false;
  const double low = 8 * std::log(64 / (8 * M_PI)) / (2 * std::log(1e4));
  const double high = 8 * std::log(64 / (2 * M_PI)) / (2 * std::log(1e4));
  const double ramp = (1 - low) / (high - low);
  EXPECT_NEAR(MakeRopeTable(rope, {8, 256})->table.frequencies[1], 0.1 * (ramp / 4 + 1 - ramp), 1e-6);
  rope["mscale"] = 0.7;
  rope["mscale_all_dim"] = 1.0;
  EXPECT_NEAR(MakeRopeTable(rope, {8, 256})->table.scale, (0.07 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1), 1e-6);
  rope["attention_factor"] = 1.5;
  EXPECT_EQ(MakeRopeTable(rope, {8, 256})->table.scale, 1.5F);
  // Without a factor it is the ratio of the contexts.
  rope.erase("factor");
  EXPECT_NEAR(MakeRopeTable(rope, {8, 256})->table.frequencies[3], 0.001 / 4, 1e-9);
}

TEST(Rope, LongRopeServesTheOriginalContext) {
  const RopeRule rule = Rule(R"({"rope_type": "longrope", "rope_theta": 10000, "short_factor": [1, 2, 4, 8],
                                 "long_factor": [9, 9, 9, 9], "original_max_position_embeddings": 64})");
  ExpectFrequencies(rule, {1, 0.05, 0.0025, 0.000125});
  EXPECT_EQ(rule.max_positions, 64);
  EXPECT_NEAR(rule.table.scale, std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-6);
}

struct BadCase {
  const char* rope;
  Code code;
  const char* text;
};

class BadRope : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadRope, IsNamed) {
  const Result<RopeRule> rule = MakeRopeTable(Json::parse(GetParam().rope), {8, 256});
  ASSERT_FALSE(rule.ok());
  EXPECT_EQ(rule.error().code, GetParam().code);
  EXPECT_THAT(rule.error().message, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Rope, BadRope,
    ::testing::Values(
        BadCase{R"({"rope_type": "spiral", "rope_theta": 2})", Code::kUnsupported, "spiral"},
        BadCase{R"({"rope_theta": 0})", Code::kInvalid, "rope_theta"}, BadCase{R"({})", Code::kInvalid, "rope_theta"},
        BadCase{R"({"rope_theta": 1})", Code::kInvalid, "rope_theta"},
        BadCase{R"({"rope_type": "linear", "rope_theta": 2})", Code::kInvalid, "factor"},
        BadCase{R"({"rope_type": "linear", "rope_theta": 2, "factor": -1})", Code::kInvalid, "factor"},
        BadCase{R"({"rope_type": "llama3", "rope_theta": 2, "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4})",
                Code::kInvalid, "high_freq_factor"},
        BadCase{R"({"rope_type": "yarn", "rope_theta": 2, "original_max_position_embeddings": 0})", Code::kInvalid,
                "original_max_position_embeddings"},
        BadCase{R"({"rope_type": "longrope", "rope_theta": 2})", Code::kInvalid, "short_factor"},
        BadCase{R"({"rope_type": "longrope", "rope_theta": 2, "short_factor": [1, 1, 0, 1]})", Code::kInvalid,
                "short_factor"},
        BadCase{R"({"rope_type": "longrope", "rope_theta": 2, "short_factor": [1]})", Code::kInvalid, "short_factor"}));

}  // namespace
}  // namespace trivet::plan
