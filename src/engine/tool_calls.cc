// SPDX-License-Identifier: Apache-2.0
#include "engine/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/str.h"

namespace trivet::engine {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr std::string_view kSpaces = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

bool Take(std::string_view* text, std::string_view begin) {
  if (!text->starts_with(begin)) return false;
  text->remove_prefix(begin.size());
  return true;
}

// What comes before `end`, which is taken too.
std::optional<std::string_view> TakeUntil(std::string_view* text, std::string_view end) {
  const size_t at = text->find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text->substr(0, at);
  text->remove_prefix(at + end.size());
  return before;
}

// The longest end of `text` that `tag` begins with, but not the whole tag.
size_t BegunTag(std::string_view text, std::string_view tag) {
  size_t length = std::min(text.size(), tag.size() - 1);
  while (length > 0 && !text.ends_with(tag.substr(0, length))) --length;
  return length;
}

// The schema of one argument, or null.
const Json& ArgumentSchema(const Json& tools, const std::string& function, const std::string& key) {
  for (const Json& tool : tools) {
    if (Member(Member(tool, "function"), "name") != function) continue;
    return Member(Member(Member(Member(tool, "function"), "parameters"), "properties"), key);
  }
  static const Json kAbsent;
  return kAbsent;
}

}  // namespace

ToolStyle ToolStyleOf(const Prompts& prompts) {
  const Json tool = {{"type", "function"},
                     {"function",
                      {{"name", "look"},
                       {"description", "Looks."},
                       {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}};
  const Json messages = Json::array({{{"role", "user"}, {"content", "Hello"}}});
  const Result<std::string> rendered = prompts.Render({{"messages", messages}, {"tools", Json::array({tool})}});
  return rendered.ok() && rendered->find(kFunction) != std::string::npos ? ToolStyle::kXml : ToolStyle::kJson;
}

void ToolCallParser::AddText(std::string_view text, std::vector<ToolPiece>* pieces) {
  if (text.empty()) return;
  after_call_ = false;
  pieces->push_back({std::exchange(space_, {}).append(text), std::nullopt});
}

std::vector<ToolPiece> ToolCallParser::Push(std::string_view text) {
  std::vector<ToolPiece> pieces;
  held_ += text;
  while (true) {
    const size_t open = held_.find(kOpen);
    if (open == std::string::npos) break;
    const size_t close = held_.find(kClose, open);
    const bool whole = close != std::string::npos;
    const std::string_view before = std::string_view(held_).substr(0, open);
    const size_t text_end = before.find_last_not_of(kSpaces) + 1;  // 0 when there is none
    AddText(before.substr(0, text_end), &pieces);
    space_ += before.substr(text_end);
    if (!whole) {
      held_.erase(0, open);
      return pieces;
    }
    const size_t end = close + kClose.size();
    const std::string_view body = std::string_view(held_).substr(open + kOpen.size(), close - open - kOpen.size());
    if (std::optional<ToolCall> call = Read(body)) {
      pieces.push_back({"", std::move(call)});
      space_.clear();
      after_call_ = true;
    } else {
      AddText(std::string_view(held_).substr(open, end - open), &pieces);
    }
    held_.erase(0, end);
  }
  const size_t sure = held_.size() - BegunTag(held_, kOpen);
  const std::string_view certain = std::string_view(held_).substr(0, sure);
  const size_t text_end = certain.find_last_not_of(kSpaces) + 1;
  AddText(certain.substr(0, text_end), &pieces);
  space_ += certain.substr(text_end);
  held_.erase(0, sure);
  return pieces;
}

std::vector<ToolPiece> ToolCallParser::Flush() {
  std::vector<ToolPiece> pieces;
  std::string_view body = held_;
  std::optional<ToolCall> call;
  if (Take(&body, kOpen)) call = Read(body);
  if (call) {
    pieces.push_back({"", std::move(call)});
  } else {
    if (!after_call_ && held_.empty()) held_ = std::exchange(space_, {});
    AddText(held_, &pieces);
  }
  held_.clear();
  space_.clear();
  return pieces;
}

std::optional<ToolCall> ToolCallParser::Read(std::string_view body) const {
  return style_ == ToolStyle::kJson ? ReadJson(Trimmed(body)) : ReadXml(Trimmed(body));
}

std::optional<ToolCall> ToolCallParser::ReadJson(std::string_view body) const {
  const Result<Json> parsed = ParseJson(body, "call");
  if (!parsed.ok() || !Member(*parsed, "name").is_string()) return std::nullopt;
  Json arguments = Member(*parsed, "arguments");
  if (arguments.is_string()) {
    Result<Json> inner = ParseJson(arguments.get<std::string>(), "arguments");
    arguments = inner.ok() ? std::move(inner).value() : Json();
  } else if (arguments.is_null()) {
    arguments = Json::object();
  }
  if (!arguments.is_object()) return std::nullopt;
  return ToolCall{(*parsed)["name"].get<std::string>(), DumpJson(arguments)};
}

std::optional<ToolCall> ToolCallParser::ReadXml(std::string_view body) const {
  if (!Take(&body, kFunction)) return std::nullopt;
  const auto name = TakeUntil(&body, ">");
  if (!name || name->empty()) return std::nullopt;
  Json arguments = Json::object();
  while (true) {
    body = Trimmed(body);
    if (body == kFunctionEnd) return ToolCall{std::string(*name), DumpJson(arguments)};
    if (!Take(&body, kParameter)) return std::nullopt;
    const auto key = TakeUntil(&body, ">");
    const auto value = key ? TakeUntil(&body, kParameterEnd) : std::nullopt;
    if (!value) return std::nullopt;
    std::string_view text = *value;  // between line breaks
    Take(&text, "\n");
    if (text.ends_with('\n')) text.remove_suffix(1);
    arguments[std::string(*key)] = XmlValue(std::string(*name), std::string(*key), std::string(text));
  }
}

// A text, unless the schema says that it is something else.
Json ToolCallParser::XmlValue(const std::string& function, const std::string& key, const std::string& text) const {
  const Json& schema = ArgumentSchema(tools_, function, key);
  const bool other = (!Member(schema, "type").is_null() && Member(schema, "type") != "string") ||
                     Find(schema, "anyOf") != nullptr || Find(schema, "$ref") != nullptr;
  if (!other) return text;
  Result<Json> parsed = ParseJson(text, "value");
  return parsed.ok() ? std::move(parsed).value() : Json(text);
}

}  // namespace trivet::engine
