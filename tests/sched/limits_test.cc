// SPDX-License-Identifier: Apache-2.0
#include "sched/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::sched {
namespace {

TEST(Validate, NamesTheLimitThatIsTooSmall) {
  SchedulerLimits least;
  EXPECT_TRUE(Validate(least).ok());
  const struct {
    const char* name;
    int32_t SchedulerLimits::*limit;
  } rows[] = {
      {"max_sequences", &SchedulerLimits::max_sequences},     {"max_step_tokens", &SchedulerLimits::max_step_tokens},
      {"prefill_chunk", &SchedulerLimits::prefill_chunk},     {"prefill_budget", &SchedulerLimits::prefill_budget},
      {"max_logits_rows", &SchedulerLimits::max_logits_rows}, {"pages", &SchedulerLimits::pages},
      {"max_context", &SchedulerLimits::max_context},         {"snapshots", &SchedulerLimits::snapshots}};
  for (const auto& row : rows) {
    SchedulerLimits limits = least;
    limits.*row.limit -= 1;
    ASSERT_FALSE(Validate(limits).ok()) << row.name;
    EXPECT_THAT(Validate(limits).error().message, ::testing::HasSubstr(row.name));
  }
  least.max_sequences = 4;
  least.max_step_tokens = 3;
  EXPECT_THAT(Validate(least).error().message, ::testing::HasSubstr("max_step_tokens: expected at least 4, found 3"));
}

}  // namespace
}  // namespace trivet::sched
