// SPDX-License-Identifier: Apache-2.0
#include "server/messages.h"

#include <gtest/gtest.h>

namespace trivet::server {
namespace {

// The field that a refusal names; empty when the body is fine.
std::string Refused(const Json& body) {
  Json messages;
  ToolRequest tools;
  const ApiStatus read = ReadMessages(body, &messages);
  if (!read.ok()) return read.error().param;
  const ApiStatus of_tools = ReadTools(body, &tools);
  return of_tools.ok() ? "" : of_tools.error().param;
}

Json With(Json message) { return {{"messages", Json::array({std::move(message)})}}; }

TEST(Messages, ContentsBecomeTexts) {
  const Json body = ParseJson(R"({"messages": [
      {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "user", "content": "hi", "name": "Ann"},
      {"role": "assistant", "content": null, "tool_calls": [
          {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "2"}]})",
                              "body")
                        .value();
  Json messages;
  const ApiStatus read = ReadMessages(body, &messages);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[0]["content"], "a\nb");
  EXPECT_EQ(messages[1], body["messages"][1]);
  EXPECT_EQ(messages[2]["content"], "");
  EXPECT_EQ(messages[2]["tool_calls"], body["messages"][2]["tool_calls"]);
  EXPECT_EQ(messages[3]["tool_call_id"], "c1");
}

TEST(Messages, WhatIsWrongIsNamed) {
  EXPECT_EQ(Refused(Json::object()), "messages");
  EXPECT_EQ(Refused({{"messages", Json::array()}}), "messages");
  EXPECT_EQ(Refused({{"messages", "hi"}}), "messages");
  EXPECT_EQ(Refused({{"messages", {"hi"}}}), "messages[0]");
  EXPECT_EQ(Refused(With({{"role", "robot"}, {"content", "x"}})), "messages[0].role");
  EXPECT_EQ(Refused(With({{"role", "user"}})), "messages[0].content");
  EXPECT_EQ(Refused(With({{"role", "user"}, {"content", 3}})), "messages[0].content");
  const Json image = {{"type", "image_url"}, {"image_url", {{"url", "x"}}}};
  EXPECT_EQ(Refused(With({{"role", "user"}, {"content", Json::array({image})}})), "messages[0].content[0].type");
  const Json call = {{"function", {{"name", "f"}, {"arguments", 3}}}};
  EXPECT_EQ(Refused(With({{"role", "assistant"}, {"tool_calls", Json::array({call})}})),
            "messages[0].tool_calls[0].function.arguments");
  EXPECT_EQ(Refused(With({{"role", "assistant"}})), "");
  // An entry that is no object is named itself, not a field that it cannot have.
  EXPECT_EQ(Refused(With({{"role", "user"}, {"content", Json::array({"hi"})}})), "messages[0].content[0]");
  EXPECT_EQ(Refused(With({{"role", "assistant"}, {"tool_calls", Json::array({5})}})), "messages[0].tool_calls[0]");
}

TEST(Messages, ToolsAndTheirChoice) {
  const Json function = {{"type", "function"}, {"function", {{"name", "f"}}}};
  Json body = With({{"role", "user"}, {"content", "x"}});
  body["tools"] = Json::array({function});
  ToolRequest asked;
  ASSERT_TRUE(ReadTools(body, &asked).ok());
  EXPECT_EQ(asked.tools, body["tools"]);
  EXPECT_TRUE(asked.forced.is_null() && asked.parallel);
  body["tool_choice"] = "none";
  ASSERT_TRUE(ReadTools(body, &asked).ok());
  EXPECT_TRUE(asked.tools.is_null() && asked.forced.is_null());
  body["tool_choice"] = "required";
  body["parallel_tool_calls"] = false;
  ASSERT_TRUE(ReadTools(body, &asked).ok());
  EXPECT_EQ(asked.forced, body["tools"]);
  EXPECT_FALSE(asked.parallel);
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", function["function"]["name"]}}}};
  ASSERT_TRUE(ReadTools(body, &asked).ok());
  EXPECT_EQ(asked.forced, Json::array({function}));
  for (const Json& wrong : {Json("always"), Json(3), Json({{"type", "function"}, {"function", {{"name", "g"}}}}),
                            Json({{"type", "custom"}, {"function", {{"name", "f"}}}})}) {
    body["tool_choice"] = wrong;
    EXPECT_EQ(Refused(body), "tool_choice");
  }
  body["parallel_tool_calls"] = 1;
  EXPECT_EQ(Refused(body), "parallel_tool_calls");
  body.erase("parallel_tool_calls");
  body["tool_choice"] = "auto";
  body["tools"][0]["function"].erase("name");
  EXPECT_EQ(Refused(body), "tools[0].function.name");
  body["tools"] = Json::array({5});
  EXPECT_EQ(Refused(body), "tools[0]");
  body["tools"] = Json::array({{{"type", "browser"}}});
  EXPECT_EQ(Refused(body), "tools[0].type");
}

}  // namespace
}  // namespace trivet::server
