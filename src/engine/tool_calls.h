// SPDX-License-Identifier: Apache-2.0
// Function calls as models write them between <tool_call> and </tool_call>, found in a text that comes in pieces.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/prompts.h"

namespace trivet::engine {

/// What stands between the tags.
enum class ToolStyle {
  kJson,  // {"name": ..., "arguments": {...}}: Hermes, Qwen 2.5, Qwen 3
  kXml,   // <function=name><parameter=key>value</parameter>...</function>: Qwen 3 Coder, Qwen 3.5
};

/// The style that the chat template teaches the model; JSON where it teaches none.
ToolStyle ToolStyleOf(const Prompts& prompts);

/// A call.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, as OpenAI's API has it
};

/// Part of a text: characters, or a call.
struct ToolPiece {
  std::string text;
  std::optional<ToolCall> call;
};

/// Finds calls in one text. How it is cut into pieces makes no difference to the calls and to the characters between
/// them. What is no well-formed call stays text; white space around calls is left out.
class ToolCallParser {
 public:
  ///   tools   the request's list, whose schemas say what an XML value is
  ToolCallParser(ToolStyle style, Json tools) : style_(style), tools_(std::move(tools)) {}

  /// Takes the next piece and returns what is now certain.
  std::vector<ToolPiece> Push(std::string_view text);
  /// The end of the text: what was held back. A call whose closing tag is missing, and nothing else, is a call.
  std::vector<ToolPiece> Flush();

 private:
  std::optional<ToolCall> Read(std::string_view body) const;
  std::optional<ToolCall> ReadJson(std::string_view body) const;
  std::optional<ToolCall> ReadXml(std::string_view body) const;
  Json XmlValue(const std::string& function, const std::string& key, const std::string& text) const;
  void AddText(std::string_view text, std::vector<ToolPiece>* pieces);

  ToolStyle style_;
  Json tools_;
  std::string held_;   // not yet judged
  std::string space_;  // white space that a call may follow
  bool after_call_ = false;
};

}  // namespace trivet::engine
