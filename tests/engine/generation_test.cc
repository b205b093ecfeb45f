// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "engine/constraints.h"
#include "engine/prompts.h"
#include "engine/scoring.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

using testing::HasSubstr;

// The demo model's engine and tokenizer.
class Generating : public testing::Test {
 protected:
  Generating() { Restart({}); }

  void Restart(const EngineOptions& options) {
    engine_.reset();
    auto engine = Engine::Start(model_, options, {});
    CHECK_MSG(engine.ok(), engine.error().message);
    engine_ = std::move(engine).value();
  }

  GenerationRequest Asking(const std::string& question) const {
    GenerationRequest request;
    request.prompt = prompts_.EncodeChat({{"messages", {{{"role", "user"}, {"content", question}}}}}).value();
    request.sampling.temperature = 0;
    return request;
  }

  // Runs the requests as one batch; pieces are put together and must be the text.
  std::vector<Generation> Generate(std::vector<GenerationRequest> requests) {
    Generator generator(engine_.get(), &prompts_.tokenizer(), model_.files.stop_tokens);
    for (GenerationRequest& request : requests) {
      const Result<int64_t> index = generator.Submit(std::move(request));
      EXPECT_TRUE(index.ok()) << index.error().message;
    }
    std::vector<Generation> ended(requests.size());
    std::vector<std::string> streamed(requests.size());
    const Status ran = generator.Run([&](const Generation& generation, const std::string& piece) {
      const auto i = static_cast<size_t>(generation.index);
      streamed[i] += piece;
      if (generation.finish != FinishReason::kNone) ended[i] = generation;
    });
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    for (size_t i = 0; i < ended.size(); ++i) EXPECT_EQ(streamed[i], ended[i].text);
    return ended;
  }

  // Whether requests whose tokens alone come to the host, by 1 and 3 ranks, have the tokens that whole logits give,
  // also beside some that have those: every `step`th. All run for `max_tokens`. Their generations.
  std::vector<Generation> ExpectSameTokensFromLogits(const std::vector<GenerationRequest>& alone, size_t step) {
    std::vector<GenerationRequest> whole = alone, mixed = alone;
    for (GenerationRequest& request : whole) request.logprobs = true;
    int64_t more = 0;
    for (size_t i = 0; i < mixed.size(); i += step, ++more) mixed[i] = whole[i];
    const int64_t count = std::ssize(alone), tokens = alone.front().max_tokens.value();
    std::vector<Generation> drawn;
    for (const int64_t ranks : {1, 3}) {
      EngineOptions options;
      options.layout.ranks = ranks;
      Restart(options);
      drawn = Generate(alone);
      EXPECT_EQ(engine_->times().drawn_rows, count * tokens);
      EXPECT_EQ(engine_->times().logits_rows, 0);
      const std::vector<Generation> logits = Generate(whole);
      EXPECT_EQ(engine_->times().logits_rows, count * tokens);
      const std::vector<Generation> both = Generate(mixed);
      EXPECT_EQ(engine_->times().drawn_rows, (2 * count - more) * tokens);
      EXPECT_EQ(engine_->times().logits_rows, (count + more) * tokens);
      for (size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(drawn[i].tokens, logits[i].tokens) << i;
        EXPECT_EQ(drawn[i].text, logits[i].text) << i;
        EXPECT_EQ(both[i].tokens, logits[i].tokens) << i;
      }
    }
    return drawn;
  }

  const OpenedModel model_ = support::Open(DemoDir());
  const Prompts prompts_ = Prompts::Open(DemoDir()).value();
  std::unique_ptr<Engine> engine_;
};

const char* const kQuestion = "Omar has 90 shells and buys 85 more. How many shells does Omar have now?";
const char* const kAnswer = "90 + 85 = 175. There are 175 shells. #### 175";

TEST_F(Generating, AnswersAndStopsAtTheEndToken) {
  const std::vector<Generation> ended = Generate({Asking(kQuestion)});
  EXPECT_EQ(ended[0].text, kAnswer);
  EXPECT_EQ(ended[0].finish, FinishReason::kStop);
  EXPECT_EQ(ended[0].tokens.back(), 2);
  EXPECT_TRUE(ended[0].logprobs.empty());
}

