// SPDX-License-Identifier: Apache-2.0
// The program on a GGUF file: text in, text out, and the same bytes on any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "base/check.h"
#include "tests/engine/tiny_gguf.h"
#include "tests/io/temp_dir.h"
#include "tests/support/paths.h"

namespace trivet::cli {
namespace {

// Standard output of `trivet ARGUMENTS`, and the exit status.
std::pair<std::string, int> Trivet(const std::string& arguments) {
  std::FILE* pipe = ::popen((ProgramPath() + " " + arguments).c_str(), "r");
  CHECK(pipe != nullptr);
  std::string output;
  std::array<char, 4096> buffer{};
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), got);
  }
  return {output, ::pclose(pipe)};
}

TEST(Gguf, GeneratesTheSameBytesOnAnyNumberOfRanks) {
  const TempDir dir;
  dir.Write("m.gguf", engine::TinyGguf(engine::TinyMetadata(), engine::TinyTensors()));
  const std::string what = "generate " + dir.Path("m.gguf") + " --quiet --temperature 0 --max-tokens 20 --json ";
  const auto [one, status] = Trivet(what + "--raw --prompt 'abc ab'");
  ASSERT_EQ(status, 0);
  EXPECT_THAT(one, testing::HasSubstr("\"prompt_tokens\":5"));  // <s>, a space before the text, abc, a space, ab
  for (const char* ranks : {"2", "3", "5"}) {
    EXPECT_EQ(Trivet(what + "--raw --prompt 'abc ab' --ranks " + ranks).first, one) << ranks;
  }
  // A conversation goes through the file's template, which writes <s> itself.
  EXPECT_EQ(Trivet(what + "--prompt 'abc ab' --ranks 3").first, one);
}

TEST(Gguf, TokenizeAndScoreTakeText) {
  const TempDir dir;
  dir.Write("m.gguf", engine::TinyGguf(engine::TinyMetadata(), engine::TinyTensors()));
  dir.Write("texts.json", R"(["ac", "<s>"])");
  EXPECT_EQ(Trivet("tokenize " + dir.Path("m.gguf") + " --texts " + dir.Path("texts.json")).first,
            "[[1,262,268],[1,1]]\n");
  const auto [scored, status] = Trivet("score " + dir.Path("m.gguf") + " --quiet --text abc --perplexity --ranks 3");
  EXPECT_EQ(status, 0);
  EXPECT_EQ(scored, Trivet("score " + dir.Path("m.gguf") + " --quiet --text abc --perplexity").first);
  EXPECT_THAT(scored, testing::HasSubstr("perplexity"));
}

}  // namespace
}  // namespace trivet::cli
