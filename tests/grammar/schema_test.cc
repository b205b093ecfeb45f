// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/grammar/texts.h"

namespace trivet::grammar {
namespace {

using testing::HasSubstr;

Result<Grammar> Read(const Json& schema) {
  GrammarBuilder b;
  TRY_ASSIGN(const NodeId node, SchemaReader(&schema, "response_format", &b).Read());
  return std::move(b).Finish(node, "response_format");
}

Language Of(const Json& schema) {
  GrammarBuilder b;
  const auto node = SchemaReader(&schema, "schema", &b).Read();
  CHECK_MSG(node.ok(), node.error().message);
  return Language(std::move(b), *node);
}

struct Row {
  const char* schema;
  std::vector<const char*> yes, no;
};

void Look(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    Language language = Of(Json::parse(row.schema));
    for (const char* text : row.yes) EXPECT_TRUE(language.Has(text)) << row.schema << " " << text;
    for (const char* text : row.no) EXPECT_FALSE(language.Has(text)) << row.schema << " " << text;
  }
}

TEST(SchemaReader, Objects) {
  Look({{R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"]})",
         {R"({"a": 1, "b": null})", R"({"b":null})", "{\n  \"a\": 1,\n  \"b\": null\n}"},
         {"{}", R"({"a": 1})", R"({"b": null, "a": 1})", R"({"b": null, "c": 1})", R"({"b": null,})",
          R"({,"b": null})"}},
        {R"({"properties": {"a": {}, "b": {}, "c": {}}})",
         {"{}", R"({"a":1})", R"({"c":1})", R"({"a":1,"c":[]})", R"({"a":{},"b":"","c":null})"},
         {R"({"c":1,"a":1})", R"({"a":1,"a":1})", R"({"a":1 "b":2})", "[]"}},
        {R"({"properties": {"id": {"type": "integer"}}, "additionalProperties": {"type": "string"}})",
         {R"({"id": 1, "x": "y", "z": ""})", R"({"x": "y"})", "{}"},
         {R"({"id": "x"})", R"({"x": 1})", R"({"\u0069d": "x"})", R"({"x": "y", "id": 1})"}},
        {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
         {"{}", R"({"a": 1, "b\"": 2})"},
         {R"({"a": null})"}},
        {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a": 1})"}},
        {R"({"type": "object"})", {"{}", R"({"a": {"b": []}})"}, {"[]", "1"}},
        {R"({"required": ["x"]})", {R"({"x": 3})"}, {"{}", R"({"y": 3})"}},
        {R"({"required": ["x"], "additionalProperties": {"const": 1}})",
         {R"({"x":1})", R"({"x":1,"y":1})"},
         {R"({"x":2})"}}});
}