TEST_F(Generating, MaxTokensEndsIt) {
  GenerationRequest request = Asking(kQuestion);
  request.max_tokens = 5;
  const std::vector<Generation> ended = Generate({request});
  EXPECT_EQ(ended[0].tokens.size(), 5U);
  EXPECT_EQ(ended[0].finish, FinishReason::kLength);
  EXPECT_EQ(std::string(kAnswer).find(ended[0].text), 0U);
}

TEST_F(Generating, AStopStringIsLeftOut) {
  GenerationRequest request = Asking(kQuestion);
  request.stop = {"never this", " ####"};
  const std::vector<Generation> ended = Generate({request});
  EXPECT_EQ(ended[0].text, "90 + 85 = 175. There are 175 shells.");
  EXPECT_EQ(ended[0].finish, FinishReason::kStop);
}

TEST_F(Generating, IgnoringTheEndGoesOnToTheLimit) {
  GenerationRequest request = Asking(kQuestion);
  request.ignore_eos = true;
  request.max_tokens = 60;
  const std::vector<Generation> ended = Generate({request});
  EXPECT_EQ(ended[0].tokens.size(), 60U);
  EXPECT_EQ(ended[0].finish, FinishReason::kLength);
}

TEST_F(Generating, EndsOfARequestsOwn) {
  GenerationRequest request = Asking(kQuestion);
  const std::vector<TokenId> plain = Generate({request})[0].tokens;
  request.stop_tokens = {plain[4]};
  request.ignore_eos = true;
  std::vector<Generation> ended = Generate({request});
  EXPECT_EQ(ended[0].tokens.size(), 5U);
  EXPECT_EQ(ended[0].finish, FinishReason::kStop);
  EXPECT_EQ(ended[0].text, prompts_.tokenizer().Decode(std::span(plain).first(4), true));
  request.include_stop = true;
  EXPECT_EQ(Generate({request})[0].text, prompts_.tokenizer().Decode(std::span(plain).first(5), true));
  request = Asking(kQuestion);
  request.stop = {"85"};
  request.include_stop = true;
  EXPECT_EQ(Generate({request})[0].text, "90 + 85");
}

TEST_F(Generating, NothingEndsBeforeTheLeastLength) {
  GenerationRequest request = Asking(kQuestion);
  const auto usual = static_cast<int64_t>(Generate({request})[0].tokens.size());
  request.min_tokens = usual + 10;
  request.max_tokens = usual + 20;
  const std::vector<Generation> ended = Generate({request});
  EXPECT_GE(static_cast<int64_t>(ended[0].tokens.size()), usual + 10);
  EXPECT_EQ(ended[0].text.find(kAnswer), 0U);
  request.min_tokens = 20;
  request.stop = {"+", "####"};
  EXPECT_EQ(Generate({request})[0].text, "90 + 85 = 175. There are 175 shells. ");
}

TEST_F(Generating, SpecialTokensAreTextOnRequest) {
  GenerationRequest request = Asking(kQuestion);
  request.ignore_eos = true;
  request.max_tokens = 60;
  EXPECT_EQ(Generate({request})[0].text.find("<|im_end|>"), std::string::npos);
  request.special_tokens = true;
  EXPECT_EQ(Generate({request})[0].text.find(std::string(kAnswer) + "<|im_end|>"), 0U);
}

TEST_F(Generating, ConstraintsHoldWhateverElseIsAsked) {
  Constraints constraints(&prompts_.tokenizer(), model_.files.stop_tokens);
  const Json schema = Json::parse(R"({"type": "object", "required": ["n", "t"], "properties": {
      "n": {"type": "integer", "minimum": 1, "maximum": 99}, "t": {"type": "string", "maxLength": 12}}})");
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 8; ++i) {
    requests.push_back(Asking(kQuestion));
    requests.back().constraint = constraints.Schema(schema, "schema").value();
    requests.back().sampling.temperature = static_cast<double>(i % 4) * 0.8;
    requests.back().sampling.seed = i;
    requests.back().ignore_eos = i % 2 == 0;
    requests.back().min_tokens = i % 3 == 0 ? 200 : 0;
    requests.back().logprobs = i % 2 == 1;
  }
  const std::vector<Generation> together = Generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].finish, FinishReason::kStop);
    const Result<Json> value = ParseJson(together[i].text, "answer");
    ASSERT_TRUE(value.ok()) << together[i].text;
    EXPECT_GE((*value)["n"], 1);
    EXPECT_TRUE((*value)["t"].is_string());
    EXPECT_EQ(Generate({requests[i]})[0].tokens, together[i].tokens);
  }
}

