// SPDX-License-Identifier: Apache-2.0
#include "engine/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "tests/engine/tiny_gguf.h"
#include "tests/io/temp_dir.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

using testing::HasSubstr;

const char* const kQuestion = "Omar has 90 shells and buys 85 more. How many shells does Omar have now?";

Prompts Demo() {
  Result<Prompts> prompts = Prompts::Open(DemoDir());
  CHECK_MSG(prompts.ok(), prompts.error().message);
  return std::move(prompts).value();
}

Json Asking(const std::string& question) { return {{"messages", {{{"role", "user"}, {"content", question}}}}}; }

TEST(Prompts, RendersByTheTemplate) {
  const Prompts prompts = Demo();
  ASSERT_TRUE(prompts.has_template());
  EXPECT_EQ(prompts.Render(Asking("Hi")).value(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  Json request = Asking("Hi");
  request["add_generation_prompt"] = false;
  EXPECT_EQ(prompts.Render(request).value(), "<|im_start|>user\nHi<|im_end|>\n");
}

// The golden cases begin with the same conversation.
TEST(Prompts, TokensAreThoseOfTheReference) {
  const Prompts prompts = Demo();
  const auto golden = support::ReadGolden(DemoDir() + "/golden/demo-golden.safetensors");
  const std::vector<TokenId> tokens = prompts.EncodeChat(Asking(kQuestion)).value();
  ASSERT_LT(tokens.size(), golden[2].tokens.size());
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), golden[2].tokens.begin()));
  EXPECT_EQ(prompts.EncodeText("Once upon a time").value(), golden[3].tokens);
}

TEST(Prompts, RequestsThatAreNoConversationAreRefused) {
  const Prompts prompts = Demo();
  for (const Json& request : {Json::object(), Json({{"messages", "hello"}}), Json({{"messages", Json()}}), Json("x")}) {
    const Result<std::string> rendered = prompts.Render(request);
    ASSERT_FALSE(rendered.ok()) << DumpJson(request);
    EXPECT_EQ(rendered.error().code, Code::kInvalid);
    EXPECT_THAT(rendered.error().message, HasSubstr("\"messages\""));
  }
  Json request = Asking("Hi");
  request["add_generation_prompt"] = 3;
  EXPECT_FALSE(prompts.Render(request).ok());
}

