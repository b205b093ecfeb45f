// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_overlap.h"

#include <gtest/gtest.h>

namespace trivet::grammar {
namespace {

bool May(const char* made, const char* other) {
  const Json root = Json::parse(R"({"$defs": {"text": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}})");
  return MayOverlap(root, Json::parse(made), Json::parse(other));
}

TEST(MayOverlap, TellsTypesApart) {
  EXPECT_FALSE(May(R"({"type": "string"})", R"({"type": "integer"})"));
  EXPECT_FALSE(May(R"({"$ref": "#/$defs/text"})", R"({"type": ["null", "object"]})"));
  EXPECT_TRUE(May(R"({"type": "integer"})", R"({"type": "number"})"));
  EXPECT_TRUE(May(R"({"type": "number"})", R"({"type": "integer"})"));
  EXPECT_TRUE(May(R"({"type": "string"})", R"({"minimum": 3})"));  // which says nothing of strings
  EXPECT_FALSE(May(R"({"anyOf": [{"type": "null"}, {"type": "string"}]})", R"({"type": "boolean"})"));
  EXPECT_TRUE(May(R"({"anyOf": [{"type": "null"}, {"type": "string"}]})", R"({"type": "string"})"));
}

TEST(MayOverlap, TellsValuesApart) {
  EXPECT_FALSE(May(R"({"const": 1})", R"({"enum": [2, 3]})"));
  EXPECT_TRUE(May(R"({"enum": [1, 2]})", R"({"enum": [2, 3]})"));
  EXPECT_TRUE(May(R"({"const": 1})", R"({"const": 1.0})"));
  EXPECT_FALSE(May(R"({"const": "a"})", R"({"type": "integer"})"));
  EXPECT_TRUE(May(R"({"type": "string"})", R"({"const": "a"})"));
}

TEST(MayOverlap, TellsObjectsApart) {
  const char* cat = R"({"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]})";
  const char* dog = R"({"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]})";
  EXPECT_FALSE(May(cat, dog));
  EXPECT_TRUE(May(cat, cat));
  const char* a = R"({"type": "object", "properties": {"a": {}}, "required": ["a"]})";
  const char* b = R"({"type": "object", "properties": {"b": {}}, "required": ["b"]})";
  EXPECT_FALSE(May(a, b));
  const char* open = R"({"type": "object", "properties": {"a": {}}, "additionalProperties": true})";
  EXPECT_TRUE(May(open, b));
  EXPECT_FALSE(May(b, R"({"type": "object", "properties": {"a": {}}, "additionalProperties": false})"));
  EXPECT_TRUE(May(b, R"({"type": "object", "properties": {"a": {}}})"));
}

TEST(MayOverlap, IsTrueWhereItCannotTell) {
  EXPECT_TRUE(May("{}", "{}"));
  EXPECT_TRUE(May("true", R"({"type": "string"})"));
  EXPECT_FALSE(May("false", R"({"type": "string"})"));
  EXPECT_TRUE(May(R"({"$ref": "#/$defs/loop"})", R"({"$ref": "#/$defs/loop"})"));
}

}  // namespace
}  // namespace trivet::grammar
