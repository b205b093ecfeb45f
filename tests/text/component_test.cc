// SPDX-License-Identifier: Apache-2.0
#include "text/component.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json Parse(std::string_view text) { return ParseJson(text, "test").value(); }

std::vector<std::string> Types(const Json& json) {
  std::vector<std::string> types;
  const auto components = ListComponents(json, "parts", "file");
  EXPECT_TRUE(components.ok());
  if (!components.ok()) return types;
  for (const Component& component : *components) types.push_back(component.type);
  return types;
}

TEST(Component, SequencesAreOpenedInOrder) {
  EXPECT_THAT(Types(Json()), ElementsAre());
  EXPECT_THAT(Types(Parse(R"({"type": "A"})")), ElementsAre("A"));
  EXPECT_THAT(Types(Parse(R"({"type": "Sequence", "parts": [{"type": "A"},
      {"type": "Sequence", "parts": [{"type": "B"}, {"type": "C"}]}, {"type": "D"}]})")),
              ElementsAre("A", "B", "C", "D"));
  EXPECT_THAT(Types(Parse(R"({"type": "Sequence", "parts": []})")), ElementsAre());
}

TEST(Component, MalformedOnesAreErrors) {
  for (const char* text : {"3", "{}", R"({"type": 1})", R"({"type": "Sequence"})",
                           R"({"type": "Sequence", "parts": [null]})", R"({"type": "Sequence", "parts": {}})"}) {
    const auto components = ListComponents(Parse(text), "parts", "file");
    ASSERT_FALSE(components.ok()) << text;
    EXPECT_EQ(components.error().code, Code::kInvalid);
    EXPECT_THAT(components.error().message, HasSubstr("file: "));
  }
  Json many = Parse(R"({"type": "Sequence", "parts": []})");
  for (int i = 0; i < 1000; ++i) many["parts"].push_back(Parse(R"({"type": "A"})"));
  EXPECT_FALSE(ListComponents(many, "parts", "file").ok());
}

TEST(Component, CharactersAreOneCodePoint) {
  EXPECT_EQ(GetCharacter(Parse(R"({"c": "▁"})"), "c", 0, "file").value(), U'\u2581');
  EXPECT_EQ(GetCharacter(Parse("{}"), "c", U'x', "file").value(), U'x');
  EXPECT_FALSE(GetCharacter(Parse("{}"), "c", 0, "file").ok());
  EXPECT_FALSE(GetCharacter(Parse(R"({"c": "ab"})"), "c", U'x', "file").ok());
  EXPECT_FALSE(GetCharacter(Parse(R"({"c": ""})"), "c", U'x', "file").ok());
}

TEST(Component, PatternsAreTextsOrExpressions) {
  EXPECT_EQ(NeedPattern(Parse(R"({"pattern": {"String": "."}})"), "file")->Split("a.")->size(), 2U);
  EXPECT_EQ(NeedPattern(Parse(R"({"pattern": {"Regex": "."}})"), "file")->Split("a.")->size(), 2U);
  for (const char* text : {"{}", R"({"pattern": "a"})", R"({"pattern": {"Glob": "a"}})", R"({"pattern": {"Regex": 1}})",
                           R"({"pattern": {"String": ""}})"}) {
    EXPECT_FALSE(NeedPattern(Parse(text), "file").ok()) << text;
  }
}

TEST(Component, PrependSchemeHasAnOlderName) {
  EXPECT_EQ(GetPrependScheme(Parse("{}"), "file").value(), PrependScheme::kAlways);
  EXPECT_EQ(GetPrependScheme(Parse(R"({"add_prefix_space": false})"), "file").value(), PrependScheme::kNever);
  EXPECT_EQ(GetPrependScheme(Parse(R"({"prepend_scheme": "first"})"), "file").value(), PrependScheme::kFirst);
  EXPECT_FALSE(GetPrependScheme(Parse(R"({"prepend_scheme": "last"})"), "file").ok());
}

}  // namespace
}  // namespace trivet::text
