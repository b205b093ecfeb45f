// SPDX-License-Identifier: Apache-2.0
// The demo model answers all 500 questions as the reference implementation did, on one rank and on three.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/clock.h"
#include "base/json.h"
#include "engine/generation.h"
#include "engine/prompts.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

// `text` without white space at its ends.
std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n") - begin + 1);
}

class DemoGreedy : public testing::TestWithParam<int64_t> {};

TEST_P(DemoGreedy, AllAnswersAreTheReferences) {
  const std::string dir = DemoDir();
  const Result<Json> cases = ReadJsonFile(dir + "/golden/demo-greedy-500.json");
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  ASSERT_EQ(cases->size(), 500U);
  const engine::OpenedModel model = support::Open(dir);
  const Result<engine::Prompts> prompts = engine::Prompts::Open(dir);
  ASSERT_TRUE(prompts.ok()) << prompts.error().message;
  engine::EngineOptions options;
  options.layout.ranks = GetParam();
  auto engine = engine::Engine::Start(model, options, {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  engine::Generator generator(engine->get(), &prompts->tokenizer(), model.files.stop_tokens);
  for (const Json& one : *cases) {
    engine::GenerationRequest request;
    const Result<std::vector<TokenId>> prompt =
        prompts->EncodeChat({{"messages", {{{"role", "user"}, {"content", one["question"]}}}}});
    ASSERT_TRUE(prompt.ok()) << prompt.error().message;
    request.prompt = *prompt;
    request.max_tokens = 200;
    request.sampling.temperature = 0;
    ASSERT_TRUE(generator.Submit(std::move(request)).ok());
  }
  std::vector<std::string> answers(cases->size());
  const int64_t begin = NowUs();
  const Status ran = generator.Run([&](const engine::Generation& generation, const std::string&) {
    answers[static_cast<size_t>(generation.index)] = generation.text;
  });
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  int equal = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto expected = (*cases)[i]["greedy"].get<std::string>();
    equal += Trim(answers[i]) == Trim(expected);
    EXPECT_EQ(Trim(answers[i]), Trim(expected)) << (*cases)[i]["question"].get<std::string>();
  }
  std::printf("N=%lld: %d of %zu answers equal, %.1f s\n", static_cast<long long>(GetParam()), equal, answers.size(),
              static_cast<double>(NowUs() - begin) * 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DemoGreedy, testing::Values(1, 3));

}  // namespace
}  // namespace trivet
