// SPDX-License-Identifier: Apache-2.0
#include "server/api_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/demo_service.h"

namespace trivet::server {
namespace {

using testing::HasSubstr;

class Reading : public testing::Test {
 protected:
  // The refusal of a chat with one field more, or one that says "accepted".
  ApiError ChatRefusal(const std::string& key, const Json& value) const {
    Json body = OneTurn("hi");
    body[key] = value;
    ApiRequest request;
    const ApiStatus read = ReadChat(model_.served(), body, &request);
    return read.ok() ? ApiError{200, "accepted", "", ""} : read.error();
  }
  ApiError CompletionRefusal(const std::string& key, const Json& value) const {
    Json body = {{"model", "demo"}, {"prompt", "hi"}};
    body[key] = value;
    ApiRequest request;
    const ApiStatus read = ReadCompletion(model_.served(), body, &request);
    return read.ok() ? ApiError{200, "accepted", "", ""} : read.error();
  }

  const DemoModel model_;
};

TEST_F(Reading, AChatWithEverything) {
  Json body = OneTurn("hi");
  body.update(ParseJson(R"({"max_tokens": 3, "max_completion_tokens": 7.0, "temperature": 0.5, "top_p": 0.9,
      "top_k": 4, "min_p": 0.1, "n": 2, "seed": -3, "stop": ["a", "b"], "presence_penalty": 1,
      "frequency_penalty": -1, "repetition_penalty": 1.5, "logit_bias": {"5": -100, "6": 1.5}, "logprobs": true,
      "top_logprobs": 2, "priority": -2, "stream": true, "stream_options": {"include_usage": true}, "ignore_eos": true,
      "user": "me", "metadata": {"a": "b"}, "unknown": [1], "response_format": {"type": "text"},
      "tool_choice": "auto", "tools": [], "suffix": null, "min_tokens": 2,
      "stop_token_ids": [9], "include_stop_str_in_output": true, "skip_special_tokens": false})",
                        "body")
                  .value());
  ApiRequest request;
  const ApiStatus read = ReadChat(model_.served(), body, &request);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(request.chat && request.stream && request.include_usage && request.base.ignore_eos);
  EXPECT_EQ(request.base.max_tokens, 7);
  EXPECT_EQ(request.base.priority, -2);
  EXPECT_EQ(request.base.min_tokens, 2);
  EXPECT_EQ(request.base.stop_tokens, std::vector<TokenId>{9});
  EXPECT_TRUE(request.base.include_stop && request.base.special_tokens);
  EXPECT_EQ(request.base.constraint, nullptr);
  EXPECT_EQ(request.base.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.base.logprobs);
  const sampling::SamplingParams& sampling = request.base.sampling;
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_k, 4);
  EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(sampling.logprobs, 2);
  EXPECT_EQ(sampling.logit_bias, (std::map<TokenId, float>{{5, -100.0F}, {6, 1.5F}}));
  const std::vector<engine::GenerationRequest> requests = request.Requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1].choice, 1U);
  EXPECT_EQ(requests[1].prompt, model_.prompts().EncodeChat({{"messages", body["messages"]}}).value());
}

TEST_F(Reading, DefaultsAreTheModels) {
  ApiRequest chat, completion;
  ASSERT_TRUE(ReadChat(model_.served(), OneTurn("hi"), &chat).ok());
  EXPECT_FALSE(chat.base.max_tokens.has_value());
  EXPECT_EQ(chat.base.sampling.temperature, 0);
  EXPECT_FALSE(chat.stream || chat.base.logprobs);
  ASSERT_TRUE(ReadCompletion(model_.served(), {{"model", "demo"}, {"prompt", "hi"}}, &completion).ok());
  EXPECT_EQ(completion.base.max_tokens, 16);
}

