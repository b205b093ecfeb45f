// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::server {
namespace {

using testing::HasSubstr;

TEST(Metrics, EveryCountUnderItsNames) {
  engine::ServiceCounts counts;
  counts.pages = 8;
  counts.scheduler.free_pages = 6;
  counts.scheduler.running = 3;
  counts.scheduler.waiting = 4;
  counts.requests = 10;
  counts.prompt_tokens = 100;
  counts.generated_tokens = 200;
  counts.memory.ranks = {{}, {1, 2, 3, 4, 5}};
  counts.memory.kv_tokens = 640;
  counts.times.forward_us = 2500000;
  counts.scheduler.prefix_hits = 5;
  counts.scheduler.prefix_hit_tokens = 320;
  const std::string text = MetricsText(counts, "a \"b\"");
  EXPECT_THAT(text, HasSubstr("# TYPE trivet_requests_running gauge\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE trivet_requests_total counter\n"));
  const std::string label = "{model_name=\"a \\\"b\\\"\"} ";
  for (const std::string& line :
       {"trivet_requests_running" + label + "3\n", "vllm:num_requests_waiting" + label + "4\n",
        "vllm:kv_cache_usage_perc" + label + "0.25\n", "trivet_requests_total" + label + "10\n",
        "vllm:prompt_tokens_total" + label + "100\n", "vllm:generation_tokens_total" + label + "200\n",
        "trivet_forward_seconds_total" + label + "2.5\n", "trivet_prefix_cache_hits_total" + label + "5\n",
        "vllm:prefix_cache_hits_total" + label + "320\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, HasSubstr("trivet_kv_cache_tokens" + label + "640\n"));
  EXPECT_THAT(text, HasSubstr("rank=\"1\",for=\"snapshots\"} 4\n"));
}

}  // namespace
}  // namespace trivet::server
