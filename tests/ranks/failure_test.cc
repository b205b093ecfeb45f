// SPDX-License-Identifier: Apache-2.0
// A rank that dies or hangs: within two seconds the run ends with an error that names it, nothing stays behind, and the
// same process can start over.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "tests/ranks/child_processes.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

using engine::Engine;
using engine::Launch;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kLimitS = 2.0;
constexpr int64_t kFaultStep = 3;

double SecondsSince(int64_t begin_us) { return static_cast<double>(NowUs() - begin_us) * 1e-6; }

engine::EngineOptions ThreeRanks(Launch launch) {
  engine::EngineOptions options;
  options.layout.ranks = 3;
  options.launch = launch;
  options.prefill_chunk = 8;  // ten steps for eighty tokens
  return options;
}

class Failure : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_THAT(ChildProcesses(), IsEmpty());
    // A fresh engine in the same process works, and gives what one rank gives.
    const support::TokenSet set = {support::RandomTokens(10, model_.geometry.vocab, 1)};
    const Result<std::vector<float>> one = support::Logits(model_, {}, set);
    const Result<std::vector<float>> three = support::Logits(model_, ThreeRanks(Launch::kProcesses), set);
    ASSERT_TRUE(one.ok() && three.ok());
    EXPECT_EQ(support::FirstDifference(*one, *three, model_.geometry.vocab), "");
    EXPECT_THAT(ChildProcesses(), IsEmpty());
  }

  // Steps until an error comes, and tells it; `begin_us` is when the step that failed began.
  Error StepToError(Engine* engine, const std::function<void(int64_t step)>& after_step, int64_t* begin_us) {
    sched::Request request;
    request.id = SeqId{0};
    request.prompt = support::RandomTokens(80, model_.geometry.vocab, 2);
    CHECK(engine->Submit(request).ok());
    for (int64_t step = 0;; ++step) {
      *begin_us = NowUs();
      const Result<bool> stepped = engine->Step([](const sched::Span&, const engine::SpanOutput&, bool) {
        return Result<std::optional<TokenId>>(std::optional<TokenId>());
      });
      if (!stepped.ok()) return stepped.error();
      CHECK_MSG(*stepped, "the request ended without an error");
      after_step(step);
    }
  }

  // Ends the engine and says how long it took.
  static double EndEngine(std::unique_ptr<Engine> engine) {
    const int64_t begin = NowUs();
    engine.reset();
    return SecondsSince(begin);
  }

  const engine::OpenedModel model_ = support::Open(DemoDir());
};

class PlantedFailure : public Failure,
                       public testing::WithParamInterface<std::tuple<comm::FaultKind, Launch, int64_t>> {
 protected:
  // A run with the fault ends in time with an error that names its rank.
  void ExpectEnd(engine::EngineOptions options, const comm::Fault& fault) {
    options.fault = fault;
    auto engine = Engine::Start(model_, options, {});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    int64_t begin = 0;
    const Error error = StepToError(
        engine->get(), [](int64_t) {}, &begin);
    EXPECT_EQ(error.code, Code::kPeer);
    EXPECT_THAT(error.message, HasSubstr(fmt::format("rank {}: ", fault.rank)));
    EXPECT_THAT(error.message, HasSubstr(fault.kind == comm::FaultKind::kDie ? "planted fault" : "hangs"));
    EXPECT_LT(SecondsSince(begin), kLimitS);
    EXPECT_LT(EndEngine(std::move(engine).value()), kLimitS);
  }
};

