// SPDX-License-Identifier: Apache-2.0
#include "engine/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <type_traits>

#include "engine/plan_facts.h"
#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

using testing::HasSubstr;

class Limits : public testing::Test {
 protected:
  Result<EngineSizes> Size(const EngineOptions& options, int64_t available = int64_t{1} << 40) const {
    const plan::Geometry& geometry = small_.model().geometry;
    const Result<plan::Layout> layout = plan::MakeLayout(geometry, options.layout);
    CHECK(layout.ok());
    const plan::LayoutCost cost = plan::PriceLayout(geometry, *layout, BytesOf(small_.model(), options.kv_dtype));
    return MakeSizes(geometry, *layout, cost, options, available);
  }
  Result<sched::SchedulerLimits> Make(const EngineOptions& options) const {
    const Result<EngineSizes> sizes = Size(options);
    if (!sizes.ok()) return sizes.error();
    return sizes->limits;
  }
  // The message of a kCapacity refusal on a machine of `available` bytes.
  std::string TooMuch(const EngineOptions& options, int64_t available) const {
    const Result<EngineSizes> sizes = Size(options, available);
    if (sizes.ok()) return "accepted";
    EXPECT_EQ(sizes.error().code, Code::kCapacity);
    return sizes.error().message;
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

TEST_F(Limits, RecordedAndForcedRunsHaveNoPrefixCache) {
  EngineOptions options;
  options.prefix_cache = true;
  EXPECT_TRUE(Make(options)->prefix_cache);
  EngineOptions recorded = options, forced = options;
  recorded.proof.level = record::Level::kDigest;
  EXPECT_FALSE(Make(recorded)->prefix_cache);
  forced.routes = "routes.safetensors";
  EXPECT_FALSE(Make(forced)->prefix_cache);
}

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

TEST_F(Limits, ContextAndCacheThatContradictEachOtherAreRefused) {
  EngineOptions options;
  options.max_context = 200;
  options.kv_tokens = 128;
  EXPECT_THAT(TooMuch(options, int64_t{1} << 40),
              HasSubstr("--kv-tokens: expected at least the 200 of --max-model-len"));
}

TEST_F(Limits, MemoryIsAddedUp) {
  EngineOptions options;
  options.layout.ranks = 3;
  options.prefix_cache = true;
  const plan::MemoryPlan memory = Size(options).value().memory;
  ASSERT_EQ(memory.ranks.size(), 3U);
  for (const plan::RankMemory& rank : memory.ranks) {
    EXPECT_TRUE(rank.weights > 0 && rank.scratch > 0);  // where heads are few, a rank may hold no other thing
    EXPECT_EQ(rank.snapshots, 2 * rank.states) << "two for each sequence";
  }
  EXPECT_TRUE(memory.ranks[0].kv > 0 && memory.ranks[0].states > 0);
  EXPECT_EQ(memory.kv_tokens, 32 * 512);
  EXPECT_EQ(memory.context, 512);
  EXPECT_EQ(memory.snapshots, 64);
  EXPECT_LE(memory.total(), memory.budget);
}

// On ever larger machines: first what has to fit does not, then the cache grows with the budget and never beyond it.
TEST_F(Limits, TheCacheTakesWhatIsLeftOfTheBudget) {
  EngineOptions options;
  options.prefix_cache = true;
  options.memory_fraction = 0.5;
  const plan::MemoryPlan whole = Size(options).value().memory;
  const plan::RankMemory& most = whole.ranks[0];
  EXPECT_THAT(TooMuch(options, most.weights + most.scratch), HasSubstr("memory: expected at most "));
  const int64_t fixed = most.weights + most.scratch + most.states;
  int64_t before = 0;
  for (int64_t extra = most.kv / 16; extra < most.kv * 2; extra += most.kv / 3) {
    const Result<EngineSizes> sizes = Size(options, 2 * (fixed + extra));
    ASSERT_TRUE(sizes.ok()) << sizes.error().message;
    EXPECT_LE(sizes->memory.total(), sizes->memory.budget);
    EXPECT_GE(sizes->memory.kv_tokens, before);
    EXPECT_EQ(sizes->memory.kv_tokens, int64_t{sizes->limits.pages} * sched::kPageTokens);
    before = sizes->memory.kv_tokens;
  }
  EXPECT_EQ(before, whole.kv_tokens);
}

TEST_F(Limits, Fp8HoldsMoreTokensOnEveryBackend) {
  EngineOptions options, fp8;
  fp8.kv_dtype = cache::KvDtype::kE4M3;
  const plan::RankMemory plain = Size(options).value().memory.ranks[0];
  const int64_t head_dim = small_.model().geometry.attention.head_dim;
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    fp8.backend = backend;
    EXPECT_EQ(Size(fp8).value().memory.ranks[0].kv * 4 * head_dim, plain.kv * (head_dim + 1)) << BackendName(backend);
  }
}

TEST_F(Limits, WhatIsPinnedFitsOrIsRefusedWithTheNumbers) {
  EngineOptions options;
  options.prefix_cache = true;
  const plan::RankMemory most = Size(options).value().memory.ranks[0];
  const int64_t machine = (most.weights + most.scratch + most.states + most.kv / 40) * 5 / 4;
  EngineOptions pinned = options;
  pinned.kv_tokens = 32 * 512;
  EXPECT_THAT(TooMuch(pinned, machine), testing::AllOf(HasSubstr("--kv-tokens: expected at most "),
                                                       HasSubstr("0.8 of "), HasSubstr("found 16384")));
  pinned = options;
  pinned.snapshot_slots = 4000;
  EXPECT_THAT(TooMuch(pinned, machine), HasSubstr("--snapshot-slots: expected at most "));
  pinned = options;
  pinned.max_context = 512;
  EXPECT_THAT(TooMuch(pinned, machine), HasSubstr("--max-model-len: expected at most "));
  const Result<EngineSizes> free = Size(options, machine);
  ASSERT_TRUE(free.ok()) << free.error().message;
  EXPECT_LT(free->limits.max_context, 512) << "the model's context is no promise";
}

TEST_F(Limits, SnapshotsAreForPrefixesOfModelsWithStates) {
  EXPECT_EQ(Size({}).value().limits.snapshots, 0);
  EngineOptions options;
  options.prefix_cache = true;
  options.snapshot_slots = 5;
  EXPECT_EQ(Size(options).value().limits.snapshots, 5);
  options.snapshot_slots = 0;
  EXPECT_EQ(Size(options).value().limits.snapshots, 0);
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
  EXPECT_THAT(refusal(&EngineOptions::prefill_budget, -1), HasSubstr("--prefill-budget: expected 0 to "));
  EXPECT_THAT(refusal(&EngineOptions::snapshot_slots, -2), HasSubstr("--snapshot-slots: expected 0 to 4096"));
  for (const double value : {0.0, -1.0, 1.01, std::nan("")}) {
    EngineOptions options;
    options.memory_fraction = value;
    EXPECT_THAT(Refusal(options), HasSubstr("--memory-fraction: expected more than 0, at most 1, found "));
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
