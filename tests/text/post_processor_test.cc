// SPDX-License-Identifier: Apache-2.0
#include "text/post_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<PostProcessor> Read(std::string_view text) {
  return PostProcessor::FromJson(ParseJson(text, "test").value(), 10, "file");
}

std::string Template(const std::string& single, const std::string& ids = "[1]") {
  return R"({"type": "TemplateProcessing", "single": )" + single +
         R"(, "special_tokens": {"<s>": {"id": "<s>", "ids": )" + ids + R"(, "tokens": ["<s>"]}}})";
}

constexpr const char* kText = R"({"Sequence": {"id": "A", "type_id": 0}})";
constexpr const char* kSpecial = R"({"SpecialToken": {"id": "<s>", "type_id": 0}})";

TEST(PostProcessor, NullAndByteLevelAddNothing) {
  for (const char* text : {"null", R"({"type": "ByteLevel"})"}) {
    const auto processor = Read(text);
    ASSERT_TRUE(processor.ok());
    EXPECT_TRUE(processor->before().empty());
    EXPECT_TRUE(processor->after().empty());
  }
}

TEST(PostProcessor, TemplatesPutTokensAround) {
  const std::string both = std::string("[") + kSpecial + ", " + kText + ", " + kSpecial + "]";
  const auto processor =
      Read(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" + Template(both, "[1, 2]") + "]}");
  ASSERT_TRUE(processor.ok());
  EXPECT_THAT(processor->before(), ElementsAre(1, 2));
  EXPECT_THAT(processor->after(), ElementsAre(1, 2));
}

TEST(PostProcessor, UnknownTypesAreRefusedByName) {
  const std::string single = Template(std::string("[") + kText + "]");
  for (const std::string& text : {std::string(R"({"type": "RobertaProcessing"})"),
                                  R"({"type": "Sequence", "processors": [)" + single + ", " + single + "]}"}) {
    const auto processor = Read(text);
    ASSERT_FALSE(processor.ok());
    EXPECT_EQ(processor.error().code, Code::kUnsupported);
  }
  EXPECT_THAT(Read(R"({"type": "RobertaProcessing"})").error().message, HasSubstr("RobertaProcessing"));
}

TEST(PostProcessor, MalformedTemplatesAreErrors) {
  const std::string special = kSpecial, text = kText;
  for (const std::string& json :
       {Template("[]"), Template("[" + text + ", " + text + "]"), Template("{}"), Template("[1]"),
        Template(R"([{"Sequence": {"id": "B"}}])"), Template("[" + special + ", " + text + "]", "[10]"),
        Template("[" + special + ", " + text + "]", "[-1]"), Template("[" + special + ", " + text + "]", "1"),
        Template(R"([{"SpecialToken": {"id": "<t>"}}, )" + text + "]"),
        std::string(R"({"type": "TemplateProcessing"})"),
        R"({"type": "TemplateProcessing", "single": [)" + special + ", " + text + "]}"}) {
    const auto processor = Read(json);
    ASSERT_FALSE(processor.ok()) << json;
    EXPECT_EQ(processor.error().code, Code::kInvalid) << json;
  }
}

}  // namespace
}  // namespace trivet::text
