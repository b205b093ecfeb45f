// SPDX-License-Identifier: Apache-2.0
#include "engine/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "base/clock.h"
#include "engine/prompts.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

using testing::HasSubstr;

constexpr int64_t kSecond = 1000000;

// A service on the demo model that a thread of the test runs.
class Serving : public testing::Test {
 protected:
  void Start(const EngineOptions& options, int64_t piece_interval_us = Service::kPieceIntervalUs) {
    auto engine = Engine::Start(model_, options, {});
    CHECK_MSG(engine.ok(), engine.error().message);
    engine_ = std::move(engine).value();
    service_ =
        std::make_unique<Service>(engine_.get(), &prompts_.tokenizer(), model_.files.stop_tokens, piece_interval_us);
    runner_ = std::thread([this] { ran_ = service_->Run(); });
  }

  // Waits for the runner and returns what Run returned.
  Status Join() {
    runner_.join();
    return ran_;
  }

  ~Serving() override {
    if (!runner_.joinable()) return;
    service_->Drain(0);
    runner_.join();
  }

  GenerationRequest Asking(const std::string& question, int64_t max_tokens) const {
    GenerationRequest request;
    request.prompt = prompts_.EncodeChat({{"messages", {{{"role", "user"}, {"content", question}}}}}).value();
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    return request;
  }

  // A request that runs for the whole context.
  GenerationRequest Endless() const {
    GenerationRequest request = Asking("Count from 1 to 9.", 1900);
    request.ignore_eos = true;
    return request;
  }

  // Texts of all requests of one reader, or the error.
  Result<std::vector<std::string>> ReadAll(Answers* answers, size_t count) const {
    std::vector<std::string> texts(count);
    for (size_t ended = 0; ended < count;) {
      TRY_ASSIGN(const std::vector<Piece> pieces, answers->Read(10 * kSecond));
      if (pieces.empty()) return MakeError(Code::kDiffers, "nothing came for ten seconds");
      for (const Piece& piece : pieces) {
        texts[piece.request] += piece.text;
        ended += piece.finish != FinishReason::kNone;
      }
    }
    return texts;
  }

