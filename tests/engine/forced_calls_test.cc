// SPDX-License-Identifier: Apache-2.0
#include "engine/forced_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/prompts.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

using testing::HasSubstr;

const Json kTools = Json::parse(R"([
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "required": ["city", "days"],
     "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
                    "unit": {"enum": ["C", "F"]}, "place": {"$ref": "#/$defs/point"}},
     "$defs": {"point": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}}}}},
    {"type": "function", "function": {"name": "now"}}])");

class Forcing : public testing::Test {
 protected:
  // What random choices among the allowed tokens come to.
  std::string RandomText(const ForcedCalls& forced, uint32_t seed) {
    grammar::Matcher matcher(ForceCalls(forced, &constraints_).value());
    std::mt19937 random(seed);
    const ToolStyle style = forced.style;
    std::string text;
    while (!matcher.MustEnd() && text.size() < 20000) {
      const grammar::TokenMask& mask = matcher.Allowed();
      // Texts end at some time: a byte of what closes them is often taken.
      const std::string_view close = style == ToolStyle::kXml ? "\n</parameter>" : "\"";
      size_t begun = std::min(text.size(), close.size() - 1);
      while (!text.ends_with(close.substr(0, begun))) --begun;
      std::vector<TokenId> all, closing;
      for (TokenId id = 0; id < prompts_.tokenizer().vocab_size(); ++id) {
        if ((mask[static_cast<size_t>(id) / 64] >> id % 64 & 1) == 0) continue;
        all.push_back(id);
        if (prompts_.tokenizer().TokenBytes(id) == close.substr(begun, 1)) closing.push_back(id);
      }
      CHECK(!all.empty());
      const std::vector<TokenId>& from = closing.empty() || random() % 8 == 0 ? all : closing;
      const TokenId id = from[random() % from.size()];
      matcher.Accept(id);
      text += prompts_.tokenizer().TokenBytes(id);
      if (matcher.CanEnd() && random() % 2 == 0) break;
    }
    return text;
  }

  const Prompts prompts_ = Prompts::Open(DemoDir()).value();
  Constraints constraints_{&prompts_.tokenizer(), {2, 0}};
};

TEST_F(Forcing, TextsAreCallsAndNothingElse) {
  for (const ToolStyle style : {ToolStyle::kJson, ToolStyle::kXml}) {
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const bool parallel = seed % 2 == 0;
      const std::string text = RandomText({style, kTools, parallel}, seed);
      ToolCallParser parser(style, kTools);
      std::vector<ToolPiece> pieces = parser.Push(text);
      EXPECT_TRUE(parser.Flush().empty());
      ASSERT_GE(pieces.size(), 1U) << text;
      ASSERT_LE(pieces.size(), parallel ? static_cast<size_t>(kMaxForcedCalls) : 1U) << text;
      for (const ToolPiece& piece : pieces) {
        ASSERT_TRUE(piece.call) << text;
        const Json arguments = Json::parse(piece.call->arguments);
        if (piece.call->name == "now") {
          EXPECT_EQ(arguments, Json::object());
          continue;
        }
        EXPECT_EQ(piece.call->name, "weather");
        EXPECT_TRUE(arguments["city"].is_string());
        EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 14) << text;
        EXPECT_TRUE(!arguments.contains("place") || arguments["place"].size() == 2) << text;
      }
    }
  }
}

TEST_F(Forcing, WhatCannotBeHeldToIsNamed) {
  Json tools = kTools;
  tools[0]["function"]["parameters"]["not"] = true;
  const auto json = ForceCalls({ToolStyle::kJson, tools, false}, &constraints_);
  ASSERT_FALSE(json.ok());
  EXPECT_THAT(json.error().message, HasSubstr("weather"));
  tools = kTools;
  tools[0]["function"]["parameters"]["properties"]["city"]["maxLength"] = 3;
  EXPECT_TRUE(ForceCalls({ToolStyle::kJson, tools, false}, &constraints_).ok());
  const auto xml = ForceCalls({ToolStyle::kXml, tools, false}, &constraints_);
  ASSERT_FALSE(xml.ok());
  EXPECT_THAT(xml.error().message, HasSubstr("maxLength"));
}

}  // namespace
}  // namespace trivet::engine