TEST_F(Generating, AConstraintThatMayEndLetsTheModelEnd) {
  Constraints constraints(&prompts_.tokenizer(), model_.files.stop_tokens);
  GenerationRequest request = Asking(kQuestion);
  request.constraint = constraints.Pattern("[0-9+ =.a-zA-Z#]*", "pattern").value();
  const std::vector<Generation> ended = Generate({request});
  EXPECT_EQ(ended[0].text, kAnswer);
  EXPECT_EQ(ended[0].tokens.back(), 2);
  request.constraint = constraints.Choice({"yes", "no", "noon"}, "choice").value();
  const std::string chosen = Generate({request})[0].text;
  EXPECT_TRUE(chosen == "yes" || chosen == "no" || chosen == "noon") << chosen;
}

TEST_F(Generating, WithoutALimitTheContextIsTheLimit) {
  EngineOptions options;
  options.max_context = 64;
  Restart(options);
  GenerationRequest request = Asking(kQuestion);
  request.ignore_eos = true;
  const size_t prompt = request.prompt.size();
  const std::vector<Generation> ended = Generate({request});
  EXPECT_EQ(prompt + ended[0].tokens.size(), 64U);
}

TEST_F(Generating, LogprobsOfEveryToken) {
  GenerationRequest request = Asking(kQuestion);
  request.logprobs = true;
  request.sampling.logprobs = 3;
  const std::vector<Generation> ended = Generate({request});
  ASSERT_EQ(ended[0].logprobs.size(), ended[0].tokens.size());
  for (size_t i = 0; i < ended[0].tokens.size(); ++i) {
    const sampling::SampleResult& one = ended[0].logprobs[i];
    EXPECT_EQ(one.token, ended[0].tokens[i]);
    ASSERT_EQ(one.top.size(), 3U);
    EXPECT_EQ(one.top[0].first, one.token);  // greedy
    EXPECT_EQ(one.top[0].second, one.logprob);
    EXPECT_LE(one.logprob, 0);
  }
}

TEST_F(Generating, LogprobsOfThePromptAreThoseOfScoring) {
  GenerationRequest request = Asking(kQuestion);
  request.prompt_logprobs = true;
  request.sampling.logprobs = 2;
  request.max_tokens = 0;  // the prompt and no more
  EngineOptions options;
  options.prefill_chunk = 5;
  Restart(options);
  const Generation ended = Generate({request})[0];
  EXPECT_TRUE(ended.tokens.empty());
  EXPECT_EQ(ended.finish, FinishReason::kLength);
  const std::vector<ScoredSequence> scored = Score(engine_.get(), {{request.prompt}, false, false}).value();
  const std::vector<double> expected = TokenLogprobs(request.prompt, scored[0].logits, model_.geometry.vocab);
  ASSERT_EQ(ended.prompt_logprobs.size(), request.prompt.size() - 1);
  ASSERT_EQ(expected.size(), request.prompt.size() - 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(ended.prompt_logprobs[i].token, request.prompt[i + 1]);
    EXPECT_NEAR(ended.prompt_logprobs[i].logprob, expected[i], 1e-5) << i;
    EXPECT_EQ(ended.prompt_logprobs[i].top.size(), 2U);
  }
  request.max_tokens = 3;
  EXPECT_EQ(Generate({request})[0].prompt_logprobs.size(), expected.size());
}

