// SPDX-License-Identifier: Apache-2.0
#include "engine/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <type_traits>

#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

using testing::HasSubstr;

class Limits : public testing::Test {
 protected:
  Result<sched::SchedulerLimits> Make(const EngineOptions& options) const {
    const Result<plan::Layout> layout = plan::MakeLayout(small_.model().geometry, options.layout);
    CHECK(layout.ok());
    return MakeLimits(small_.model().geometry, *layout, options);
  }
  // The message of a kUsage refusal.
  std::string Refusal(const EngineOptions& options) const {
    const Result<sched::SchedulerLimits> limits = Make(options);
    if (limits.ok()) return "accepted";
    EXPECT_EQ(limits.error().code, Code::kUsage);
    return limits.error().message;
  }

  const SmallModel small_;
};

TEST_F(Limits, ZerosMeanWhatTheModelWasMadeFor) {
  const Result<sched::SchedulerLimits> limits = Make({});
  ASSERT_TRUE(limits.ok()) << limits.error().message;
  EXPECT_EQ(limits->max_context, small_.model().geometry.max_positions);
  EXPECT_EQ(limits->max_sequences, 32);
  EXPECT_EQ(limits->prefill_chunk, 512);
  EXPECT_EQ(limits->pages, 32 * 512 / sched::kPageTokens);
  EXPECT_GE(limits->max_logits_rows, limits->max_sequences);
  EXPECT_TRUE(sched::Validate(*limits).ok());
}

TEST_F(Limits, OptionsAreTaken) {
  EngineOptions options;
  options.max_context = 100;
  options.max_sequences = 3;
  options.prefill_chunk = 1;
  options.kv_tokens = 129;
  options.prefill_budget = 17;
  const Result<sched::SchedulerLimits> limits = Make(options);
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ(limits->max_context, 100);
  EXPECT_EQ(limits->max_sequences, 3);
  EXPECT_EQ(limits->prefill_chunk, 1);
  EXPECT_EQ(limits->prefill_budget, 17);
  EXPECT_EQ(limits->pages, 3);
}

TEST_F(Limits, TheCacheBoundsTheContext) {
  EngineOptions options;
  options.kv_tokens = 64;
  const Result<sched::SchedulerLimits> limits = Make(options);
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ(limits->max_context, 64);
}

TEST_F(Limits, ValuesOutOfRangeAreRefusedByName) {
  const auto refusal = [&](auto EngineOptions::*member, int64_t value) {
    EngineOptions options;
    options.*member = static_cast<std::remove_reference_t<decltype(options.*member)>>(value);
    return Refusal(options);
  };
  for (const int64_t value : {int64_t{-1}, int64_t{513}, INT64_MAX}) {
    EXPECT_THAT(refusal(&EngineOptions::max_context, value), HasSubstr("--max-model-len: expected 1 to 512, found "));
  }
  for (const int64_t value : {int64_t{-1}, int64_t{0}, int64_t{4097}, INT64_MAX}) {
    EXPECT_THAT(refusal(&EngineOptions::max_sequences, value), HasSubstr("--max-num-seqs: expected 1 to 4096, found "));
  }
  for (const int64_t value : {int64_t{-5}, int64_t{0}, INT64_MAX}) {
    EXPECT_THAT(refusal(&EngineOptions::prefill_chunk, value), HasSubstr("--prefill-chunk: expected 1 to "));
  }
  for (const int64_t value : {-1, 1025}) {
    EXPECT_THAT(refusal(&EngineOptions::threads, value), HasSubstr("--threads: expected 0 to 1024, found "));
  }
  for (const int64_t value : {int64_t{-1}, INT64_MAX}) {
    EXPECT_THAT(refusal(&EngineOptions::kv_tokens, value), HasSubstr("--kv-tokens: expected 1 to "));
  }
}

TEST(ThreadsPerRank, SharesTheCores) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  EXPECT_EQ(ThreadsPerRank({}, 1), std::max<int64_t>(1, cores));
  EXPECT_EQ(ThreadsPerRank({}, cores), 1);
  EXPECT_EQ(ThreadsPerRank({}, 16 * cores), 1);
  EngineOptions options;
  options.threads = 3;
  EXPECT_EQ(ThreadsPerRank(options, 8), 3);
}

}  // namespace
}  // namespace trivet::engine
