// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/temp_dir.h"
#include "tests/support/paths.h"

namespace trivet::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json Parsed(std::string_view text) { return ParseJson(text, "test").value(); }

// Compared as text: the order of keys is part of neither.
void ExpectJson(const Json& found, std::string_view expected) {
  EXPECT_EQ(nlohmann::json::parse(DumpJson(found)), nlohmann::json::parse(expected)) << DumpJson(found);
}

TEST(TextConfig, IsTheConfigWhenNothingWrapsIt) {
  ExpectJson(TextConfig(Parsed(R"({"a":1,"text_config":null})"), "c").value(), R"({"a":1,"text_config":null})");
}

TEST(TextConfig, TakesOnlySharedKeysFromOutside) {
  const Json config = Parsed(R"({"hidden_size":1,"tie_word_embeddings":true,"bos_token_id":1,"eos_token_id":[2,3],
      "pad_token_id":4,"quantization_config":{"q":1},"compression_config":{"c":1},"torch_dtype":"float16",
      "text_config":{"vocab_size":5,"eos_token_id":9,"bos_token_id":null,"tie_word_embeddings":false}})");
  ExpectJson(TextConfig(config, "c").value(),
             R"({"vocab_size":5,"eos_token_id":9,"bos_token_id":1,"tie_word_embeddings":false,"pad_token_id":4,
                 "quantization_config":{"q":1},"compression_config":{"c":1},"torch_dtype":"float16"})");
}

TEST(TextConfig, InnerDtypeWinsUnderEitherKey) {
  const Json config = Parsed(R"({"dtype":"float32","text_config":{"torch_dtype":"bfloat16"}})");
  ExpectJson(TextConfig(config, "c").value(), R"({"torch_dtype":"bfloat16"})");
}

TEST(TextConfig, RefusesAWrapperThatIsNoObject) {
  const auto text = TextConfig(Parsed(R"({"text_config":3})"), "the file");
  EXPECT_THAT(text.error().message, HasSubstr("the file: \"text_config\": expected an object, found 3"));
}

TEST(RopeParameters, OldFormsBecomeNew) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", R"({"rope_type":"default"})"},
      {R"({"rope_theta":10000.0,"rope_scaling":null})", R"({"rope_type":"default","rope_theta":10000.0})"},
      {R"({"rope_theta":1e6,"partial_rotary_factor":0.25})",
       R"({"rope_type":"default","rope_theta":1e6,"partial_rotary_factor":0.25})"},
      {R"({"rope_theta":5e5,"rope_scaling":{"type":"linear","factor":8.0}})",
       R"({"rope_type":"linear","rope_theta":5e5,"factor":8.0})"},
      {R"({"rope_theta":5e5,"rope_scaling":{"rope_type":"llama3","type":"x","low_freq_factor":1.0}})",
       R"({"rope_type":"llama3","rope_theta":5e5,"low_freq_factor":1.0})"},
      {R"({"rope_scaling":{"type":"mrope","mrope_section":[1,2]}})",
       R"({"rope_type":"default","mrope_section":[1,2]})"},
      {R"({"rope_theta":7,"rope_parameters":null,"rope_scaling":{"type":"default"}})",
       R"({"rope_type":"default","rope_theta":7})"},
  };
  for (const auto& [config, rope] : cases) ExpectJson(RopeParameters(Parsed(config), "c").value(), rope);
}

TEST(RopeParameters, NewFormWinsAndIsCompleted) {
  ExpectJson(RopeParameters(Parsed(R"({"rope_theta":1,"partial_rotary_factor":0.5,"rope_scaling":{"type":"linear"},
                 "rope_parameters":{"rope_type":"yarn","rope_theta":2}})"),
                            "c")
                 .value(),
             R"({"rope_type":"yarn","rope_theta":2,"partial_rotary_factor":0.5})");
}

TEST(RopeParameters, OneObjectPerKindOfLayer) {
  ExpectJson(RopeParameters(Parsed(R"({"rope_parameters":{"full_attention":{"type":"linear","rope_theta":1e6},
                 "sliding_attention":{"rope_theta":1e4}}})"),
                            "c")
                 .value(),
             R"({"full_attention":{"rope_type":"linear","rope_theta":1e6},
                 "sliding_attention":{"rope_type":"default","rope_theta":1e4}})");
}

