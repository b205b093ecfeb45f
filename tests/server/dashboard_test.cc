// SPDX-License-Identifier: Apache-2.0
#include "server/dashboard.h"

#include <gtest/gtest.h>

#include <string>

namespace trivet::server {
namespace {

TEST(Dashboard, ThePageAsksNobodyElse) {
  const std::string page(DashboardPage());
  EXPECT_EQ(page.find("<!DOCTYPE html>"), 0U);
  EXPECT_NE(page.find("</html>"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
  for (size_t at = 0; (at = page.find("http://", at)) != std::string::npos; ++at) {
    EXPECT_EQ(page.compare(at, 26, "http://www.w3.org/2000/svg"), 0);  // a name, not an address
  }
}

TEST(Dashboard, ShowsLoadMemoryAndTimes) {
  engine::ServiceCounts counts;
  counts.scheduler.running = 3;
  counts.scheduler.free_pages = 4;
  counts.pages = 10;
  counts.times.forward_us = 100;
  counts.times.collective_us = {10, 20};
  counts.memory.ranks.resize(2);
  const Json facts = DashboardJson(counts);
  EXPECT_EQ(facts["running"], 3);
  EXPECT_EQ(facts["kv"], (Json{{"pages", 10}, {"used", 6}}));
  EXPECT_EQ(facts["times"]["collective_us"], (Json{10, 20}));
  EXPECT_EQ(facts["memory"]["ranks"].size(), 2U);
}

}  // namespace
}  // namespace trivet::server
