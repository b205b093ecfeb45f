// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/demo_service.h"

namespace trivet::server {
namespace {

using testing::HasSubstr;

class Routes : public testing::Test {
 protected:
  static bool Stays() { return false; }

  ApiAnswer Chat(const Json& body) { return demo_.api().Chat(DumpJson(body), Stays); }
  ApiAnswer Complete(const Json& body) { return demo_.api().Completion(DumpJson(body), Stays); }

  // All events of a stream.
  std::string Drain(EventStream* stream) {
    std::string frames;
    while (!stream->done()) frames += stream->Next(1000000);
    return frames;
  }

  // The text that a stream's events hold.
  std::string TextOf(const std::string& frames) {
    std::string text;
    for (size_t at = 0; (at = frames.find("data: {", at)) != std::string::npos;) {
      at += 6;
      const Json event = ParseJson(frames.substr(at, frames.find("\n\n", at) - at), "event").value();
      for (const Json& choice : event["choices"]) {
        const Json& holder = choice.contains("delta") ? choice["delta"] : choice;
        const Json* piece = Find(holder, choice.contains("delta") ? "content" : "text");
        if (piece != nullptr) text += piece->get<std::string>();
      }
    }
    return text;
  }

  DemoService demo_;
};

TEST_F(Routes, FactsAboutTheServer) {
  EXPECT_EQ(demo_.api().Health().status, 200);
  EXPECT_EQ(demo_.api().Version().body["version"], "9.9");
  const Json models = demo_.api().Models().body;
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "demo");
  EXPECT_EQ(models["data"][0]["created"], 1234567890);
  EXPECT_EQ(models["data"][0]["max_model_len"], 2048);
  EXPECT_EQ(demo_.api().Model("demo").body, models["data"][0]);
  EXPECT_EQ(demo_.api().Model("other").status, 404);
}

TEST_F(Routes, TokenizeAndDetokenize) {
  const Json ids = demo_.api().Tokenize(R"({"prompt": "Count from 1."})").body;
  EXPECT_EQ(ids["count"], ids["tokens"].size());
  EXPECT_EQ(demo_.api().Detokenize(DumpJson({{"tokens", ids["tokens"]}})).body["prompt"], "Count from 1.");
  const Json chat = demo_.api().Tokenize(DumpJson(OneTurn("hi"))).body;
  EXPECT_THAT(demo_.api().Detokenize(DumpJson({{"tokens", chat["tokens"]}})).body["prompt"].get<std::string>(),
              HasSubstr("hi<|im_end|>"));
  EXPECT_EQ(demo_.api().Tokenize(R"({"prompt": 3})").body["error"]["param"], "prompt");
  EXPECT_EQ(demo_.api().TokenizerInfo().body["eos_token"], "<|im_end|>");
  EXPECT_EQ(demo_.api().Detokenize(R"({"tokens": ["a"]})").body["error"]["param"], "tokens");
  EXPECT_EQ(demo_.api().Detokenize("{}").status, 400);
}

TEST_F(Routes, AnAnswerIsTheEnginesOwn) {
  Json body = OneTurn("Count from 48 to 52.");
  const ApiAnswer answer = Chat(body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  ApiRequest request;
  ASSERT_TRUE(ReadChat(demo_.model().served(), body, &request).ok());
  EXPECT_EQ(answer.body["choices"][0]["finish_reason"], "stop");
  const std::string text = answer.body["choices"][0]["message"]["content"];
  EXPECT_FALSE(text.empty());
  (void)demo_.End();
  EXPECT_EQ(demo_.Alone(request.Requests()[0]), text);
}

// Whatever max_tokens cuts, and in the middle of characters of several tokens.
TEST_F(Routes, AStreamIsTheWholeAnswerInPieces) {
  for (int most = 1; most <= 16; ++most) {
    Json body = OneTurn("Repeat: \xF0\x9F\x98\x80 \xC3\xA9 \xF0\x9F\x8E\x89");
    body["max_tokens"] = most;
    body["temperature"] = 1.5;  // far from what the model was trained to say: broken characters too
    body["seed"] = most;
    body["ignore_eos"] = true;
    const Json whole = Chat(body).body;
    body["stream"] = true;
    const ApiAnswer streamed = Chat(body);
    ASSERT_NE(streamed.stream, nullptr);
    const std::string frames = Drain(streamed.stream.get());
    EXPECT_EQ(TextOf(frames), whole["choices"][0]["message"]["content"]) << most;
    EXPECT_EQ(frames.substr(frames.size() - 14), "data: [DONE]\n\n");
    EXPECT_EQ(whole["usage"]["completion_tokens"], most);
  }
}

// A stream of emoji that the prompt's bytes force, cut at every token.
TEST_F(Routes, CharactersOfSeveralTokensStayWhole) {
  const text::Tokenizer& tokenizer = demo_.model().prompts().tokenizer();
  const std::string emoji = "\xF0\x9F\x98\x80";
  const std::vector<TokenId> ids = tokenizer.Encode(emoji, {false, false}).value();
  ASSERT_GT(ids.size(), 1U);
  Json body = {{"model", "demo"}, {"prompt", "x"}, {"max_tokens", 1}, {"ignore_eos", true}};
  body["logit_bias"] = {{std::to_string(ids[0]), 100}};
  const Json whole = Complete(body).body;
  body["stream"] = true;
  const ApiAnswer streamed = Complete(body);
  EXPECT_EQ(whole["choices"][0]["text"], "\xEF\xBF\xBD");  // the first byte alone
  EXPECT_EQ(TextOf(Drain(streamed.stream.get())), "\xEF\xBF\xBD");
}

TEST_F(Routes, CompletionsEchoAndScoreThePrompt) {
  const Json body = {{"model", "demo"},
                     {"prompt", {"Count from 1", "Count from 2"}},
                     {"max_tokens", 0},
                     {"echo", true},
                     {"logprobs", 1}};
  const Json answer = Complete(body).body;
  for (size_t i = 0; i < 2; ++i) {
    const Json& choice = answer["choices"][i];
    EXPECT_EQ(choice["text"], body["prompt"][i]);
    EXPECT_EQ(choice["finish_reason"], "length");
    const Json& logprobs = choice["logprobs"];
    ASSERT_GT(logprobs["tokens"].size(), 2U);
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
    for (size_t t = 1; t < logprobs["tokens"].size(); ++t) EXPECT_LE(logprobs["token_logprobs"][t], 0);
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
}

TEST_F(Routes, ChoicesOfOneSeedDiffer) {
  Json body = OneTurn("Tell a short story.");
  body.update({{"n", 3}, {"temperature", 2}, {"seed", 4}, {"max_tokens", 12}});
  const Json first = Chat(body).body;
  ASSERT_EQ(first["choices"].size(), 3U);
  EXPECT_NE(first["choices"][0]["message"], first["choices"][1]["message"]);
  EXPECT_EQ(Chat(body).body["choices"], first["choices"]);
  EXPECT_LE(first["usage"]["completion_tokens"], 36);
}

TEST_F(Routes, MalformedBodiesAreRefused) {
  for (const std::string body : {"", "{", "[]", "3", "{\"a\": 1} x", "{\"model\": \"demo\", \"model\": \"demo\"}"}) {
    const ApiAnswer answer = demo_.api().Chat(body, Stays);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_TRUE(answer.body["error"]["message"].is_string());
  }
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  EXPECT_EQ(demo_.api().Chat(R"({"model": "demo", "x": )" + deep + "}", Stays).status, 400);
}

TEST_F(Routes, AClientThatLeavesCancels) {
  Json body = OneTurn("Count from 1 to 9.");
  body.update({{"max_tokens", 1900}, {"ignore_eos", true}});
  const ApiAnswer answer = demo_.api().Chat(DumpJson(body), [] { return true; });
  EXPECT_EQ(answer.status, 499);
  const ApiAnswer after = Chat(OneTurn("Write 249 in words."));
  EXPECT_EQ(after.status, 200);
  EXPECT_TRUE(demo_.Becomes([](const engine::ServiceCounts& counts) {
    return counts.cancelled == 1 && counts.scheduler.free_pages == counts.pages;
  }));
}

TEST_F(Routes, AfterTheEndRequestsGet503) {
  (void)demo_.End();
  EXPECT_EQ(Chat(OneTurn("hi")).status, 503);
  EXPECT_EQ(demo_.api().Health().status, 503);
}

TEST(DeadRank, EverybodyIsToldTheCause) {
  engine::EngineOptions options;
  options.layout.ranks = 3;
  options.fault = {comm::FaultKind::kDie, 2, 0, 3};
  DemoService demo(options);
  Json body = OneTurn("Count from 1 to 9.");
  body["stream"] = true;
  const ApiAnswer streamed = demo.api().Chat(DumpJson(body), [] { return false; });
  ASSERT_NE(streamed.stream, nullptr);
  std::string frames;
  while (!streamed.stream->done()) frames += streamed.stream->Next(1000000);
  EXPECT_THAT(frames, HasSubstr("rank 2"));
  EXPECT_THAT(frames, HasSubstr("\"error\""));
  const ApiAnswer after = demo.api().Chat(DumpJson(OneTurn("hi")), [] { return false; });
  EXPECT_EQ(after.status, 503);
  EXPECT_THAT(DumpJson(after.body), HasSubstr("rank 2"));
  EXPECT_FALSE(demo.End().ok());
}

}  // namespace
}  // namespace trivet::server