TEST_F(Generating, ACancelledRequestFreesWhatItHeld) {
  Generator generator(engine_.get(), &prompts_.tokenizer(), model_.files.stop_tokens);
  const int64_t pages = engine_->counts().free_pages;
  const int64_t first = generator.Submit(Asking(kQuestion)).value();
  const int64_t second = generator.Submit(Asking(kQuestion)).value();
  ASSERT_TRUE(generator.Step([](const Generation&, const std::string&) {}).value());
  EXPECT_LT(engine_->counts().free_pages, pages);
  generator.Cancel(first);
  generator.Cancel(first);  // no effect
  EXPECT_EQ(engine_->counts().running, 1);
  std::string text;
  ASSERT_TRUE(generator
                  .Run([&](const Generation& generation, const std::string&) {
                    EXPECT_EQ(generation.index, second);
                    text = generation.text;
                  })
                  .ok());
  EXPECT_EQ(text, kAnswer);
  EXPECT_EQ(engine_->counts().free_pages, pages);
  EXPECT_FALSE(generator.Step([](const Generation&, const std::string&) { FAIL(); }).value());
}

TEST_F(Generating, ARequestThatForbidsEverythingFailsAlone) {
  GenerationRequest request = Asking(kQuestion);
  for (TokenId token = 0; token < model_.geometry.vocab; ++token) {
    request.sampling.logit_bias[token] = -std::numeric_limits<float>::infinity();
  }
  Generator generator(engine_.get(), &prompts_.tokenizer(), model_.files.stop_tokens);
  ASSERT_TRUE(generator.Submit(request).ok());
  const Status ran = generator.Run(
      [](const Generation& generation, const std::string&) { EXPECT_EQ(generation.finish, FinishReason::kError); });
  ASSERT_FALSE(ran.ok());
  EXPECT_EQ(ran.error().code, Code::kInvalid);
  EXPECT_EQ(Generate({Asking(kQuestion)})[0].text, kAnswer);
}

// A request's text depends on its prompt and its seed, not on who runs beside it, on its place or on the ranks.
TEST_F(Generating, TextsDoNotDependOnBatchOrRanks) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 9; ++i) {
    requests.push_back(Asking(i % 2 == 0 ? kQuestion : "Write 249 in words."));
    requests.back().sampling.temperature = i % 3 == 0 ? 0 : 1.3;
    requests.back().sampling.seed = 11;
    requests.back().max_tokens = 25;
  }
  const std::vector<Generation> together = Generate(requests);
  EXPECT_EQ(together[2].tokens, together[4].tokens);
  EngineOptions options;
  options.layout.ranks = 3;
  options.max_sequences = 2;
  options.prefill_chunk = 5;
  Restart(options);
  const std::vector<Generation> apart = Generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i].tokens, apart[i].tokens) << i;
}

// A greedy request has only tokens brought to the host; beside and without those that have whole logits, its text is
// the one that logits give.
TEST_F(Generating, GreedyTokensComeAloneAndAreTheSame) {
  std::vector<GenerationRequest> requests;
  for (const char* question : {kQuestion, "Write 249 in words.", "What is 12 + 30?"}) {
    requests.push_back(Asking(question));
    requests.back().ignore_eos = true;
    requests.back().max_tokens = 40;
  }
  ExpectSameTokensFromLogits(requests, 2);
}

// The same of requests with temperatures and filters.
TEST_F(Generating, SampledTokensComeAloneAndAreTheSame) {
  const std::vector<sampling::SamplingParams> ways = support::WaysToSample(8);
  std::vector<GenerationRequest> requests;
  for (size_t i = 0; i < ways.size(); ++i) {
    requests.push_back(Asking(kQuestion));
    requests.back().sampling = ways[i];
    if (i > 0) requests.back().sampling.temperature += 1;  // so that answers differ from the best one
    requests.back().choice = i;
    requests.back().ignore_eos = true;
    requests.back().max_tokens = 20;
  }
  const std::vector<Generation> drawn = ExpectSameTokensFromLogits(requests, 3);
  const auto differing = std::count_if(drawn.begin(), drawn.end(),
                                       [&](const Generation& one) { return one.tokens != drawn.front().tokens; });
  EXPECT_GE(differing, 3);
}