TEST_F(Reading, WrongFieldsAreNamed) {
  const std::pair<const char*, Json> wrong[] = {{"temperature", "hot"},
                                                {"temperature", -1},
                                                {"top_p", 0},
                                                {"top_k", 1.5},
                                                {"min_p", 2},
                                                {"n", 0},
                                                {"n", 129},
                                                {"n", "2"},
                                                {"seed", "x"},
                                                {"stop", 3},
                                                {"stop", ""},
                                                {"presence_penalty", 3},
                                                {"max_tokens", 0},
                                                {"max_tokens", "9"},
                                                {"max_completion_tokens", 0},
                                                {"logprobs", 3},
                                                {"top_logprobs", 2},
                                                {"top_logprobs", 21},
                                                {"stream", "yes"},
                                                {"stream_options", {{"include_usage", true}}},
                                                {"logit_bias", {{"x", 1}}},
                                                {"logit_bias", {{"99999999", 1}}},
                                                {"logit_bias", {{"1", 101}}},
                                                {"ignore_eos", 1},
                                                {"min_tokens", -1},
                                                {"stop_token_ids", 3},
                                                {"stop_token_ids", {1 << 30}},
                                                {"include_stop_str_in_output", "yes"},
                                                {"skip_special_tokens", 0},
                                                {"response_format", "json_object"},
                                                {"guided_regex", "("},
                                                {"chat_template_kwargs", 3}};
  for (const auto& [key, value] : wrong) {
    const ApiError error = ChatRefusal(key, value);
    EXPECT_EQ(error.status, 400) << key << " " << value;
    EXPECT_EQ(error.param, key) << error.message;
    EXPECT_THAT(error.message, HasSubstr(key));
    EXPECT_THAT(error.message, testing::Not(HasSubstr("file"))) << "a request has none";
  }
}

TEST_F(Reading, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(ChatRefusal("tool_choice", "required").param, "tool_choice");  // of no tools
  EXPECT_EQ(ChatRefusal("guided_grammar", "a").param, "guided_grammar");
  EXPECT_EQ(ChatRefusal("bad_words", {"a"}).param, "bad_words");
  EXPECT_EQ(ChatRefusal("allowed_token_ids", {5}).param, "allowed_token_ids");
  EXPECT_EQ(CompletionRefusal("suffix", "x").param, "suffix");
  // The demo's template shows no tools, and a model that does not see them could only ignore them.
  const Json function = {{"type", "function"}, {"function", {{"name", "f"}}}};
  EXPECT_EQ(ChatRefusal("tools", Json::array({function})).param, "tools");
  // What the other route has, and would change the answer.
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, Json>>{{"echo", true}, {"best_of", 2}, {"prompt", "hi"}}) {
    EXPECT_THAT(ChatRefusal(key, value).message,
                HasSubstr(key + ": expected nothing that changes an answer, since chats of this server"));
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{{"messages", Json::array({1})},
                                                                            {"tools", Json::array({function})},
                                                                            {"max_completion_tokens", 3},
                                                                            {"top_logprobs", 2}}) {
    EXPECT_THAT(CompletionRefusal(key, value).message,
                HasSubstr(key + ": expected nothing that changes an answer, since completions of this"));
  }
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, Json>>{{"echo", false}, {"best_of", 1}, {"prompt", Json()}, {"prompt", ""}}) {
    EXPECT_EQ(ChatRefusal(key, value).status, 200) << key;
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"tools", Json::array()}, {"best_of", 1}, {"top_logprobs", 0}, {"messages", Json::array()}}) {
    EXPECT_EQ(CompletionRefusal(key, value).status, 200) << key;
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{{"function_call", "auto"},
                                                                            {"function_call", "none"},
                                                                            {"modalities", Json::array({"text"})},
                                                                            {"prompt_logprobs", false},
                                                                            {"truncate_prompt_tokens", -1}}) {
    EXPECT_EQ(ChatRefusal(key, value).status, 200) << key;
    EXPECT_EQ(CompletionRefusal(key, value).status, 200) << key;
  }
  EXPECT_EQ(ChatRefusal("modalities", Json::array({"audio"})).param, "modalities");
  EXPECT_EQ(ChatRefusal("function_call", {{"name", "f"}}).param, "function_call");
}

// One sentence: the field, what it may be, and what it was.
TEST_F(Reading, RefusalsSayWhatIsTrue) {
  EXPECT_THAT(CompletionRefusal("best_of", 2).message,
              HasSubstr("best_of: expected n, 1, since every answer is returned, found 2"));
  for (const Json& value : {Json(-1), Json(0), Json(1.5), Json("9"), Json(int64_t{1} << 40)}) {
    for (const ApiError& error : {ChatRefusal("max_tokens", value), CompletionRefusal("max_tokens", value)}) {
      EXPECT_EQ(error.param, "max_tokens");
      EXPECT_THAT(error.message,
                  HasSubstr("expected an integer from 1 to 2147483647, found " + DumpJson(value).substr(0, 1)));
    }
  }
  EXPECT_THAT(ChatRefusal("stop", "").message, HasSubstr("request: stop: expected non-empty"));
  EXPECT_THAT(ChatRefusal("reasoning_effort", 5).message, HasSubstr("reasoning_effort: expected a text, found 5"));
  EXPECT_THAT(CompletionRefusal("min_tokens", 17).message, HasSubstr("at most max_tokens, 16, found 17"));
  ApiRequest request;
  const ApiStatus none = ReadChat(model_.served(), Json::array(), &request);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().param, "") << "a body is no field";
}

