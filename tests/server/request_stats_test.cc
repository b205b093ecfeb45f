// SPDX-License-Identifier: Apache-2.0
#include "server/request_stats.h"

#include <gtest/gtest.h>

namespace trivet::server {
namespace {

EndedAnswer Answer(int64_t tokens) {
  EndedAnswer answer;
  answer.prompt_tokens = 7;
  answer.tokens = tokens;
  answer.finish = "stop";
  answer.times = {1000000, 1250000, 1500000, 2500000};
  return answer;
}

TEST(RequestStats, CountsEveryQuantityUnderBothNames) {
  RequestStats stats("m");
  stats.Add(Answer(11));
  EndedAnswer none = Answer(0);  // no token: only a prompt
  none.times.first_us = 0;
  stats.Add(none);
  const auto families = stats.Collect();
  EXPECT_EQ(families.size(), 10U);
  for (const prometheus::MetricFamily& family : families) {
    ASSERT_EQ(family.metric.size(), 1U);
    EXPECT_EQ(family.metric[0].label[0].value, "m");
    EXPECT_EQ(family.metric[0].histogram.sample_count, 1U) << family.name;
    const double sum = family.metric[0].histogram.sample_sum;
    if (family.name == "trivet_request_queue_seconds") {
      EXPECT_DOUBLE_EQ(sum, 0.25);
    }
    if (family.name == "vllm:time_to_first_token_seconds") {
      EXPECT_DOUBLE_EQ(sum, 0.5);
    }
    if (family.name == "vllm:time_per_output_token_seconds") {
      EXPECT_DOUBLE_EQ(sum, 0.1);
    }
    if (family.name == "vllm:e2e_request_latency_seconds") {
      EXPECT_DOUBLE_EQ(sum, 1.5);
    }
  }
}

// One token has a time to it and none after it.
TEST(RequestStats, AnAnswerOfOneTokenSaysNothingOfTimePerToken) {
  RequestStats stats("m");
  stats.Add(Answer(1));
  for (const prometheus::MetricFamily& family : stats.Collect()) {
    const bool per_token = family.name.ends_with("time_per_output_token_seconds");
    EXPECT_EQ(family.metric[0].histogram.sample_count, per_token ? 0U : 1U) << family.name;
  }
}

TEST(RequestStats, RemembersTheLatest) {
  RequestStats stats("m");
  for (int64_t i = 0; i < 50; ++i) stats.Add(Answer(i));
  const Json recent = stats.Recent();
  EXPECT_EQ(recent.size(), kRecentAnswers);
  EXPECT_EQ(recent[0]["predicted_n"], 49);
  EXPECT_EQ(recent[0]["finish_reason"], "stop");
}

TEST(TimingsJson, MillisecondsAndRates) {
  const Json timings = TimingsJson(Answer(11));
  EXPECT_EQ(timings, (Json{{"queue_ms", 250.0},
                           {"prompt_n", 7},
                           {"prompt_ms", 250.0},
                           {"predicted_n", 11},
                           {"predicted_ms", 1000.0},
                           {"predicted_per_second", 10.0}}));
  EXPECT_EQ(TimingsJson(EndedAnswer())["predicted_per_second"], 0);
}

}  // namespace
}  // namespace trivet::server
