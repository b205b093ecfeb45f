// SPDX-License-Identifier: Apache-2.0
#include "grammar/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "grammar/json_grammar.h"
#include "grammar/schema.h"

namespace trivet::grammar {
namespace {

// Every byte, and pieces of JSON.
TokenTrie Vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token :
       {"{\"", "\":", "\": ", "\",", "[[", "]]", "true", "\xE8\xAA", "\"}", "\"a\": 1", ", \"", "x\"", ""}) {
    tokens.emplace_back(token);
  }
  return TokenTrie(tokens);
}

std::shared_ptr<Constraint> Of(const Json& schema, const TokenTrie* vocabulary) {  // shared_ptr: what Matcher takes
  GrammarBuilder b;
  const auto node = SchemaReader(&schema, "schema", &b).Read();
  CHECK_MSG(node.ok(), node.error().message);
  auto grammar = std::move(b).Finish(*node, "schema");
  CHECK_MSG(grammar.ok(), grammar.error().message);
  return Constraint::Make(std::move(grammar).value(), vocabulary, "schema").value();
}

std::vector<TokenId> Ids(const TokenMask& mask) {
  std::vector<TokenId> ids;
  for (size_t id = 0; id < mask.size() * 64; ++id) {
    if ((mask[id / 64] >> id % 64 & 1) != 0) ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

TEST(Matcher, RandomTokensGiveValidText) {
  const TokenTrie vocabulary = Vocabulary();
  const Json schema = Json::parse(R"({"type": "object", "required": ["name", "kids"], "properties": {
      "name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
      "kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}}})");
  const auto constraint = Of(schema, &vocabulary);
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Matcher matcher(constraint);
    std::string text;
    while (!matcher.MustEnd() && text.size() < 2000) {
      const std::vector<TokenId> ids = Ids(matcher.Allowed());
      ASSERT_FALSE(ids.empty()) << text;
      const TokenId id = ids[random() % ids.size()];
      matcher.Accept(id);
      text += vocabulary.BytesOf(id);
    }
    if (!matcher.MustEnd()) continue;
    EXPECT_TRUE(matcher.CanEnd());
    EXPECT_TRUE(Json::accept(text)) << text;
  }
}

TEST(Matcher, AnswersShareStatesAndDoNotMeet) {
  const TokenTrie vocabulary = Vocabulary();
  const auto constraint = Of(Json::parse(R"({"enum": ["ab", "cd"]})"), &vocabulary);
  Matcher one(constraint), two(constraint);
  one.Accept('"'), one.Accept('a');
  two.Accept('"'), two.Accept('c');
  EXPECT_THAT(Ids(one.Allowed()), testing::ElementsAre('b'));
  EXPECT_THAT(Ids(two.Allowed()), testing::ElementsAre('d'));
}

TEST(Matcher, SurvivesForgettingStates) {
  const TokenTrie vocabulary = Vocabulary();
  const auto constraint = Of(Json::parse(R"({"type": "string", "maxLength": 1000000})"), &vocabulary);
  Matcher early(constraint), late(constraint);
  early.Accept('"'), early.Accept(0xE8);
  late.Accept('"');
  for (size_t i = 0; i < kMaxStates + 10; ++i) late.Accept('x');
  EXPECT_FALSE(late.CanEnd());
  early.Accept(0xAA), early.Accept(0x9E), early.Accept('"');
  EXPECT_TRUE(early.MustEnd());
}

TEST(Constraint, RefusesTooManyBeginnings) {
  const TokenTrie vocabulary = Vocabulary();
  GrammarBuilder b;
  std::vector<NodeId> choices;
  for (int i = 0; i < 5000; ++i) choices.push_back(b.Sequence({b.Literal("a"), b.Literal(std::to_string(i))}));
  const NodeId root = b.Choice(choices);
  auto grammar = std::move(b).Finish(root, "it");
  ASSERT_TRUE(grammar.ok());
  EXPECT_EQ(Constraint::Make(std::move(grammar).value(), &vocabulary, "it").error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace trivet::grammar