TEST(SchemaReader, Arrays) {
  Look({{R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
         {"[1]", "[1,2]", "[1, 2, 3]", "[\n 1,\n 2\n]"},
         {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]", "[1 2]"}},
        {R"({"type": "array"})", {"[]", "[1, [], {}]"}, {"{}", "[,]"}},
        {R"({"prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": false})",
         {"[]", "[\"a\"]", "[\"a\", true]"},
         {"[true]", "[\"a\", true, 1]"}},
        {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 2, "maxItems": 4})",
         {"[1, 2]", "[1, 2, 3]", "[1,2,3,3]"},
         {"[1]", "[]", "[1,2,3,3,3]", "[1,3]"}},
        {R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"}}});
}

TEST(SchemaReader, StringsAndNumbers) {
  Look({{R"({"type": "string", "minLength": 1, "maxLength": 2})", {R"("a")", R"("語😀")"}, {R"("")", R"("abc")"}},
        {R"({"type": "string", "pattern": "^[a-c\"\\\\\n]+$"})",
         {R"("abc")", R"("\"\\")", R"("a\n")"},
         {R"("")", R"("d")", "\"\n\"", R"("\u0061")"}},
        {R"({"type": "string", "pattern": "b{2}"})", {R"("abba")", R"("bb")"}, {R"("ab")"}},
        {R"({"type": "string", "format": "date-time"})",
         {R"("2024-02-28T23:59:59.5Z")"},
         {R"("2024-02-28")", R"("2024-13-01T00:00:00Z")"}},
        {R"({"type": "string", "format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
        {R"({"type": "integer"})", {"0", "-5", "120"}, {"1.0", "1e3", "x"}},
        {R"({"type": "integer", "exclusiveMinimum": 0, "maximum": 10.5})", {"1", "10"}, {"0", "11", "-1"}},
        {R"({"type": "number"})", {"0.5", "-1e9"}, {"", "."}},
        {R"({"type": ["boolean", "null"]})", {"true", "false", "null"}, {"0"}}});
}

TEST(SchemaReader, ValuesAndCombinations) {
  Look({{R"({"enum": ["a", 1, null, {"b": [2]}]})", {R"("a")", "1", "null", R"({"b":[2]})"}, {R"("b")", "2"}},
        {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
        {R"({"const": "x\"y"})", {R"("x\"y")"}, {R"("x")"}},
        {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]})",
         {"1", "[1]"},
         {"[[1]]"}},
        {R"({"oneOf": [{"type": "integer"}, {"type": "string"}], "description": "one", "x-more": 1})",
         {"1", "\"\""},
         {"null"}},
        {R"({"allOf": [{"$ref": "#/$defs/n"}], "$defs": {"n": {"type": "null"}}})", {"null"}, {"1"}},
        {"true", {"1", "{}"}, {"x"}},
        {"{}", {"1", "{}"}, {"x"}}});
}

TEST(SchemaReader, References) {
  Look({{R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "required": ["left"], "properties": {
              "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}}}})",
         {R"({"left": null})", R"({"left": {"left": {"left": null}}})"},
         {"{}", R"({"left": 1})", "null"}},
        {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
        {R"({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"const": 1}}})", {"1"}, {"2"}}});
}

Error ErrorOf(const char* schema) {
  const auto made = Read(Json::parse(schema));
  EXPECT_FALSE(made.ok()) << schema;
  return made.ok() ? MakeError(Code::kUsage, "none") : made.error();
}

TEST(SchemaReader, NamesWhatItCannotHoldTo) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"not": {}})", "not"},
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems"},
      {R"({"type": "number", "multipleOf": 2})", "multipleOf"},
      {R"({"type": "number", "minimum": 0.5})", "minimum"},
      {R"({"properties": {"a": {"patternProperties": {}}}})", "/properties/a"},
      {R"({"if": {}, "then": {}})", "if"},
      {R"({"type": "string", "format": "iri"})", "iri"},
      {R"({"type": "string", "pattern": "a", "maxLength": 3})", "pattern"},
      {R"_({"type": "string", "pattern": "(?=a)"})_", "look-around"},
      {R"({"anyOf": [{}], "type": "object"})", "type"},
      {R"({"allOf": [{}, {}]})", "allOf"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "oneOf"},
      {R"({"enum": [1], "minimum": 0})", "minimum"}};
  for (const auto& [schema, named] : rows) {
    const Error error = ErrorOf(schema);
    EXPECT_EQ(error.code, Code::kUnsupported) << schema;
    EXPECT_THAT(error.message, HasSubstr(named));
    EXPECT_THAT(error.message, HasSubstr("response_format"));
  }
}

