// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <fmt/format.h>

#include <utility>

#include "base/str.h"
#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_lexer.h"
#include "text/jinja_parser.h"
#include "text/jinja_tests.h"

namespace trivet::text {
namespace {

constexpr char kConfigName[] = "/tokenizer_config.json";

// The tokenizer's configuration, or an empty object when the file is missing.
Result<Json> ReadConfig(const std::string& path) {
  Result<Json> config = ReadJsonFile(path);
  if (!config.ok() && config.error().code == Code::kNotFound) return Json::object();
  if (config.ok() && !config->is_object()) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected a JSON object, found another value; correct it", path));
  }
  return config;
}

Result<std::optional<std::string>> ChooseNamed(const Json& list, bool with_tools, const std::string& path) {
  std::optional<std::string> chosen, fallback;
  for (const Json& entry : list) {
    TRY_ASSIGN(const std::string name, GetString(entry, "name", "", path));
    TRY_ASSIGN(std::string source, GetString(entry, "template", "", path));
    if (name == "default")
      fallback = std::move(source);
    else if (name == "tool_use" && with_tools)
      chosen = std::move(source);
  }
  return chosen.has_value() ? chosen : fallback;
}

// The text of a token given as a string or as an object with "content".
std::optional<std::string> TokenText(const Json& token) {
  const Json* content = token.is_object() ? Find(token, "content") : &token;
  if (content == nullptr || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

void ParseArguments(Json* call) {
  Json* target = call;
  if (call->is_object() && call->contains("function")) target = &(*call)["function"];
  if (!target->is_object() || !target->contains("arguments")) return;
  Json& arguments = (*target)["arguments"];
  if (!arguments.is_string()) return;
  Result<Json> parsed = ParseJson(arguments.get_ref<const std::string&>(), "arguments");
  if (parsed.ok() && parsed->is_object()) arguments = std::move(*parsed);
}

}  // namespace

struct ChatTemplate::Tree {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
ChatTemplate::ChatTemplate(ChatTemplate&& other) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&& other) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string source) {
  TRY_ASSIGN(jinja::Body body, jinja::Parse(source, {&jinja::IsFilter, &jinja::IsTest}));
  return ChatTemplate(std::make_unique<const Tree>(Tree{std::move(body)}));
}

Result<std::string> ChatTemplate::Render(const Json& context) const { return jinja::Evaluate(tree_->body, context); }

Result<std::optional<std::string>> LoadChatTemplate(const std::string& dir, bool with_tools) {
  Result<std::string> file = ReadTextFile(dir + "/chat_template.jinja", jinja::kMaxSource);
  if (file.ok()) return std::optional<std::string>(std::move(*file));
  if (file.error().code != Code::kNotFound) return file.error();
  const std::string path = dir + kConfigName;
  TRY_ASSIGN(const Json config, ReadConfig(path));
  const Json* source = Find(config, "chat_template");
  if (source == nullptr || source->is_null()) return std::optional<std::string>();
  if (source->is_string()) return std::optional<std::string>(source->get<std::string>());
  if (source->is_array()) return ChooseNamed(*source, with_tools, path);
  return MakeError(Code::kInvalid,
                   fmt::format("{}: \"chat_template\": expected a string or a list of templates, found another value; "
                               "correct the file",
                               path));
}

Result<Json> SpecialTokens(const std::string& dir) {
  TRY_ASSIGN(const Json config, ReadConfig(dir + kConfigName));
  Json tokens = Json::object();
  for (const auto& [key, value] : config.items()) {
    const std::optional<std::string> text = key.ends_with("_token") ? TokenText(value) : std::nullopt;
    if (text.has_value()) tokens[key] = *text;
    if (key != "additional_special_tokens" || !value.is_array()) continue;
    Json list = Json::array();
    for (const Json& token : value) {
      const std::optional<std::string> item = TokenText(token);
      if (item.has_value()) list.push_back(*item);
    }
    tokens[key] = std::move(list);
  }
  return tokens;
}

Json NormalizeMessages(const Json& messages) {
  Json result = messages;
  if (!result.is_array()) return result;
  for (Json& message : result) {
    if (!message.is_object() || !message.contains("tool_calls")) continue;
    Json& calls = message["tool_calls"];
    if (!calls.is_array()) continue;
    for (Json& call : calls) ParseArguments(&call);
  }
  return result;
}

}  // namespace trivet::text
