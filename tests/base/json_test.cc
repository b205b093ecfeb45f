// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/str.h"
#include "tests/io/temp_dir.h"

namespace trivet {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

TEST(ParseJson, KeepsValuesAndTheirOrder) {
  const std::string text = R"({"z":[1,-2,3.5,true,null,"é\n\u00e9"],"a":{"b":18446744073709551615},"e":{},"n":[]})";
  const Result<Json> json = ParseJson(text, "test");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(DumpJson(*json), R"({"z":[1,-2,3.5,true,null,"é\né"],"a":{"b":18446744073709551615},"e":{},"n":[]})");
  EXPECT_EQ(*ParseJson(" 7 ", "test"), Json(7));
  EXPECT_EQ(*ParseJson("\"a\"", "test"), Json("a"));
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[1,]",
                           "{\"a\":1,}",
                           "{a:1}",
                           "nul",
                           "01",
                           "+1",
                           "1.",
                           ".5",
                           "1e",
                           "NaN",
                           "Infinity",
                           "-",
                           "'a'",
                           "\"a",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\t\"",
                           "[1] 2",
                           "{} {}",
                           "/* c */ 1",
                           "// c\n1",
                           "1e999",
                           "\"\xff\"",
                           "\"\xed\xa0\x80\"",
                           "\"\xc0\xaf\"",
                           "{\"\xff\":1}"}) {
    const Result<Json> json = ParseJson(text, "config.json");
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_EQ(json.error().code, Code::kInvalid) << text;
    EXPECT_THAT(json.error().message, StartsWith("config.json: expected valid JSON, found an error at byte ")) << text;
    EXPECT_TRUE(IsUtf8(json.error().message)) << text;
  }
}

TEST(Member, IsNullWhenAbsent) {
  const Json object = {{"a", {{"b", 1}}}, {"none", nullptr}};
  EXPECT_EQ(Member(Member(object, "a"), "b"), 1);
  for (const char* key : {"none", "c"}) EXPECT_TRUE(Member(object, key).is_null());
  EXPECT_TRUE(Member(Member(object, "c"), "b").is_null());
}

TEST(ParseJson, RefusesANulByteWhereverItStands) {
  for (const std::string& text :
       {std::string("{}\0", 3), std::string("\0{}", 3), std::string("\"a\0b\"", 5), std::string(1, '\0')}) {
    const Result<Json> json = ParseJson(text, "test");
    ASSERT_FALSE(json.ok());
    EXPECT_THAT(json.error().message, HasSubstr("NUL byte at byte"));
  }
  EXPECT_TRUE(ParseJson("\"\\u0000\"", "test").ok()) << "an escaped one is a character";
}

TEST(ParseJson, RefusesDuplicateKeysAtAnyDepth) {
  for (const char* text : {R"({"a":1,"a":2})", R"([{"b":{"a":1,"c":2,"a":1}}])", R"({"a":1,"\u0061":2})"}) {
    const Result<Json> json = ParseJson(text, "test");
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_THAT(json.error().message, HasSubstr("expected valid JSON, found the duplicate key \"a\"; correct it"))
        << text;
  }
  EXPECT_TRUE(ParseJson(R"({"a":{"a":1},"b":{"a":1}})", "test").ok()) << "the same key in different objects";
}

TEST(ParseJson, LimitsAreExact) {
  EXPECT_TRUE(ParseJson(Nested(64), "test").ok());
  EXPECT_THAT(ParseJson(Nested(65), "test").error().message,
              HasSubstr("found values nested deeper than 64 levels; correct it"));
  EXPECT_FALSE(ParseJson(Nested(1000000), "test").ok());
  EXPECT_FALSE(ParseJson(std::string(1000000, '['), "test").ok());
  std::string objects;
  for (int i = 0; i < 100; ++i) objects += "{\"a\":";
  EXPECT_FALSE(ParseJson(objects, "test").ok());
  EXPECT_TRUE(ParseJson("[1]", "test", {3, 1}).ok());
  const Result<Json> longer = ParseJson("[12]", "test", {3, 1});
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().code, Code::kCapacity);
  EXPECT_TRUE(ParseJson("7", "test", {100, 0}).ok());
  EXPECT_FALSE(ParseJson("[]", "test", {100, 0}).ok());
}