TEST_F(Reading, TheModelMustBeTheOne) {
  EXPECT_EQ(ChatRefusal("model", "other").status, 404);
  EXPECT_EQ(ChatRefusal("model", "other").code, "model_not_found");
  EXPECT_EQ(ChatRefusal("model", nullptr).status, 400);
  ApiRequest request;
  EXPECT_FALSE(ReadChat(model_.served(), Json::array(), &request).ok());
}

TEST_F(Reading, PromptsOfCompletions) {
  const auto prompts = [&](const Json& prompt) {
    ApiRequest request;
    const ApiStatus read = ReadCompletion(model_.served(), {{"model", "demo"}, {"prompt", prompt}}, &request);
    EXPECT_TRUE(read.ok()) << prompt;
    return request.prompts;
  };
  const std::vector<TokenId> hi = model_.prompts().EncodeText("hi").value();
  EXPECT_EQ(prompts("hi"), (std::vector<std::vector<TokenId>>{hi}));
  EXPECT_EQ(prompts({"hi", "hi"}), (std::vector<std::vector<TokenId>>{hi, hi}));
  EXPECT_EQ(prompts({4, 5}), (std::vector<std::vector<TokenId>>{{4, 5}}));
  EXPECT_EQ(prompts(Json::array({{4, 5}, {6}})), (std::vector<std::vector<TokenId>>{{4, 5}, {6}}));
  EXPECT_EQ(CompletionRefusal("prompt", nullptr).param, "prompt");
  EXPECT_EQ(CompletionRefusal("prompt", Json::array()).param, "prompt");
  EXPECT_EQ(CompletionRefusal("prompt", 3).param, "prompt");
  EXPECT_EQ(CompletionRefusal("prompt", {4, -1}).param, "prompt");
  EXPECT_EQ(CompletionRefusal("prompt", {4, 1 << 30}).param, "prompt");
  EXPECT_EQ(CompletionRefusal("prompt", {"a", 3}).param, "prompt[1]");
  EXPECT_EQ(CompletionRefusal("max_tokens", 0).param, "max_tokens");  // without echo
}

TEST_F(Reading, TooMuchIsRefusedWithTheNumbers) {
  const ApiError longer = ChatRefusal("max_tokens", 2048);
  EXPECT_EQ(longer.status, 400);
  EXPECT_EQ(longer.code, "context_length_exceeded");
  EXPECT_THAT(longer.message, HasSubstr("at most 2048 tokens"));
  EXPECT_THAT(longer.message, HasSubstr("and 2048 to generate"));
  const ApiError prompt = CompletionRefusal("prompt", Json(std::vector<TokenId>(3000, 4)));
  EXPECT_EQ(prompt.code, "context_length_exceeded");
  EXPECT_THAT(prompt.message, HasSubstr("3000 of the prompt"));
  EXPECT_EQ(CompletionRefusal("prompt", Json(std::vector<std::string>(257, "a"))).param, "n");
  // Which field it is: of several prompts the one, and of a short prompt the tokens asked for.
  EXPECT_EQ(longer.param, "max_tokens");
  EXPECT_EQ(ChatRefusal("max_completion_tokens", 2048).param, "max_completion_tokens");
  EXPECT_EQ(CompletionRefusal("max_tokens", 2048).param, "max_tokens");
  EXPECT_EQ(prompt.param, "prompt");
  EXPECT_EQ(CompletionRefusal("prompt", Json(std::vector<TokenId>(2040, 4))).param, "prompt")
      << "16 were not asked for";
  EXPECT_EQ(CompletionRefusal("prompt", {"hi", ""}).param, "prompt[1]");
  EXPECT_EQ(CompletionRefusal("prompt", Json::array({std::vector<TokenId>{4}, std::vector<TokenId>(2048, 4)})).param,
            "prompt[1]");
}

}  // namespace
}  // namespace trivet::server