// One template writes arguments as JSON, which would quote a text; another joins them to text, which an object does not
// do.
TEST(Prompts, ArgumentsOfCallsHaveTheFormThatTheTemplateTakes) {
  const Json request = ParseJson(R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [
      {"type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]}]})",
                                 "request")
                           .value();
  for (const std::string piece : {"c.function.arguments | tojson", "'' + c.function.arguments"}) {
    TempDir dir;
    std::filesystem::copy(DemoDir() + "/tokenizer.json", dir.Path("tokenizer.json"));
    dir.Write("chat_template.jinja",
              "{% for m in messages %}{% for c in m.tool_calls %}{{ " + piece + " }}{% endfor %}{% endfor %}");
    const Prompts prompts = Prompts::Open(dir.Path()).value();
    EXPECT_EQ(prompts.Render(request).value(), R"({"a": 1})") << piece;
  }
}

TEST(Prompts, WithoutATemplateThereIsNoChat) {
  const TempDir dir;
  std::filesystem::copy_file(DemoDir() + "/tokenizer.json", dir.Path("tokenizer.json"));
  const Result<Prompts> prompts = Prompts::Open(dir.Path());
  ASSERT_TRUE(prompts.ok()) << prompts.error().message;
  EXPECT_FALSE(prompts->has_template());
  const Result<std::string> rendered = prompts->Render(Asking("Hi"));
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.error().code, Code::kUnsupported);
  EXPECT_TRUE(prompts->EncodeText("Hi").ok());
}

// A template file beside the tokenizer wins, and gets what the request adds.
TEST(Prompts, TemplatesSeeTheRequest) {
  const TempDir dir;
  std::filesystem::copy_file(DemoDir() + "/tokenizer.json", dir.Path("tokenizer.json"));
  dir.Write("chat_template.jinja", "{{ mood }} {{ messages|length }}{% if tools %} {{ tools[0].name }}{% endif %}");
  const Result<Prompts> prompts = Prompts::Open(dir.Path());
  ASSERT_TRUE(prompts.ok()) << prompts.error().message;
  Json request = Asking("Hi");
  request["kwargs"] = {{"mood", "glad"}};
  EXPECT_EQ(prompts->Render(request).value(), "glad 1");
  request["tools"] = {{{"name", "clock"}}};
  EXPECT_EQ(prompts->Render(request).value(), "glad 1 clock");
}

// The prompts of a GGUF file with these metadata.
Prompts OfGguf(const Json& metadata) {
  const TempDir dir;
  dir.Write("m.gguf", TinyGguf(metadata, {}));
  Result<Prompts> prompts = Prompts::Open(dir.Path("m.gguf"));
  CHECK_MSG(prompts.ok(), prompts.error().message);
  return std::move(prompts).value();
}

// Token 1 begins a text: whoever writes it, it stands there once.
TEST(Prompts, OneBeginningOnEveryPathOfAGgufFile) {
  const std::vector<TokenId> expected = {1, 262, 268};
  const auto chat = [](const std::string& source) {
    Json metadata = TinyMetadata();
    metadata["tokenizer.chat_template"] = source;
    return OfGguf(metadata).EncodeChat(Asking("ac")).value();
  };
  EXPECT_EQ(chat("{{ bos_token }}{{ messages[0].content }}"), expected);
  EXPECT_EQ(chat("{{ messages[0].content }}"), expected);
  const Prompts prompts = OfGguf(TinyMetadata());
  EXPECT_EQ(prompts.EncodeText("ac").value(), expected);
  EXPECT_EQ(prompts.EncodeText("<s>ac").value(), expected);
  EXPECT_EQ(prompts.EncodeText("").value(), std::vector<TokenId>{1});
  Json without = TinyMetadata();
  without["tokenizer.ggml.add_bos_token"] = false;
  EXPECT_EQ(OfGguf(without).EncodeText("ac").value(), (std::vector<TokenId>{262, 268}));
  EXPECT_EQ(OfGguf(without).EncodeText("<s>ac").value(), expected);
}

TEST(Prompts, BesideAModelTheHeaderIsNotReadAgain) {
  const TempDir dir;
  const std::string path = dir.Path("m.gguf");
  dir.Write("m.gguf", TinyGguf(TinyMetadata(), {}));
  const std::vector<TokenId> expected = Prompts::Open(path).value().EncodeText("ac").value();
  std::vector<std::string> notices;
  const auto model = checkpoint::Checkpoint::Open(path, &notices);
  ASSERT_TRUE(model.ok()) << model.error().message;
  dir.Write("m.gguf", "GGUF");
  EXPECT_FALSE(Prompts::Open(path).ok());
  const Result<Prompts> beside = Prompts::Open(path, *model);
  ASSERT_TRUE(beside.ok()) << beside.error().message;
  EXPECT_EQ(beside->EncodeText("ac").value(), expected);
  EXPECT_EQ(Prompts::Open(DemoDir(), *model).value().EncodeText("ac").value(),
            Prompts::Open(DemoDir()).value().EncodeText("ac").value());
}

TEST(Prompts, NamedTemplatesOfAGgufFile) {
  Json metadata = TinyMetadata();
  metadata["tokenizer.chat_template.tool_use"] = "{{ tools[0].name }}{{ eos_token }}";
  const Prompts prompts = OfGguf(metadata);
  Json request = Asking("ac");
  EXPECT_EQ(prompts.Render(request).value(), "<s>ac");
  request["tools"] = {{{"name", "clock"}}};
  EXPECT_EQ(prompts.Render(request).value(), "clock</s>");
  metadata.erase("tokenizer.chat_template");
  metadata.erase("tokenizer.chat_template.tool_use");
  EXPECT_FALSE(OfGguf(metadata).has_template());
}

TEST(Prompts, AGgufFileWithoutATokenizerIsRefused) {
  const TempDir dir;
  dir.Write("m.gguf", TinyGguf({{"general.architecture", "llama"}}, {}));
  const Result<Prompts> prompts = Prompts::Open(dir.Path("m.gguf"));
  ASSERT_FALSE(prompts.ok());
  EXPECT_THAT(prompts.error().message,
              HasSubstr("m.gguf: \"tokenizer.ggml.model\": expected llama or gpt2, found none"));
}

TEST(Prompts, AFolderWithoutATokenizerIsNone) {
  const TempDir dir;
  const Result<Prompts> prompts = Prompts::Open(dir.Path());
  ASSERT_FALSE(prompts.ok());
  EXPECT_EQ(prompts.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace trivet::engine
