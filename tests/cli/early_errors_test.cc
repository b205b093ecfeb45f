// SPDX-License-Identifier: Apache-2.0
// What is wrong is said before the weights are loaded, which takes the longest. Every run here has a second mistake, of
// a rank that is not there, which is found just before they are: whoever hears of the first one had not to wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/program.h"

namespace trivet::cli {
namespace {

const std::string kLater = " -q --fault die:rank=9";

class EarlyErrors : public Program {
 protected:
  // The demo in a folder of its own, with one file in place of its own.
  std::string DemoWith(const std::string& file, const std::string& text) {
    const std::string folder = dir_.Path("model");
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    for (const auto& entry : std::filesystem::directory_iterator(DemoDir())) {
      if (!entry.is_regular_file() || entry.path().filename() == file) continue;
      std::filesystem::create_symlink(std::filesystem::absolute(entry.path()),
                                      std::filesystem::path(folder) / entry.path().filename());
    }
    Write("model/" + file, text);
    return folder;
  }
};

TEST_F(EarlyErrors, TheSecondMistakeIsFoundWhereThereIsNoOther) {
  Refused("generate " + DemoWith("README.md", "") + kLater + " --prompt hi", 2, {"--fault", "found 9"});
}

TEST_F(EarlyErrors, OfATokenizer) {
  const std::string model = DemoWith("tokenizer.json", "{");
  for (const std::string& command : {"generate " + model + " --prompt hi", "generate " + model + " --chat",
                                     "serve " + model + " --port 0", "score " + model + " --text hi --logprobs"}) {
    Refused(command + kLater, 4, {"tokenizer.json"});
  }
}

TEST_F(EarlyErrors, OfSamplingThatAModelAsksFor) {
  const std::string model = DemoWith("generation_config.json", "{\"temperature\": -1}");
  for (const std::string& command : {"generate " + model + " --prompt hi", "serve " + model + " --port 0"}) {
    Refused(command + kLater, 4, {"generation_config.json", "temperature"});
  }
}

TEST_F(EarlyErrors, OfWhatIsAsked) {
  Refused("generate demo --prompt hi --temperature -1" + kLater, 2, {"temperature"});
  Refused("generate demo --prompt hi --json-schema " + Write("schema.json", "{\"type\": 5}") + kLater, 4,
          {"schema.json", "\"type\"", "found 5"});
  Refused("generate demo --prompts " + Write("prompts.jsonl", "{\"prompt\": 5}") + kLater, 4,
          {"prompts.jsonl, line 1", "expected an object with \"prompt\""});
  Refused("generate demo --prompts " + Write("ids.jsonl", "\n{\"token_ids\": [5, 4096]}") + kLater, 4,
          {"ids.jsonl, line 2: prompt", "from 0 to 4095, found 4096"});
  Refused("generate " + DemoWith("tokenizer_config.json", "{}") + " --chat" + kLater, 5, {"--chat", "chat template"});
  Refused("generate demo --raw --prompt ''" + kLater, 4, {"prompt: expected at least one token"});
  Refused("generate demo --raw" + kLater, 4, {"prompt: expected at least one token"});  // an empty standard input
}

// A run that records, or takes its experts from a file, has no prefix cache, which is said to whoever asks for one.
TEST_F(EarlyErrors, OfAPrefixCacheThatARunCannotHave) {
  const std::string generate = "generate demo -q --prompt 'Count from 48 to 52.' --max-tokens 2 ";
  const std::string record = " --proof rows --out " + dir_.Path("run");
  Refused(generate + record + " --prefix-cache on", 2,
          {"--prefix-cache: expected off beside --proof", "found on; leave it out"});
  EXPECT_EQ(Run(generate + record + " --prefix-cache off").status, 0);
  const std::string from = "replay --from " + dir_.Path("run") + " -q --out " + dir_.Path("again");
  Refused(from + " --prefix-cache on", 2, {"--prefix-cache: expected off beside --proof"});
  EXPECT_EQ(Run(from).status, 0);
  const std::string routes = dir_.Path("routes.safetensors");
  ASSERT_EQ(Run("routes export " + dir_.Path("run") + " " + routes).status, 0);
  Refused(generate + " --prefix-cache on --routes " + routes, 2, {"--prefix-cache: expected off beside --routes"});
  EXPECT_EQ(Run(generate + " --routes " + routes).status, 0);
  EXPECT_EQ(Run(generate + " --prefix-cache on").status, 0);
}

}  // namespace
}  // namespace trivet::cli
