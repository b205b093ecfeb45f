// SPDX-License-Identifier: Apache-2.0
#include "engine/replay.h"

#include <gtest/gtest.h>

#include "engine/generation.h"
#include "proof/verify.h"
#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

class Replayed : public testing::Test {
 protected:
  EngineOptions Options(int64_t ranks, const std::string& name) {
    EngineOptions options;
    options.layout.ranks = ranks;
    options.max_sequences = 4;
    options.proof.level = record::Level::kFull;
    options.proof.dir = dir_.Path(name);
    options.proof.command = "test";
    return options;
  }

  // Two prompts and a few tokens that are chosen by the greatest logit.
  proof::Files Generated(const EngineOptions& options) {
    auto engine = Engine::Start(small_.model(), options, {});
    CHECK_MSG(engine.ok(), engine.error().message);
    for (const int64_t id : {0, 1}) {
      sched::Request request;
      request.id = SeqId{id};
      request.prompt = support::RandomTokens(5 + 3 * id, small_.vocab(), static_cast<uint64_t>(id));
      request.max_new_tokens = 4;
      CHECK((*engine)->Submit(std::move(request)).ok());
    }
    bool more = true;
    while (more) {
      const Result<bool> stepped = (*engine)->Step(
          [&](const sched::Span&, const SpanOutput& output, bool wanted) -> Result<std::optional<TokenId>> {
            if (!wanted) return std::optional<TokenId>();
            const auto row = output.logits.last(static_cast<size_t>(small_.vocab()));
            return std::optional<TokenId>(static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
          });
      CHECK_MSG(stepped.ok(), stepped.error().message);
      more = *stepped;
    }
    CHECK((*engine)->SealProof().ok());
    EXPECT_FALSE(
        (*engine)->Step([](const sched::Span&, const SpanOutput&, bool) { return std::optional<TokenId>(); }).ok())
        << "a sealed run is over";
    return proof::ReadRunDir(options.proof.dir).value();
  }

  const SmallModel small_;
  const TempDir& dir_ = small_.dir();
};

TEST_F(Replayed, EqualsWhatWasRecorded) {
  const proof::Files first = Generated(Options(1, "first"));
  const Result<RecordedWork> work = ReadWork(first, "first");
  ASSERT_TRUE(work.ok()) << work.error().message;
  ASSERT_EQ(work->tokens.size(), 2U);
  // The last token that was sampled was computed by nobody.
  EXPECT_EQ(work->tokens[0].size(), 5U + 3);
  EXPECT_EQ(work->logits_from, (std::vector<int64_t>{4, 7}));
  EngineOptions options = Options(3, "second");
  options.proof.logits_from = work->logits_from;
  options.prefill_chunk = 3;  // another schedule
  auto engine = Engine::Start(small_.model(), options, {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  ASSERT_TRUE(Replay(engine->get(), *work).ok());
  ASSERT_TRUE((*engine)->SealProof().ok());
  const proof::Report report =
      proof::Verify({{"first", first}, {"second", proof::ReadRunDir(options.proof.dir).value()}}, {});
  EXPECT_EQ(report.finding.verdict, proof::Verdict::kPass) << report.finding.message;
  EXPECT_EQ(Member(report.json["comparisons"][0], "logits_rows"), 8);
}

TEST_F(Replayed, WorkSaysHowKeysAndValuesWereKept) {
  EngineOptions options = Options(1, "plain");
  EXPECT_EQ(ReadWork(Generated(options), "plain")->kv_dtype, "auto");
  options = Options(1, "codes");
  options.kv_dtype = cache::KvDtype::kE4M3;
  const Result<RecordedWork> work = ReadWork(Generated(options), "codes");
  ASSERT_TRUE(work.ok()) << work.error().message;
  EXPECT_EQ(work->kv_dtype, "fp8");
  EXPECT_FALSE(work->forced);
}

TEST_F(Replayed, ARunThatDoesNotStandIsRefused) {
  proof::Files files = Generated(Options(1, "first"));
  files.erase("COMPLETE");
  const Result<RecordedWork> work = ReadWork(files, "first");
  ASSERT_FALSE(work.ok());
  EXPECT_EQ(work.error().code, Code::kInvalid);
}

}  // namespace
}  // namespace trivet::engine
