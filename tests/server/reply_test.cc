// SPDX-License-Identifier: Apache-2.0
#include "server/reply.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/server/demo_service.h"

namespace trivet::server {
namespace {

using engine::FinishReason;
using engine::Piece;

// The JSON of each event; [DONE] as text.
std::vector<Json> Events(const std::string& frames) {
  std::vector<Json> events;
  for (size_t at = 0; at < frames.size();) {
    const size_t end = frames.find("\n\n", at);
    CHECK(frames.substr(at, 6) == "data: " && end != std::string::npos);
    const std::string data = frames.substr(at + 6, end - at - 6);
    events.push_back(data == "[DONE]" ? Json(data) : ParseJson(data, "event").value());
    at = end + 2;
  }
  return events;
}

class Replying : public testing::Test {
 protected:
  Replying() {
    request_.chat = true;
    request_.prompts = {{4, 5, 6}};
  }

  // Ids of one letter or byte each.
  TokenId Id(const std::string& piece) const { return model_.prompts().tokenizer().IdOf(piece).value(); }

  Piece Made(const std::string& text, const std::vector<TokenId>& tokens, FinishReason finish) const {
    Piece piece;
    piece.text = text;
    piece.tokens = tokens;
    piece.finish = finish;
    for (const TokenId token : tokens) {
      if (request_.base.logprobs) piece.logprobs.push_back({token, -0.5F, {{token, -0.5F}}});
    }
    return piece;
  }

  const DemoModel model_;
  ApiRequest request_;
};

TEST_F(Replying, CallsAreToldFromText) {
  request_.tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  const std::string text = "So: <tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}</tool_call>";
  Reply reply(&model_.served(), &request_, "7", 99);
  reply.Add(Made(text.substr(0, 9), {}, FinishReason::kNone));
  reply.Add(Made(text.substr(9), {2}, FinishReason::kStop));
  const Json choice = reply.Whole()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "So:");
  const Json call = ParseJson(R"({"id": "call_7_0_0", "type": "function",
      "function": {"name": "f", "arguments": "{\"n\":1}"}})",
                              "call")
                        .value();
  EXPECT_EQ(choice["message"]["tool_calls"], Json::array({call}));

  Reply streamed(&model_.served(), &request_, "7", 99);
  std::string frames = streamed.Frames(Made(text.substr(0, 9), {}, FinishReason::kNone));
  frames += streamed.Frames(Made(text.substr(9), {2}, FinishReason::kStop));
  const std::vector<Json> events = Events(frames);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "So:");
  Json indexed = {{"index", 0}};
  indexed.update(call);
  EXPECT_EQ(events[2]["choices"][0]["delta"], (Json{{"tool_calls", Json::array({indexed})}}));
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "tool_calls");
}

TEST_F(Replying, MalformedCallsStayText) {
  request_.tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  Reply reply(&model_.served(), &request_, "7", 99);
  reply.Add(Made("<tool_call>{", {}, FinishReason::kLength));
  const Json choice = reply.Whole()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "<tool_call>{");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(Replying, AWholeChat) {
  Reply reply(&model_.served(), &request_, "7", 99);
  reply.Add(Made("a", {Id("a")}, FinishReason::kNone));
  EXPECT_FALSE(reply.done());
  Piece last = Made("b", {Id("b"), 2}, FinishReason::kStop);
  last.cached_tokens = 2;
  reply.Add(last);
  EXPECT_TRUE(reply.done());
  const Json expected = ParseJson(R"({"id": "chatcmpl-7", "object": "chat.completion", "created": 99, "model": "demo",
      "choices": [{"index": 0, "message": {"role": "assistant", "content": "ab", "refusal": null}, "logprobs": null,
                   "finish_reason": "stop"}],
      "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6,
                "prompt_tokens_details": {"cached_tokens": 2}}})",
                                  "expected")
                            .value();
  EXPECT_EQ(reply.Whole(), expected);
}

TEST_F(Replying, AStreamedChat) {
  request_.include_usage = true;
  Reply reply(&model_.served(), &request_, "7", 99);
  std::vector<Json> events = Events(reply.Frames(Made("a", {Id("a")}, FinishReason::kNone)));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json({{"content", "a"}}));
  EXPECT_TRUE(events[1]["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(events[1]["usage"].is_null() && events[1].contains("usage"));
  EXPECT_EQ(reply.Frames(Made("", {Id("b")}, FinishReason::kNone)), "");  // held back
  events = Events(reply.Frames(Made("b", {}, FinishReason::kLength)));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[1]["choices"][0]["finish_reason"], "length");
  events = Events(reply.Closing());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["choices"], Json::array());
  EXPECT_EQ(events[0]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(events[1], "[DONE]");
}