TEST(RopeParameters, RefusesWrongTypes) {
  EXPECT_THAT(RopeParameters(Parsed(R"({"rope_scaling":"yarn"})"), "c").error().message,
              HasSubstr("\"rope_scaling\": expected an object, found \"yarn\""));
  EXPECT_THAT(RopeParameters(Parsed(R"({"rope_parameters":{"rope_type":3}})"), "c").error().message,
              HasSubstr("\"rope_type\": expected a string, found 3"));
}

TEST(AddStopTokens, UnionOfNumbersAndLists) {
  std::vector<int64_t> tokens;
  ASSERT_TRUE(AddStopTokens(Parsed(R"({"eos_token_id":7})"), "c", &tokens).ok());
  ASSERT_TRUE(AddStopTokens(Parsed(R"({"eos_token_id":[9,7,2]})"), "c", &tokens).ok());
  ASSERT_TRUE(AddStopTokens(Parsed(R"({"eos_token_id":null})"), "c", &tokens).ok());
  ASSERT_TRUE(AddStopTokens(Parsed(R"({})"), "c", &tokens).ok());
  EXPECT_THAT(tokens, ElementsAre(2, 7, 9));
}

TEST(AddStopTokens, RefusesWhatIsNoTokenId) {
  for (const char* value : {"-1", "1.5", "\"2\"", "true", "2147483648", "[[1]]", "{}"}) {
    std::vector<int64_t> tokens;
    const Status status = AddStopTokens(Parsed(std::string(R"({"eos_token_id":)") + value + "}"), "c", &tokens);
    ASSERT_FALSE(status.ok()) << value;
    EXPECT_THAT(status.error().message, HasSubstr("\"eos_token_id\": expected a token id or a list of them"));
  }
}

TEST(OpenModelDir, ReadsBothFiles) {
  const TempDir dir;
  dir.Write("config.json", R"({"text_config":{"rope_theta":3},"torch_dtype":"float16","eos_token_id":5})");
  dir.Write("generation_config.json", R"({"eos_token_id":[4,5]})");
  const auto files = OpenModelDir(dir.Path());
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->dir, dir.Path());
  EXPECT_EQ(files->dtype, "float16");
  EXPECT_THAT(files->stop_tokens, ElementsAre(4, 5));
  ExpectJson(files->rope, R"({"rope_theta":3,"rope_type":"default"})");
  EXPECT_NE(Find(files->config, "text_config"), nullptr);
}

TEST(OpenModelDir, GenerationConfigIsOptional) {
  const TempDir dir;
  dir.Write("config.json", "{}");
  const auto files = OpenModelDir(dir.Path());
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_TRUE(files->generation_config.is_object());
  EXPECT_EQ(files->dtype, "");
  EXPECT_THAT(files->stop_tokens, IsEmpty());
}

TEST(OpenModelDir, SaysWhatAModelIs) {
  const TempDir dir;
  const auto files = OpenModelDir(dir.Path());
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code, Code::kNotFound);
  EXPECT_THAT(files.error().message, HasSubstr("expected a MODEL, which is a directory with config.json"));
  EXPECT_THAT(files.error().message, HasSubstr("found no config.json in it"));
  dir.Write("notes.txt", "text");
  EXPECT_THAT(OpenModelDir(dir.Path("notes.txt")).error().message, HasSubstr("found a file of another kind"));
}

TEST(OpenModelDir, NamesTheFileThatIsWrong) {
  const TempDir dir;
  dir.Write("config.json", "[]");
  EXPECT_THAT(OpenModelDir(dir.Path()).error().message, HasSubstr("/config.json: expected a JSON object, found array"));
  dir.Write("config.json", R"({"dtype":{"text":"float16"}})");
  EXPECT_THAT(OpenModelDir(dir.Path()).error().message, HasSubstr("\"dtype\": expected a string"));
  dir.Write("config.json", "{}");
  dir.Write("generation_config.json", R"({"eos_token_id":"x"})");
  EXPECT_THAT(OpenModelDir(dir.Path()).error().message, HasSubstr("/generation_config.json: \"eos_token_id\""));
}

TEST(OpenModelDir, OpensTheDemoModel) {
  const auto files = OpenModelDir(DemoDir());
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->dtype, "bfloat16");
  EXPECT_THAT(files->stop_tokens, ElementsAre(0, 2));
  ExpectJson(files->rope, R"({"rope_type":"default","rope_theta":10000.0,"partial_rotary_factor":0.25})");
}

}  // namespace
}  // namespace trivet::checkpoint
