// SPDX-License-Identifier: Apache-2.0
#include "engine/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "l": {"type": "array"}, "any": {}}}}}])");

// Text and calls as "text|name arguments|text".
std::string Shown(ToolStyle style, std::string_view text, size_t size) {
  ToolCallParser parser(style, kTools);
  std::vector<std::string> parts;
  bool in_text = false;
  const auto add = [&](const std::vector<ToolPiece>& pieces) {
    for (const ToolPiece& piece : pieces) {
      const bool text = !piece.call;
      const std::string shown = text ? piece.text : piece.call->name + " " + piece.call->arguments;
      if (text && in_text) {
        parts.back() += shown;
      } else {
        parts.push_back(shown);
      }
      in_text = text;
    }
  };
  for (size_t i = 0; i < text.size(); i += size) add(parser.Push(text.substr(i, size)));
  add(parser.Flush());
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : "|") + part;
  return all;
}

void Look(ToolStyle style, const std::vector<std::pair<std::string, std::string>>& rows) {
  for (const auto& [text, expected] : rows) {
    for (size_t size = 1; size <= text.size(); ++size) ASSERT_EQ(Shown(style, text, size), expected) << text << size;
  }
}

TEST(ToolCallParser, FindsJsonCalls) {
  Look(ToolStyle::kJson,
       {{"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>", "f {\"n\":1}"},
        {"Let me see.\n\n<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>\n{\"name\":\"g\",\"arguments\":\"{}\"}\n"
         "</tool_call>\n",
         "Let me see.|f {}|g {}"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"語 <b>\"}}", "f {\"s\":\"語 <b>\"}"},
        {"plain < text <tool_ and more \n", "plain < text <tool_ and more \n"},
        {"  ", "  "}});
}

TEST(ToolCallParser, LosesNothingOfMalformedCalls) {
  for (const char* text : {"<tool_call>", "a <tool_call>{\"name\": 3}</tool_call> b", "<tool_call>{\"name\": \"f\"",
                           "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", "<tool_call></tool_call>",
                           "x <tool_call>{\"name\": \"f\", \"arguments\": \"{\"}</tool_call>\n\n"}) {
    Look(ToolStyle::kJson, {{text, text}});
  }
  Look(ToolStyle::kJson,
       {{"<tool_call>oh</tool_call> <tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>oh</tool_call>|f {}"}});
  for (const char* text :
       {"<tool_call><function=f></tool_call>", "<tool_call><function=></function></tool_call>",
        "<tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call><function=f><parameter=n>1</function></tool_call>"}) {
    Look(ToolStyle::kXml, {{text, text}});
  }
}

TEST(ToolCallParser, FindsXmlCallsAndTypesTheirValues) {
  Look(ToolStyle::kXml,
       {{"<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n<parameter=s>\n12\n</parameter>\n"
         "<parameter=l>\n[1, \"a\"]\n</parameter>\n<parameter=any>\n{}\n</parameter>\n</function>\n</tool_call>",
         "f {\"n\":12,\"s\":\"12\",\"l\":[1,\"a\"],\"any\":\"{}\"}"},
        {"ok <tool_call><function=g></function></tool_call>", "ok|g {}"},
        {"<tool_call><function=f><parameter=s>\n\nline\n\n</parameter></function></tool_call>",
         "f {\"s\":\"\\nline\\n\"}"},
        {"<tool_call><function=f><parameter=n>twelve</parameter></function></tool_call>", "f {\"n\":\"twelve\"}"}});
}

TEST(ToolStyleOf, TheDemosTemplateTeachesNone) {
  EXPECT_EQ(ToolStyleOf(Prompts::Open(DemoDir()).value()), ToolStyle::kJson);
}

}  // namespace
}  // namespace trivet::engine
