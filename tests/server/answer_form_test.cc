// SPDX-License-Identifier: Apache-2.0
#include "server/answer_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/demo_service.h"

namespace trivet::server {
namespace {

using testing::HasSubstr;

class Form : public testing::Test {
 protected:
  // The constraint that a body asks for, or its error.
  engine::ConstraintPtr Read(const char* body) {
    engine::ConstraintPtr constraint;
    const ApiStatus read = ReadAnswerForm(Json::parse(body), model_.served().constraints, &constraint);
    EXPECT_TRUE(read.ok()) << body << " " << read.error().message;
    return constraint;
  }
  ApiError Refusal(const char* body) {
    engine::ConstraintPtr constraint;
    const ApiStatus read = ReadAnswerForm(Json::parse(body), model_.served().constraints, &constraint);
    EXPECT_FALSE(read.ok()) << body;
    EXPECT_EQ(constraint, nullptr);
    return read.ok() ? ApiError{} : read.error();
  }

  DemoModel model_;
};

TEST_F(Form, NothingIsAskedByDefault) {
  EXPECT_EQ(Read("{}"), nullptr);
  EXPECT_EQ(Read(R"({"response_format": {"type": "text"}, "guided_json": null, "structured_outputs": {"json": null}})"),
            nullptr);
}

TEST_F(Form, EveryWayOfAsking) {
  const auto schema = Read(R"({"response_format": {"type": "json_schema",
      "json_schema": {"name": "x", "strict": true, "schema": {"type": "integer"}}}})");
  EXPECT_NE(schema, nullptr);
  EXPECT_EQ(Read(R"({"guided_json": {"type": "integer"}})"), schema);
  EXPECT_EQ(Read(R"({"guided_json": "{\"type\": \"integer\"}"})"), schema);
  EXPECT_EQ(Read(R"({"structured_outputs": {"json": {"type": "integer"}}})"), schema);
  EXPECT_EQ(Read(R"({"response_format": {"type": "json_object"}})"),
            Read(R"({"structured_outputs": {"json_object": true}})"));
  EXPECT_EQ(Read(R"({"guided_regex": "a+"})"), Read(R"({"structured_outputs": {"regex": "a+"}})"));
  EXPECT_EQ(Read(R"({"guided_choice": ["a", "b"]})"), Read(R"({"structured_outputs": {"choice": ["a", "b"]}})"));
}

TEST_F(Form, WrongOnesAreNamed) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"response_format": "json"})", "response_format"},
      {R"({"response_format": {"type": "xml"}})", "response_format"},
      {R"({"response_format": {"type": "json_schema"}})", "response_format"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}})", "response_format"},
      {R"({"guided_json": "{"})", "guided_json"},
      {R"({"guided_json": 3})", "guided_json"},
      {R"({"guided_regex": ["a"]})", "guided_regex"},
      {R"({"guided_choice": "a"})", "guided_choice"},
      {R"({"guided_choice": ["a", 1]})", "guided_choice"},
      {R"({"guided_choice": []})", "guided_choice"},
      {R"({"guided_regex": "a", "response_format": {"type": "json_object"}})", "guided_regex"},
      {R"({"structured_outputs": "a"})", "structured_outputs"},
      {R"({"structured_outputs": {"grammar": "a"}})", "structured_outputs.grammar"},
      {R"({"structured_outputs": {"regex": 5}})", "structured_outputs.regex"},
      {R"({"structured_outputs": {"json_object": 5}})", "structured_outputs.json_object"},
      {R"({"structured_outputs": {"choice": ["b"], "regex": "a"}})", "structured_outputs.regex"}};
  for (const auto& [body, param] : rows) {
    const ApiError error = Refusal(body);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.param, param) << error.message;
  }
  EXPECT_THAT(Refusal(rows[3].first).message, HasSubstr("\"not\""));
  // And what was found is shown.
  EXPECT_THAT(Refusal(R"({"guided_json": 3})").message, HasSubstr("an object, true or false, found 3;"));
  EXPECT_THAT(Refusal(R"({"guided_json": {"type": "int"}})").message,
              HasSubstr("expected object, array, string, integer, number, boolean, null, found \"int\";"));
  EXPECT_THAT(Refusal(R"({"guided_regex": ["a"]})").message, HasSubstr("expected a text, found [\"a\"];"));
  EXPECT_THAT(Refusal(R"({"guided_choice": ["a", ""]})").message, HasSubstr("none of them empty, found [\"a\",\"\"];"));
  EXPECT_THAT(Refusal(R"({"structured_outputs": {"choice": ["b"], "regex": "a"}})").message,
              HasSubstr("not structured_outputs.choice as well, found \"a\";"));
}

}  // namespace
}  // namespace trivet::server