TEST(ReadJsonFile, NamesThePath) {
  const TempDir dir;
  dir.Write("good.json", "{\"a\":1}");
  dir.Write("bad.json", "{");
  EXPECT_EQ(*NeedInt(*ReadJsonFile(dir.Path("good.json")), "a", "x"), 1);
  EXPECT_THAT(ReadJsonFile(dir.Path("bad.json")).error().message, StartsWith(dir.Path("bad.json")));
  EXPECT_EQ(ReadJsonFile(dir.Path("absent.json")).error().code, Code::kNotFound);
  EXPECT_EQ(ReadJsonFile(dir.Path("good.json"), {6, 64}).error().code, Code::kCapacity);
}

TEST(Members, AbsentAndNullGiveTheFallback) {
  const Json object = *ParseJson(R"({"null":null})", "test");
  for (const char* key : {"null", "absent"}) {
    EXPECT_EQ(*GetInt(object, key, 7, "x"), 7);
    EXPECT_EQ(*GetDouble(object, key, 0.5, "x"), 0.5);
    EXPECT_TRUE(*GetBool(object, key, true, "x"));
    EXPECT_EQ(*GetString(object, key, "f", "x"), "f");
    const Result<int64_t> needed = NeedInt(object, key, "config.json");
    ASSERT_FALSE(needed.ok());
    EXPECT_THAT(needed.error().message, StartsWith("config.json: \"" + std::string(key) + "\": expected an integer"));
  }
  EXPECT_EQ(Find(object, "absent"), nullptr);
  EXPECT_NE(Find(object, "null"), nullptr);
  EXPECT_EQ(Find(Json::array({1}), "a"), nullptr);
  EXPECT_EQ(Find(Json("text"), "a"), nullptr);
}

TEST(Members, TypesAreChecked) {
  const Json object = *ParseJson(
      R"({"i":-3,"max":9223372036854775807,"big":9223372036854775808,"d":1.5,"whole":2.0,"b":false,"s":"t","a":[1]})",
      "test");
  EXPECT_EQ(*GetInt(object, "i", 0, "x"), -3);
  EXPECT_EQ(*GetInt(object, "max", 0, "x"), INT64_MAX);
  EXPECT_EQ(*GetDouble(object, "i", 0, "x"), -3.0);
  EXPECT_EQ(*GetDouble(object, "d", 0, "x"), 1.5);
  EXPECT_FALSE(*GetBool(object, "b", true, "x"));
  EXPECT_EQ(*GetString(object, "s", "", "x"), "t");
  for (const char* key : {"big", "d", "whole", "b", "s", "a"}) EXPECT_FALSE(GetInt(object, key, 0, "x").ok()) << key;
  for (const char* key : {"big", "d", "whole", "b", "s", "a"}) EXPECT_FALSE(NeedInt(object, key, "x").ok()) << key;
  for (const char* key : {"b", "s", "a"}) EXPECT_FALSE(GetDouble(object, key, 0, "x").ok()) << key;
  for (const char* key : {"i", "d", "s", "a"}) EXPECT_FALSE(GetBool(object, key, false, "x").ok()) << key;
  for (const char* key : {"i", "d", "b", "a"}) EXPECT_FALSE(GetString(object, key, "", "x").ok()) << key;
  const Result<int64_t> wrong = GetInt(object, "s", 0, "config.json");
  EXPECT_EQ(wrong.error().code, Code::kInvalid);
  EXPECT_THAT(wrong.error().message, StartsWith("config.json: \"s\": expected an integer, found \"t\""));
}

TEST(Members, IntegersBeyond64BitsAreNone) {
  EXPECT_TRUE(IsInt64(ParseJson("9223372036854775807", "x").value()));
  EXPECT_TRUE(IsInt64(ParseJson("-9223372036854775808", "x").value()));
  for (const char* text : {"9223372036854775808", "1.0", "true", "\"1\"", "null"}) {
    EXPECT_FALSE(IsInt64(ParseJson(text, "x").value())) << text;
  }
}

TEST(Members, MessagesAreShortValidText) {
  std::string accents = "xx";
  while (accents.size() < 1000) accents += "é";
  Json object = Json::object();
  object["a"] = accents;
  const Result<int64_t> wrong = GetInt(object, "a", 0, "x");
  ASSERT_FALSE(wrong.ok());
  EXPECT_TRUE(IsUtf8(wrong.error().message)) << "a character cut in two";
  EXPECT_LT(wrong.error().message.size(), 200U);
}

TEST(DumpJson, RepairsInvalidTextAndIndents) {
  EXPECT_EQ(DumpJson(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(DumpJson(Json::array({1, 2}), 2), "[\n  1,\n  2\n]");
}

}  // namespace
}  // namespace trivet