TEST(SchemaReader, RefusesMalformedSchemas) {
  for (const char* schema :
       {"3", "[]", R"({"type": "text"})", R"({"type": 1})", R"({"properties": []})", R"({"required": "a"})",
        R"({"required": [1]})", R"({"minItems": -1})", R"({"type": "array", "maxItems": 1e12})", R"({"anyOf": []})",
        R"({"enum": 3})", R"({"$ref": "#/$defs/none"})", R"({"$ref": "other.json"})", R"({"$ref": 1})",
        R"_({"type": "string", "pattern": "("})_", R"({"type": "integer", "minimum": "1"})", R"({"items": 3})",
        // Nothing is valid under these, or they have no beginning.
        "false", R"({"enum": []})", R"({"type": "integer", "minimum": 3, "maximum": 2})",
        R"({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}})", R"({"$ref": "#"})",
        R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"}) {
    EXPECT_EQ(ErrorOf(schema).code, Code::kInvalid) << schema;
  }
}

// Random schemas with a random valid document each, and what the schema says of any document, written for this test.
struct RandomSchema {
  explicit RandomSchema(uint32_t seed) : random(seed) {}
  uint32_t Pick(uint32_t count) { return static_cast<uint32_t>(random()) % count; }

  Json Schema(int depth) {
    switch (Pick(depth > 0 ? 9 : 6)) {
      case 0:
        return {{"type", "integer"}, {"minimum", -static_cast<int>(Pick(50))}, {"maximum", Pick(300)}};
      case 1:
        return {{"type", "string"}, {"minLength", Pick(3)}, {"maxLength", 3 + Pick(4)}};
      case 2:
        return {{"enum", {"red", "green", Pick(9), nullptr, "re"}}};
      case 3:
        return {{"type", "boolean"}};
      case 4:
        return {{"type", "number"}};
      case 5:
        return {{"const", "v" + std::to_string(Pick(100))}};
      case 6:
        return {{"type", "array"}, {"items", Schema(depth - 1)}, {"minItems", Pick(3)}, {"maxItems", 2 + Pick(3)}};
      case 7:
        return {{"anyOf", {Schema(depth - 1), Schema(depth - 1)}}};
      default: {
        Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
        for (uint32_t i = Pick(5); i > 0; --i) {
          const std::string name = "p" + std::to_string(Pick(1000));
          schema["properties"][name] = Schema(depth - 1);
          if (Pick(2) == 0) schema["required"].push_back(name);
        }
        if (Pick(2) == 0) schema["additionalProperties"] = false;
        return schema;
      }
    }
  }

  Json Document(const Json& schema) {
    if (schema.contains("enum")) return schema["enum"][Pick(static_cast<uint32_t>(schema["enum"].size()))];
    if (schema.contains("const")) return schema["const"];
    if (schema.contains("anyOf")) return Document(schema["anyOf"][Pick(2)]);
    const auto type = schema["type"].get<std::string>();
    if (type == "boolean") return Pick(2) == 0;
    if (type == "number") return (static_cast<double>(Pick(100000)) - 5e4) / 64;
    if (type == "integer") {
      const auto min = schema["minimum"].get<int64_t>();
      return min + static_cast<int64_t>(Pick(static_cast<uint32_t>(schema["maximum"].get<int64_t>() - min + 1)));
    }
    if (type == "string") {
      constexpr const char* kParts[] = {"a", "\"", "\\", "\n", "é", "語", "😀", "\x02"};
      const auto min = schema["minLength"].get<uint32_t>();
      std::string text;
      for (uint32_t i = min + Pick(schema["maxLength"].get<uint32_t>() - min + 1); i > 0; --i) text += kParts[Pick(8)];
      return text;
    }
    if (type == "array") {
      Json list = Json::array();
      const auto min = schema["minItems"].get<uint32_t>();
      for (uint32_t i = min + Pick(schema["maxItems"].get<uint32_t>() - min + 1); i > 0; --i) {
        list.push_back(Document(schema["items"]));
      }
      return list;
    }
    Json object = Json::object();
    for (const auto& [name, value] : schema["properties"].items()) {
      const Json& required = schema["required"];
      const bool needed = std::find(required.begin(), required.end(), Json(name)) != required.end();
      if (needed || Pick(2) == 0) object[name] = Document(value);
    }
    return object;
  }

  std::mt19937 random;
};

size_t Characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool Valid(const Json& schema, const Json& value) {
  if (schema.contains("enum"))
    return std::find(schema["enum"].begin(), schema["enum"].end(), value) != schema["enum"].end();
  if (schema.contains("const")) return schema["const"] == value;
  if (schema.contains("anyOf")) return Valid(schema["anyOf"][0], value) || Valid(schema["anyOf"][1], value);
  const auto type = schema["type"].get<std::string>();
  if (!IsOfType(value, type)) return false;
  if (type == "integer") return value >= schema["minimum"] && value <= schema["maximum"];
  if (type == "string") {
    const size_t length = Characters(value.get<std::string>());
    return length >= schema["minLength"] && length <= schema["maxLength"];
  }
  if (type == "array") {
    return value.size() >= schema["minItems"] && value.size() <= schema["maxItems"] &&
           std::all_of(value.begin(), value.end(), [&](const Json& item) { return Valid(schema["items"], item); });
  }
  if (type != "object") return true;
  for (const Json& name : schema["required"]) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  for (const auto& [name, item] : value.items()) {
    if (schema["properties"].contains(name) && !Valid(schema["properties"][name], item)) return false;
    if (!schema["properties"].contains(name) && schema.contains("additionalProperties")) return false;
  }
  return true;
}

TEST(SchemaReader, HasRandomValidDocuments) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RandomSchema random(seed);
    const Json schema = random.Schema(3);
    Language language = Of(schema);
    for (int i = 0; i < 10; ++i) {
      const Json document = random.Document(schema);
      EXPECT_TRUE(language.Has(document.dump())) << schema << " " << document;
      EXPECT_TRUE(language.Has(document.dump(4))) << schema << " " << document;
    }
  }
}

