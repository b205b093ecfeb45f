// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/str.h"
#include "tests/text/render.h"

namespace trivet::text {
namespace {

using ::testing::HasSubstr;

class ChatTemplateFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "chat_template_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteTextFile(dir_ + "/" + name, text).ok());
  }

  std::string dir_;
};

TEST(ChatTemplate, RendersChatMl) {
  const std::string source =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  EXPECT_EQ(Render(source, R"({"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true})"),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, RaiseExceptionGivesItsOwnMessage) {
  const auto parsed = ChatTemplate::Parse("{{ raise_exception('roles must alternate') }}");
  ASSERT_TRUE(parsed.ok());
  const auto text = parsed->Render(Json::object());
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, Code::kInvalid);
  EXPECT_EQ(text.error().message, "roles must alternate");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_THAT(Render("a\nb\n{{ missing.x }}"), HasSubstr("line 3"));
  EXPECT_THAT(Render("a\n{% if %}"), HasSubstr("line 2"));
}

TEST(ChatTemplate, UnsupportedStatementsAreRefusedByName) {
  const auto parsed = ChatTemplate::Parse("{% include 'x' %}");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, Code::kUnsupported);
  EXPECT_THAT(parsed.error().message, HasSubstr("include"));
}

TEST(ChatTemplate, ContextMustBeAnObject) {
  const auto parsed = ChatTemplate::Parse("x");
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed->Render(Json::array()).ok());
}

TEST_F(ChatTemplateFiles, NothingWithoutFiles) {
  const auto source = LoadChatTemplate(dir_, false);
  ASSERT_TRUE(source.ok());
  EXPECT_FALSE(source->has_value());
  const auto tokens = SpecialTokens(dir_);
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(*tokens, Json::object());
}

TEST_F(ChatTemplateFiles, JinjaFileComesFirst) {
  Write("tokenizer_config.json", R"({"chat_template":"config"})");
  EXPECT_EQ(LoadChatTemplate(dir_, false)->value(), "config");
  Write("chat_template.jinja", "file");
  EXPECT_EQ(LoadChatTemplate(dir_, false)->value(), "file");
}

TEST_F(ChatTemplateFiles, ToolsChooseAmongNamedTemplates) {
  Write("tokenizer_config.json",
        R"({"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]})");
  EXPECT_EQ(LoadChatTemplate(dir_, false)->value(), "d");
  EXPECT_EQ(LoadChatTemplate(dir_, true)->value(), "t");
  Write("tokenizer_config.json", R"({"chat_template":[{"name":"default","template":"d"}]})");
  EXPECT_EQ(LoadChatTemplate(dir_, true)->value(), "d");
}

TEST_F(ChatTemplateFiles, MalformedConfigurationIsAnError) {
  Write("tokenizer_config.json", R"({"chat_template":5})");
  EXPECT_FALSE(LoadChatTemplate(dir_, false).ok());
  Write("tokenizer_config.json", "[]");
  EXPECT_FALSE(LoadChatTemplate(dir_, false).ok());
  EXPECT_FALSE(SpecialTokens(dir_).ok());
}

TEST_F(ChatTemplateFiles, SpecialTokensAreStrings) {
  Write("tokenizer_config.json",
        R"({"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","pad_token":null,"add_bos_token":true,)"
        R"("additional_special_tokens":["<a>",{"content":"<b>"}]})");
  const auto tokens = SpecialTokens(dir_);
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(DumpJson(*tokens), R"({"bos_token":"<s>","eos_token":"</s>","additional_special_tokens":["<a>","<b>"]})");
}

TEST(NormalizeMessages, ParsesArgumentsThatAreObjects) {
  const Json messages = Json::parse(
      R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\": [1]}"}},)"
      R"({"function":{"arguments":"not json"}},{"function":{"arguments":"5"}},{"function":{"arguments":{"b":1}}},7]},5])");
  Json expected = messages;
  expected[0]["tool_calls"][0]["function"]["arguments"] = Json::parse(R"({"a":[1]})");
  EXPECT_EQ(NormalizeMessages(messages), expected);
  EXPECT_EQ(NormalizeMessages(Json("x")), Json("x"));
}

}  // namespace
}  // namespace trivet::text