  // Whether counts() comes to satisfy `done` within some seconds.
  bool Becomes(const std::function<bool(const ServiceCounts&)>& done) const {
    for (const int64_t until = NowUs() + 10 * kSecond; NowUs() < until;) {
      if (done(service_->counts())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  const OpenedModel model_ = support::Open(DemoDir());
  const Prompts prompts_ = Prompts::Open(DemoDir()).value();
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Service> service_;
  std::thread runner_;
  Status ran_;
};

TEST_F(Serving, ThreadsGetWhatAGeneratorGivesAlone) {
  Start({});
  constexpr size_t kThreads = 6;
  std::vector<std::string> texts(kThreads);
  std::vector<std::thread> threads;
  const auto request = [this](size_t i) {
    GenerationRequest asked = Asking(i % 2 == 0 ? "Write 249 in words." : "Count from 48 to 52.", 12);
    asked.sampling.temperature = i < 2 ? 0 : 1.2;
    asked.sampling.seed = i;
    return asked;
  };
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Result<std::unique_ptr<Answers>> answers = service_->Submit({request(i)});
      ASSERT_TRUE(answers.ok()) << answers.error().message;
      const auto read = ReadAll(answers->get(), 1);
      ASSERT_TRUE(read.ok()) << read.error().message;
      texts[i] = (*read)[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  service_->Drain(kSecond);
  EXPECT_TRUE(Join().ok());
  Generator alone(engine_.get(), &prompts_.tokenizer(), model_.files.stop_tokens);
  for (size_t i = 0; i < kThreads; ++i) {
    ASSERT_TRUE(alone.Submit(request(i)).ok());
    ASSERT_TRUE(alone
                    .Run([&](const Generation& generation, const std::string&) {
                      if (generation.finish == FinishReason::kNone) return;
                      EXPECT_EQ(generation.text, texts[i]) << i;
                    })
                    .ok());
  }
  EXPECT_EQ(service_->counts().ended, static_cast<int64_t>(kThreads));
}

// Readers of more streams than the running thread wakes by itself: each gets its pieces as they come, not when it looks
// again by itself, which is after longer than the answers take.
TEST_F(Serving, ReadersOfManyStreamsRestBetweenPieces) {
  constexpr size_t kReaders = 8;
  constexpr int64_t kTokens = 60;
  const auto pieces_with = [&](int64_t interval_us) {
    Start({}, interval_us);
    std::vector<size_t> pieces(kReaders, 0);
    std::vector<std::string> texts(kReaders);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kReaders; ++i) {
      threads.emplace_back([&, i] {
        GenerationRequest request = Asking("Count from 48 to 52.", kTokens);
        request.ignore_eos = true;
        const std::unique_ptr<Answers> answers = service_->Submit({request}).value();
        for (bool ended = false; !ended; ++pieces[i]) {
          const std::vector<Piece> read = answers->Read(20 * kSecond).value();
          for (const Piece& piece : read) texts[i] += piece.text;
          ended = read.empty() || read.back().finish != FinishReason::kNone;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    service_->Drain(0);
    EXPECT_TRUE(Join().ok());
    return std::pair(pieces, texts);
  };
  const auto [rested, rested_texts] = pieces_with(10 * kSecond);
  const auto [busy, busy_texts] = pieces_with(0);
  EXPECT_EQ(rested_texts, busy_texts);
  EXPECT_EQ(std::set(busy_texts.begin(), busy_texts.end()).size(), 1U);
  // The first piece, the last one, and a few of steps that served four readers or fewer at the beginning and the end.
  const size_t most = *std::max_element(rested.begin(), rested.end());
  EXPECT_LT(std::accumulate(rested.begin(), rested.end(), size_t{0}), kReaders * kTokens / 2);
  EXPECT_LT(*std::min_element(rested.begin(), rested.end()), size_t{kTokens / 3}) << most;
}

TEST_F(Serving, ReadersOfManyStreamsAreWoken) {
  constexpr size_t kReaders = 8;
  constexpr int64_t kLook = 20 * kSecond;
  Start({});
  std::vector<int64_t> longest(kReaders, kLook);  // time that a reader waited for a piece
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kReaders; ++i) {
    threads.emplace_back([&, i] {
      GenerationRequest request = Asking("Count from 48 to 52.", 40);
      request.ignore_eos = true;
      const std::unique_ptr<Answers> answers = service_->Submit({request}).value();
      int64_t waited = 0;
      for (bool ended = false; !ended;) {
        const int64_t begin = NowUs();
        const Result<std::vector<Piece>> pieces = answers->Read(kLook);
        waited = std::max(waited, NowUs() - begin);
        if (!pieces.ok() || pieces->empty()) return;
        ended = pieces->back().finish != FinishReason::kNone;
      }
      longest[i] = waited;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kReaders; ++i) EXPECT_LT(longest[i], kLook / 2) << "reader " << i;
}

// What is neither the first piece nor the last is told too: reads between them return while all answers still run. No
// time is looked at, since answers of a whole context take far longer than the reads.
TEST_F(Serving, ReadersOfManyStreamsAreWokenBetweenFirstPieceAndLast) {
  for (const int64_t interval_us : {int64_t{0}, Service::kPieceIntervalUs}) {
    Start({}, interval_us);
    const std::unique_ptr<Answers> answers =
        service_->Submit(std::vector<GenerationRequest>(8, Endless())).value();  // all in every step, told by the waker
    for (int read = 0; read < 10; ++read) {
      const Result<std::vector<Piece>> pieces = answers->Read(60 * kSecond);
      ASSERT_TRUE(pieces.ok()) << pieces.error().message;
      ASSERT_FALSE(pieces->empty()) << "read " << read;
      for (const Piece& piece : *pieces) ASSERT_EQ(piece.finish, FinishReason::kNone) << "read " << read;
    }
    service_->Drain(0);
    EXPECT_TRUE(Join().ok());
  }
}

TEST_F(Serving, ManyRequestsOfOneReader) {
  Start({});
  std::vector<GenerationRequest> requests(3, Asking("Tell a short story.", 20));
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].sampling.temperature = 2;
    requests[i].choice = i == 2 ? 0 : i;
  }
  const auto answers = service_->Submit(requests);
  ASSERT_TRUE(answers.ok());
  const auto texts = ReadAll(answers->get(), 3);
  ASSERT_TRUE(texts.ok()) << texts.error().message;
  EXPECT_EQ((*texts)[0], (*texts)[2]);
  EXPECT_NE((*texts)[0], (*texts)[1]);  // its choice has its own random numbers
}

TEST_F(Serving, WhoeverLeavesFreesSlotAndPages) {
  Start({});
  std::unique_ptr<Answers> answers = service_->Submit({Endless(), Endless()}).value();
  ASSERT_TRUE(Becomes([](const ServiceCounts& counts) { return counts.scheduler.running == 2; }));
  EXPECT_LT(service_->counts().scheduler.free_pages, service_->counts().pages);
  answers.reset();
  ASSERT_TRUE(Becomes([](const ServiceCounts& counts) { return counts.cancelled == 2; }));
  EXPECT_EQ(service_->counts().scheduler.running, 0);
  EXPECT_EQ(service_->counts().scheduler.free_pages, service_->counts().pages);
}

TEST_F(Serving, NobodyReadingHoldsUpNobody) {
  Start({});
  const std::unique_ptr<Answers> slow = service_->Submit({Asking("Count from 48 to 52.", 30)}).value();
  const std::unique_ptr<Answers> quick = service_->Submit({Asking("Write 249 in words.", 30)}).value();
  ASSERT_TRUE(ReadAll(quick.get(), 1).ok());
  ASSERT_TRUE(Becomes([](const ServiceCounts& counts) { return counts.ended == 2; }));
  const auto pieces = slow->Read(0);
  ASSERT_TRUE(pieces.ok());
  ASSERT_EQ(pieces->size(), 1U);  // all of it at once
  EXPECT_NE((*pieces)[0].finish, FinishReason::kNone);
  EXPECT_TRUE(slow->Read(0).value().empty());
}

TEST_F(Serving, RefusalsLeaveNothingBehind) {
  Start({});
  GenerationRequest longer = Endless();
  longer.prompt.assign(3000, 1);
  const auto refused = service_->Submit({Endless(), longer});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kCapacity);
  EXPECT_THAT(refused.error().message, HasSubstr("3000"));
  EXPECT_TRUE(Becomes([](const ServiceCounts& counts) { return counts.cancelled == 1; }));
  EXPECT_EQ(service_->counts().scheduler.running, 0);
}

TEST_F(Serving, ARequestWithoutATokenToSampleFailsAlone) {
  Start({});
  GenerationRequest outside = Asking("Write 249 in words.", 20);
  outside.sampling.logit_bias = {{static_cast<TokenId>(model_.geometry.vocab), 1.0F}};
  const std::unique_ptr<Answers> other = service_->Submit({Asking("Write 249 in words.", 20)}).value();
  const std::unique_ptr<Answers> failing = service_->Submit({outside}).value();
  const auto failed = ReadAll(failing.get(), 1);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kInvalid);
  EXPECT_TRUE(ReadAll(other.get(), 1).ok());
}

TEST_F(Serving, DrainingLetsAnswersEndAndRefusesNewOnes) {
  Start({});
  const std::unique_ptr<Answers> answers = service_->Submit({Asking("Count from 48 to 52.", 30)}).value();
  service_->Drain(30 * kSecond);
  const auto refused = service_->Submit({Endless()});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("shutting down"));
  const auto texts = ReadAll(answers.get(), 1);
  ASSERT_TRUE(texts.ok()) << texts.error().message;
  EXPECT_TRUE(Join().ok());
}

TEST_F(Serving, DrainingEndsAnswersThatTakeTooLong) {
  Start({});
  const std::unique_ptr<Answers> answers = service_->Submit({Endless()}).value();
  service_->Drain(30 * kSecond);
  service_->Drain(0);
  EXPECT_TRUE(Join().ok());
  const auto failed = ReadAll(answers.get(), 1);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("shutting down"));
}

TEST_F(Serving, AFailedRankIsToldToEverybody) {
  EngineOptions options;
  options.layout.ranks = 3;
  options.fault = {comm::FaultKind::kDie, 1, 0, 4};
  Start(options);
  const std::unique_ptr<Answers> answers = service_->Submit({Endless()}).value();
  const auto failed = ReadAll(answers.get(), 1);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kPeer);
  const Status ran = Join();
  ASSERT_FALSE(ran.ok());
  EXPECT_THAT(ran.error().message, HasSubstr("rank 1"));
  const auto later = service_->Submit({Endless()});
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().message, ran.error().message);
}

}  // namespace
}  // namespace trivet::engine
