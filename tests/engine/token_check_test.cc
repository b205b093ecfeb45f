// SPDX-License-Identifier: Apache-2.0
#include "engine/token_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/open_model.h"
#include "tests/io/temp_dir.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The demo's tokenizer, in which <|endoftext|>, <|im_start|> and <|im_end|> are 0, 1 and 2.
//   notices  gets those about end tokens beyond the vocabulary; without it, these are kept
std::vector<std::string> Defects(const Json& config, const Json& generation, const Json& tokenizer_config,
                                 int64_t vocab = 4096, std::vector<std::string>* notices = nullptr) {
  const TempDir dir;
  std::filesystem::copy_file(DemoDir() + "/tokenizer.json", dir.Path("tokenizer.json"));
  dir.Write("tokenizer_config.json", DumpJson(tokenizer_config));
  const Result<Prompts> prompts = Prompts::Open(dir.Path());
  CHECK_MSG(prompts.ok(), prompts.error().message);
  checkpoint::ModelFiles files;
  files.text_config = config;
  files.generation_config = generation;
  for (const Json& stated : {config, generation}) {
    const Status added = checkpoint::AddStopTokens(stated, "config", &files.stop_tokens);
    CHECK_MSG(added.ok(), added.error().message);
  }
  if (notices != nullptr) DropImpossibleStops(vocab, &files, notices);
  return TokenDefects(files, *prompts, vocab);
}

const Json kNone = Json::object();

TEST(TokenCheck, AgreementSaysNothing) {
  EXPECT_THAT(Defects(kNone, kNone, kNone), IsEmpty());
  EXPECT_THAT(Defects({{"eos_token_id", 2}, {"bos_token_id", nullptr}, {"pad_token_id", 0}},
                      {{"eos_token_id", {0, 2}}, {"pad_token_id", 0}},
                      {{"eos_token", "<|im_end|>"}, {"pad_token", {{"content", "<|endoftext|>"}}}}),
              IsEmpty());
}

TEST(TokenCheck, AVocabularyLargerThanTheModel) {
  EXPECT_THAT(Defects(kNone, kNone, kNone, 4000),
              ElementsAre(HasSubstr("tokenizer: expected at most 4000 ids, as many as the model has, found 4096")));
  EXPECT_THAT(Defects(kNone, kNone, kNone, 0), IsEmpty());
}

TEST(TokenCheck, IdsOutsideTheVocabulary) {
  EXPECT_THAT(Defects({{"bos_token_id", 4096}}, {{"pad_token_id", -1}, {"eos_token_id", {2, 9999}}}, kNone),
              ElementsAre(HasSubstr("config.json: \"bos_token_id\": expected an id of the tokenizer, from 0 to 4095, "
                                    "found 4096"),
                          HasSubstr("generation_config.json: \"eos_token_id\": expected an id of the tokenizer, from 0 "
                                    "to 4095, found 9999"),
                          HasSubstr("generation_config.json: \"pad_token_id\": expected an id of the tokenizer, from 0 "
                                    "to 4095, found -1")));
  EXPECT_THAT(Defects(kNone, kNone, {{"bos_token", "<absent>"}}),
              ElementsAre(HasSubstr("\"bos_token\": expected a token of the vocabulary, found \"<absent>\"")));
}

TEST(TokenCheck, EndTokensThatAreNotUsedAreNoDefect) {
  std::vector<std::string> notices;
  const auto defects = [&](const Json& config, const Json& generation) {
    return Defects(config, generation, {{"eos_token", "<|im_end|>"}}, 4096, &notices);
  };
  EXPECT_THAT(defects({{"eos_token_id", 9999}}, {{"eos_token_id", {2, 4096}}}), IsEmpty());
  EXPECT_THAT(notices, ElementsAre(HasSubstr("found 4096, 9999: not used")));
  EXPECT_THAT(defects({{"eos_token_id", {1, 9999}}}, kNone), ElementsAre(HasSubstr("found 1 in config.json and 2 in")));
}

TEST(TokenCheck, IdsThatDiffer) {
  EXPECT_THAT(Defects({{"bos_token_id", 1}}, {{"bos_token_id", 2}}, {{"bos_token", "<|im_end|>"}}),
              ElementsAre(HasSubstr("\"bos_token_id\": expected one token everywhere, found 1 in config.json and 2 in "
                                    "generation_config.json"),
                          HasSubstr("found 1 in config.json and 2 in the tokenizer")));
  EXPECT_THAT(Defects(kNone, {{"eos_token_id", {0, 1}}}, {{"eos_token", "<|im_end|>"}}),
              ElementsAre(HasSubstr("found 0, 1 in generation_config.json and 2 in the tokenizer")));
}

}  // namespace
}  // namespace trivet::engine