// Whoever needs more of the logits than a token that is drawn from them is given them.
TEST_F(Generating, LogitsComeToWhoeverNeedsThem) {
  const std::vector<std::function<void(GenerationRequest*)>> needs = {
      [](GenerationRequest* request) { request->sampling.repetition_penalty = 1.1; },
      [](GenerationRequest* request) { request->sampling.frequency_penalty = 0.1; },
      [](GenerationRequest* request) { request->sampling.presence_penalty = 0.1; },
      [](GenerationRequest* request) { request->sampling.logit_bias[3] = -1; },
      [](GenerationRequest* request) { request->logprobs = true; },
      [](GenerationRequest* request) { request->prompt_logprobs = true; },
      [](GenerationRequest* request) { request->min_tokens = 1; },
  };
  for (size_t i = 0; i < needs.size(); ++i) {
    GenerationRequest request = Asking(kQuestion);
    request.max_tokens = 3;
    needs[i](&request);
    Generate({request});
    EXPECT_EQ(engine_->times().drawn_rows, 0) << i;
    EXPECT_GT(engine_->times().logits_rows, static_cast<int64_t>(i)) << i;
  }
}

// Threads share the rows of a step out: whatever a request asks for stays its own.
TEST_F(Generating, RowsAreSampledByAnyThread) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 24; ++i) {
    requests.push_back(Asking(kQuestion));
    GenerationRequest& request = requests.back();
    request.sampling.temperature = i % 4 == 0 ? 0 : 0.4 * i;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.top_k = i % 3 == 0 ? 40 : 0;
    request.sampling.frequency_penalty = i % 5 == 0 ? 1 : 0;
    request.sampling.logprobs = 2;
    request.logprobs = i % 2 == 0;
    request.min_tokens = i % 7 == 0 ? 20 : 0;
    request.max_tokens = 12 + i;
  }
  EngineOptions options;
  options.max_sequences = 24;
  options.threads = 1;
  Restart(options);
  const std::vector<Generation> one = Generate(requests);
  options.threads = 5;
  Restart(options);
  const std::vector<Generation> five = Generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(one[i].tokens, five[i].tokens) << i;
    ASSERT_EQ(one[i].logprobs.size(), five[i].logprobs.size()) << i;
    for (size_t t = 0; t < one[i].logprobs.size(); ++t) {
      EXPECT_EQ(one[i].logprobs[t].logprob, five[i].logprobs[t].logprob) << i << " " << t;
      EXPECT_EQ(one[i].logprobs[t].top, five[i].logprobs[t].top) << i << " " << t;
    }
  }
  EXPECT_GT(engine_->times().sample_us, 0);
  EXPECT_GT(engine_->times().deliver_us, 0);
}

TEST_F(Generating, WhatCannotRunIsRefused) {
  Generator generator(engine_.get(), &prompts_.tokenizer(), model_.files.stop_tokens);
  const auto refusal = [&](GenerationRequest request) {
    const Result<int64_t> index = generator.Submit(std::move(request));
    return index.ok() ? Error{Code::kUsage, "accepted"} : index.error();
  };
  GenerationRequest request = Asking(kQuestion);
  request.prompt.assign(2048, 1);
  EXPECT_EQ(refusal(request).code, Code::kCapacity);
  EXPECT_THAT(refusal(request).message, HasSubstr("expected at most 2047 tokens"));
  request.prompt.clear();
  EXPECT_EQ(refusal(request).code, Code::kInvalid);
  request = Asking(kQuestion);
  request.sampling.top_p = -1;
  EXPECT_EQ(refusal(request).code, Code::kInvalid);
  request = Asking(kQuestion);
  request.stop = {""};
  EXPECT_EQ(refusal(request).code, Code::kInvalid);
  // Nothing of that is left: a run has nothing to do.
  EXPECT_TRUE(generator.Run([](const Generation&, const std::string&) { FAIL(); }).ok());
}

TEST(FinishReasonName, Words) {
  EXPECT_STREQ(FinishReasonName(FinishReason::kNone), "none");
  EXPECT_STREQ(FinishReasonName(FinishReason::kStop), "stop");
  EXPECT_STREQ(FinishReasonName(FinishReason::kLength), "length");
  EXPECT_STREQ(FinishReasonName(FinishReason::kError), "error");
}

}  // namespace
}  // namespace trivet::engine