TEST_F(Replying, UsageOnlyWhenAsked) {
  Reply reply(&model_.served(), &request_, "7", 99);
  EXPECT_FALSE(Events(reply.Frames(Made("a", {4}, FinishReason::kLength)))[0].contains("usage"));
  EXPECT_EQ(reply.Closing(), "data: [DONE]\n\n");
}

// Bytes of a character that two tokens share, and no entry for the token that ended the text.
TEST_F(Replying, LogprobsOfAChatCarryBytes) {
  request_.base.logprobs = true;
  Reply reply(&model_.served(), &request_, "7", 99);
  const std::vector<TokenId> emoji = model_.prompts().tokenizer().Encode("\xF0\x9F\x98\x80", {false, false}).value();
  ASSERT_GT(emoji.size(), 1U);
  Piece piece = Made("\xF0\x9F\x98\x80", emoji, FinishReason::kNone);
  piece.logprobs[0].logprob = -std::numeric_limits<float>::infinity();
  reply.Add(piece);
  reply.Add(Made("", {2}, FinishReason::kStop));
  const Json content = reply.Whole()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), emoji.size());
  std::string bytes;
  for (const Json& one : content) {
    for (const Json& byte : one["bytes"]) bytes += static_cast<char>(byte.get<int>());
    EXPECT_EQ(one["top_logprobs"].size(), 1U);
  }
  EXPECT_EQ(bytes, "\xF0\x9F\x98\x80");
  EXPECT_EQ(content[0]["logprob"], -9999.0);
  EXPECT_EQ(content[1]["logprob"], -0.5);
}

TEST_F(Replying, CompletionsEchoWithOffsets) {
  request_.chat = false;
  request_.echo = true;
  request_.base.logprobs = true;
  const text::Tokenizer& tokenizer = model_.prompts().tokenizer();
  request_.prompts = {tokenizer.Encode("a\xC3\xA9", {false, false}).value()};
  const size_t prompt = request_.prompts[0].size();
  for (const bool streamed : {false, true}) {
    Reply reply(&model_.served(), &request_, "7", 99);
    Piece piece = Made("b", {Id("b")}, FinishReason::kNone);
    for (size_t i = 1; i < prompt; ++i) piece.prompt_logprobs.push_back({request_.prompts[0][i], -1.0F, {}});
    const Piece end = Made("c", {Id("c")}, FinishReason::kLength);
    Json choice;
    if (streamed) {
      choice = Events(reply.Frames(piece))[0]["choices"][0];
      const Json last = Events(reply.Frames(end))[0]["choices"][0];
      choice["text"] = choice["text"].get<std::string>() + last["text"].get<std::string>();
      for (auto& [key, list] : choice["logprobs"].items()) {
        for (const Json& value : last["logprobs"][key]) list.push_back(value);
      }
    } else {
      reply.Add(piece);
      reply.Add(end);
      choice = reply.Whole()["choices"][0];
    }
    EXPECT_EQ(choice["text"],
              "a\xC3\xA9"
              "bc");
    const Json& logprobs = choice["logprobs"];
    for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
      EXPECT_EQ(logprobs[key].size(), prompt + 2) << key;
    }
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
    EXPECT_EQ(logprobs["token_logprobs"][1], -1.0);
    EXPECT_EQ(logprobs["text_offset"][prompt], 2);
    EXPECT_EQ(logprobs["text_offset"][prompt + 1], 3);
    EXPECT_EQ(logprobs["top_logprobs"][prompt]["b"], -0.5);
  }
}

TEST_F(Replying, ChoicesArePromptMajor) {
  request_.chat = false;
  request_.echo = true;
  request_.choices = 2;
  request_.prompts = {{Id("a")}, {Id("b")}};
  Reply reply(&model_.served(), &request_, "7", 99);
  for (size_t i = 4; i-- > 0;) {
    Piece piece = Made(std::to_string(i), {Id("c")}, FinishReason::kLength);
    piece.request = i;
    reply.Add(piece);
  }
  const Json whole = reply.Whole();
  EXPECT_EQ(whole["id"], "cmpl-7");
  EXPECT_EQ(whole["object"], "text_completion");
  const char* const texts[] = {"a0", "a1", "b2", "b3"};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(whole["choices"][i]["text"], texts[i]);
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 2);  // once a prompt
  EXPECT_EQ(whole["usage"]["completion_tokens"], 4);
}

}  // namespace
}  // namespace trivet::server
