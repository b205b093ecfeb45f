// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

using testing::HasSubstr;

std::unique_ptr<Engine> StartOn(const SmallModel& small, const EngineOptions& options = {}) {
  auto engine = Engine::Start(small.model(), options, {});
  CHECK_MSG(engine.ok(), engine.error().message);
  return std::move(engine).value();
}

sched::Request Prompt(int64_t id, std::vector<TokenId> tokens) {
  sched::Request request;
  request.id = SeqId{id};
  request.prompt = std::move(tokens);
  return request;
}

Result<std::optional<TokenId>> Nothing(const sched::Span&, const SpanOutput&, bool) { return std::optional<TokenId>(); }

TEST(Engine, SubmitRefusesWhatCannotRun) {
  const SmallModel small;
  EngineOptions options;
  options.max_context = 16;
  const auto engine = StartOn(small, options);
  const auto refusal = [&](std::vector<TokenId> tokens) {
    const Status status = engine->Submit(Prompt(7, std::move(tokens)));
    return status.ok() ? Error{Code::kUsage, "accepted"} : status.error();
  };
  EXPECT_EQ(refusal({-1}).code, Code::kInvalid);
  EXPECT_EQ(refusal({static_cast<TokenId>(small.vocab())}).code, Code::kInvalid);
  EXPECT_THAT(refusal({1, 999}).message, HasSubstr("expected token ids from 0 to 299, found 999"));
  EXPECT_EQ(refusal({}).code, Code::kInvalid);
  EXPECT_EQ(refusal(std::vector<TokenId>(17, 1)).code, Code::kCapacity);
  EXPECT_TRUE(engine->Submit(Prompt(7, {1})).ok());
  EXPECT_EQ(refusal({2}).code, Code::kInvalid) << "an id in use";
}

TEST(Engine, AnIdleStepDoesNothing) {
  const SmallModel small;
  const auto engine = StartOn(small);
  const Result<bool> stepped = engine->Step(Nothing);
  ASSERT_TRUE(stepped.ok());
  EXPECT_FALSE(*stepped);
}

TEST(Engine, AfterAnErrorEveryStepGivesIt) {
  const SmallModel small;
  const auto engine = StartOn(small);
  ASSERT_TRUE(engine->Submit(Prompt(0, {1, 2})).ok());
  const auto refuse = [](const sched::Span&, const SpanOutput&, bool) -> Result<std::optional<TokenId>> {
    return MakeError(Code::kInvalid, "the sink wants no more");
  };
  for (int i = 0; i < 3; ++i) {
    const Result<bool> stepped = i == 0 ? engine->Step(refuse) : engine->Step(Nothing);
    ASSERT_FALSE(stepped.ok());
    EXPECT_EQ(stepped.error().code, Code::kInvalid);
    EXPECT_EQ(stepped.error().message, "the sink wants no more");
  }
}

TEST(Engine, AfterARankDiedEveryStepSaysSo) {
  const SmallModel small;
  EngineOptions options;
  options.layout.ranks = 2;
  options.fault = {comm::FaultKind::kDie, 1, 0, 0};
  const auto engine = StartOn(small, options);
  ASSERT_TRUE(engine->Submit(Prompt(0, {1, 2})).ok());
  for (int i = 0; i < 3; ++i) {
    const Result<bool> stepped = engine->Step(Nothing);
    ASSERT_FALSE(stepped.ok());
    EXPECT_EQ(stepped.error().code, Code::kPeer);
    EXPECT_THAT(stepped.error().message, HasSubstr("rank 1: "));
  }
}

TEST(Engine, StartReportsBadOptions) {
  const SmallModel small;
  const auto code = [&](const EngineOptions& options) {
    const auto engine = Engine::Start(small.model(), options, {});
    return engine.ok() ? std::optional<Code>() : std::optional<Code>(engine.error().code);
  };
  EngineOptions options;
  options.layout.ranks = 17;
  EXPECT_EQ(code(options), Code::kUsage);
  options = {};
  options.layout.cuts["attn"] = "sideways";
  EXPECT_EQ(code(options), Code::kUsage);
  options = {};
  options.kernels.rows = "abacus";
  EXPECT_EQ(code(options), Code::kUsage);
  options = {};
  options.max_sequences = 0;
  EXPECT_EQ(code(options), Code::kUsage);
}

TEST(Engine, LoadProgressEndsAtTheTotal) {
  const SmallModel small;
  EngineOptions options;
  options.layout.ranks = 2;
  int64_t last = 0, of = -1;
  const auto engine = Engine::Start(small.model(), options, [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    of = total;
  });
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ(last, of);
  EXPECT_GT((*engine)->times().weight_bytes, 0);
  EXPECT_EQ((*engine)->layout().ranks, 2);
}

}  // namespace
}  // namespace trivet::engine