TEST_P(PlantedFailure, EndsTheRunInTime) {
  const auto [kind, launch, rank] = GetParam();
  engine::EngineOptions options = ThreeRanks(launch);
  options.fault = {kind, rank, 0, kFaultStep};
  auto engine = Engine::Start(model_, options, {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  int64_t begin = 0, last_step = -1;
  const Error error = StepToError(
      engine->get(), [&](int64_t step) { last_step = step; }, &begin);
  const double seconds = SecondsSince(begin);
  EXPECT_EQ(last_step, kFaultStep - 1);
  EXPECT_EQ(error.code, Code::kPeer);
  EXPECT_THAT(error.message, HasSubstr(fmt::format("rank {}: ", rank)));
  EXPECT_THAT(error.message, HasSubstr(kind == comm::FaultKind::kDie ? "planted fault" : "hangs"));
  EXPECT_LT(seconds, kLimitS);
  const double end_seconds = EndEngine(std::move(engine).value());
  EXPECT_LT(end_seconds, kLimitS);
  std::printf("%.2f s to the error, %.2f s to end: %s\n", seconds, end_seconds, error.message.c_str());
}

INSTANTIATE_TEST_SUITE_P(Kinds, PlantedFailure,
                         testing::Combine(testing::Values(comm::FaultKind::kDie, comm::FaultKind::kHang),
                                          testing::Values(Launch::kThreads, Launch::kProcesses),
                                          testing::Values(0, 1, 2)));

// Two replicas of two stages: everybody waits for others, and the one that failed is named.
TEST_P(PlantedFailure, OfAnyStageOrReplicaEndsTheRunInTime) {
  const auto [kind, launch, rank] = GetParam();
  engine::EngineOptions options = ThreeRanks(launch);
  options.layout.ranks = 1;
  options.layout.stages = 2;
  options.layout.replicas = 2;
  ExpectEnd(options, {kind, rank + 1, 0, kFaultStep});
}

// The others wait for what the rank that failed has of the step.
TEST_P(PlantedFailure, OfAnyShareEndsTheRunInTime) {
  const auto [kind, launch, rank] = GetParam();
  engine::EngineOptions options = ThreeRanks(launch);
  options.layout.ranks = 2;
  options.layout.context = 2;
  options.layout.context_stretch = 4;
  ExpectEnd(options, {kind, rank + 1, 0, kFaultStep});
  options.layout.sequence_parallel = true;
  ExpectEnd(options, {kind, rank + 1, 0, kFaultStep});
}

// A signal from outside, between two steps.
class SignalledFailure : public Failure, public testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(SignalledFailure, EndsTheRunInTime) {
  const auto [signal, rank] = GetParam();
  auto engine = Engine::Start(model_, ThreeRanks(Launch::kProcesses), {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const std::vector<int> children = ChildProcesses();
  ASSERT_EQ(children.size(), 2U);
  const int victim = children[static_cast<size_t>(rank - 1)];
  int64_t begin = 0;
  const Error error = StepToError(
      engine->get(),
      [&, which = signal](int64_t step) {
        if (step == kFaultStep) ::kill(victim, which);
      },
      &begin);
  const double seconds = SecondsSince(begin);
  EXPECT_EQ(error.code, Code::kPeer);
  EXPECT_THAT(error.message, HasSubstr(fmt::format("rank {}: ", rank)));
  EXPECT_THAT(error.message,
              HasSubstr(signal == SIGKILL ? fmt::format("process {} to run, found it killed by signal 9", victim)
                                          : std::string("hangs")));
  EXPECT_LT(seconds, kLimitS);
  EXPECT_LT(EndEngine(std::move(engine).value()), kLimitS);
  std::printf("%.2f s to the error: %s\n", seconds, error.message.c_str());
}

INSTANTIATE_TEST_SUITE_P(Signals, SignalledFailure,
                         testing::Combine(testing::Values(SIGKILL, SIGSTOP), testing::Values(1, 2)));

// Killed while ranks load: rank 0 stops at the next piece instead of loading to the end first.
TEST_F(Failure, ARankKilledAtLoadEndsLoading) {
  for (const size_t rank : {1, 2}) {
    int64_t calls = 0, killed = 0, all = 0, loaded = 0;
    const auto engine = Engine::Start(model_, ThreeRanks(Launch::kProcesses), [&](int64_t done, int64_t total) {
      loaded = done;
      all = total;
      if (calls++ > 0) return;
      const std::vector<int> children = ChildProcesses();
      ASSERT_EQ(children.size(), 2U);
      ::kill(children[rank - 1], SIGKILL);
      ::usleep(100000);  // until it is dead
      killed = NowUs();
    });
    const double seconds = SecondsSince(killed);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.error().code, Code::kPeer);
    EXPECT_THAT(engine.error().message, HasSubstr(fmt::format("rank {}: ", rank)));
    EXPECT_THAT(engine.error().message, HasSubstr("killed by signal 9"));
    EXPECT_LT(loaded, all / 2) << "rank 0 went on loading";
    EXPECT_LT(seconds, kLimitS);
    EXPECT_THAT(ChildProcesses(), IsEmpty());
  }
}

TEST_F(Failure, ARankStoppedAtLoadIsNamed) {
  // As soon as there is one: when the first rank tells of its progress, others may have loaded everything.
  int64_t stopped = 0;
  std::thread stopper([&] {
    const int64_t begin = NowUs();
    while (ChildProcesses().size() < 2 && SecondsSince(begin) < 10) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (const std::vector<int> children = ChildProcesses(); children.size() == 2) ::kill(children[1], SIGSTOP);
    stopped = NowUs();
  });
  const auto engine = Engine::Start(model_, ThreeRanks(Launch::kProcesses), {});
  stopper.join();
  const double seconds = SecondsSince(stopped);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, Code::kPeer);
  EXPECT_THAT(engine.error().message, HasSubstr("rank 2: expected progress"));
  // Waiting for the other ranks to load, noticing, and a second in which the stopped one might have ended by itself.
  EXPECT_LT(seconds, kLimitS + 1.5);
}

}  // namespace
}  // namespace trivet