TEST(SchemaReader, HasNothingInvalid) {
  int64_t accepted = 0, refused = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RandomSchema random(seed);
    const Json schema = random.Schema(3);
    Language language = Of(schema);
    for (int i = 0; i < 60; ++i) {
      std::string text = random.Document(i % 3 == 0 ? random.Schema(2) : schema).dump();
      for (uint32_t edits = random.Pick(3); edits > 0; --edits) {
        constexpr char kBytes[] = "{}[],:\"\\0123-.ep v";
        const size_t at = random.Pick(static_cast<uint32_t>(text.size()) + 1);
        const char byte = kBytes[random.Pick(sizeof kBytes - 1)];
        random.Pick(2) == 0 && at < text.size() ? text.replace(at, 1, 1, byte) : text.insert(at, 1, byte);
      }
      if (!language.Has(text)) {
        ++refused;
        continue;
      }
      ++accepted;
      ASSERT_TRUE(Json::accept(text)) << text;
      ASSERT_TRUE(Valid(schema, Json::parse(text))) << schema << " " << text;
    }
  }
  EXPECT_GT(accepted, 2000);
  EXPECT_GT(refused, 2000);
}

TEST(SchemaReader, EveryBeginningCanBeCompleted) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomSchema random(seed);
    const Json schema = random.Schema(3);
    Language language = Of(schema);
    Automaton& automaton = language.automaton();
    StateId state = automaton.start();
    std::string text;
    // At first any way, then one that closes what is open where it can.
    for (int step = 0; !automaton.MustEnd(state); ++step) {
      ASSERT_LT(step, 5000) << schema << " " << text;
      std::vector<uint8_t> ways, closing;
      for (int byte = 0; byte < 256; ++byte) {
        if (automaton.Step(state, static_cast<uint8_t>(byte)) == kDead) continue;
        ways.push_back(static_cast<uint8_t>(byte));
        if (byte == '}' || byte == ']' || byte == '"') closing.push_back(ways.back());
      }
      if (ways.empty() || (automaton.CanEnd(state) && step > 100)) break;
      if (step > 30 && !closing.empty() && random.Pick(8) != 0) ways = closing;
      const uint8_t byte = ways[random.Pick(static_cast<uint32_t>(ways.size()))];
      text += static_cast<char>(byte);
      state = automaton.Step(state, byte);
    }
    ASSERT_TRUE(automaton.CanEnd(state)) << schema << " " << text;
    ASSERT_TRUE(Valid(schema, Json::parse(text))) << schema << " " << text;
  }
}

}  // namespace
}  // namespace trivet::grammar
