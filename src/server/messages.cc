// SPDX-License-Identifier: Apache-2.0
#include "server/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace trivet::server {
namespace {

// The text of a content: a string, or parts of type "text".
ApiStatus ReadContent(const Json& content, const std::string& param, std::string* text) {
  text->clear();
  if (content.is_null()) return {};
  if (content.is_string()) {
    *text = content.get<std::string>();
    return {};
  }
  if (!content.is_array()) return WrongField(param, "a text or a list of parts", content);
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", param, i);
    if (!content[i].is_object()) return WrongField(where, "an object with type and text", content[i]);
    if (Member(content[i], "type") != "text") {
      return WrongField(where + ".type", "\"text\", the only kind this server reads", Member(content[i], "type"),
                        "leave the part out");
    }
    const Json& part = Member(content[i], "text");
    if (!part.is_string()) return WrongField(where + ".text", "a text", part);
    if (i > 0) *text += '\n';
    *text += part.get<std::string>();
  }
  return {};
}

// Function calls of an assistant's turn.
ApiStatus CheckToolCalls(const Json& calls, const std::string& param) {
  if (calls.is_null()) return {};
  if (!calls.is_array()) return WrongField(param, "a list of function calls", calls);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].is_object()) return WrongField(fmt::format("{}[{}]", param, i), "an object with function", calls[i]);
    const Json& function = Member(calls[i], "function");
    const std::string where = fmt::format("{}[{}].function", param, i);
    if (!Member(function, "name").is_string()) return WrongField(where + ".name", "a text", Member(function, "name"));
    const Json& arguments = Member(function, "arguments");
    if (!arguments.is_string()) return WrongField(where + ".arguments", "a text with a JSON object", arguments);
  }
  return {};
}

ApiStatus ReadMessage(const Json& given, const std::string& where, Json* message) {
  if (!given.is_object()) return WrongField(where, "an object with role and content", given);
  constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  const Json& role = Member(given, "role");
  if (std::none_of(std::begin(kRoles), std::end(kRoles), [&](const char* known) { return role == known; })) {
    return WrongField(where + ".role", "system, developer, user, assistant or tool", role);
  }
  *message = given;
  if (role == "developer") (*message)["role"] = "system";
  std::string text;
  TRY(ReadContent(Member(given, "content"), where + ".content", &text));
  TRY(CheckToolCalls(Member(given, "tool_calls"), where + ".tool_calls"));
  if (role != "assistant" && Member(given, "content").is_null()) {
    return WrongField(where + ".content", "a text or a list of parts", Json());
  }
  (*message)["content"] = text;
  return {};
}

}  // namespace

ApiStatus ReadMessages(const Json& body, Json* messages) {
  const Json& given = Member(body, "messages");
  if (!given.is_array() || given.empty()) {
    return WrongField("messages", "a list of at least one message", given, "give [{\"role\": ..., \"content\": ...}]");
  }
  *messages = Json::array();
  for (size_t i = 0; i < given.size(); ++i) {
    Json message;
    TRY(ReadMessage(given[i], fmt::format("messages[{}]", i), &message));
    messages->push_back(std::move(message));
  }
  return {};
}

ApiStatus ReadTools(const Json& body, ToolRequest* request) {
  *request = {};
  const Json& parallel = Member(body, "parallel_tool_calls");
  if (!parallel.is_null() && !parallel.is_boolean())
    return WrongField("parallel_tool_calls", "true or false", parallel);
  request->parallel = parallel != false;
  const Json& choice = Member(body, "tool_choice");
  const Json& named = Member(Member(choice, "function"), "name");
  const bool required = choice == "required";
  const Json& kind = Member(choice, "type");
  const bool function = named.is_string() && (kind.is_null() || kind == "function");
  if (!choice.is_null() && choice != "auto" && choice != "none" && !required && !function) {
    return WrongField("tool_choice",
                      "\"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}",
                      choice);
  }
  const Json& given = Member(body, "tools");
  if (!given.is_null() && !given.is_array()) return WrongField("tools", "a list of functions", given);
  Json forced = Json::array();
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    if (!given[i].is_object()) return WrongField(where, "an object with type and function", given[i]);
    if (Member(given[i], "type") != "function")
      return WrongField(where + ".type", "\"function\"", Member(given[i], "type"));
    const Json& name = Member(Member(given[i], "function"), "name");
    if (!name.is_string() || name == "") return WrongField(where + ".function.name", "a text", name);
    if (required || name == named) forced.push_back(given[i]);
  }
  if ((required || named.is_string()) && forced.empty()) {
    return WrongField("tool_choice", "one of the functions in \"tools\"", choice);
  }
  if (choice != "none" && !given.empty()) request->tools = given;
  if (!forced.empty()) request->forced = std::move(forced);
  request->parallel = request->parallel && !named.is_string();
  return {};
}

}  // namespace trivet::server
