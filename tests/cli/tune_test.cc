// SPDX-License-Identifier: Apache-2.0
// `trivet tune`, and what other commands make of its file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "base/str.h"
#include "tests/cli/program.h"

namespace trivet::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

TEST_F(Program, WhatWasTunedIsUsedAndShown) {
  const std::string file = dir_.Path("tuning.json");
  const Outcome tuned = Run("tune --ranks 2,3 --out " + file);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out, HasSubstr("2 ranks on cpu by host, int64: one-shot up to"));
  EXPECT_THAT(tuned.out, HasSubstr("3 ranks on cpu by host, float32: one-shot up to"));
  EXPECT_THAT(tuned.out, HasSubstr("262144 bytes"));
  const std::string explain = "explain allreduce --ranks 3 --bytes 4096 --tuning ";
  EXPECT_THAT(Run(explain + file).out, ContainsRegex("measured +chosen +" + file));
  EXPECT_THAT(Run(explain + "none").out, ContainsRegex("built-in +chosen"));
  EXPECT_THAT(Run(explain + "none").out, ContainsRegex("measured +refused +--tuning none"));
  const Outcome four = Run("explain allreduce --ranks 4 --bytes 4096 --tuning " + file);
  EXPECT_THAT(four.out, ContainsRegex("measured +refused +" + file + " has nothing for 4 ranks on cpu by host"));
  EXPECT_THAT(Run("doctor --tuning " + file).out, HasSubstr("3 ranks on cpu by host: one-shot up to"));

  // A second run adds to the file.
  const Outcome again = Run("tune --json --ranks 4 --out " + file);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("\"two_shot_us\":"));
  EXPECT_THAT(Run("doctor --tuning " + file).out, HasSubstr("2 ranks on cpu by host: one-shot up to"));
  EXPECT_THAT(Run("doctor --tuning " + file).out, HasSubstr("4 ranks on cpu by host: one-shot up to"));

  // Whatever the file says, the bytes are the same.
  const std::string text = ReadTextFile(file, 1 << 20).value();
  std::vector<std::string> logits;
  for (const std::string bytes : {"0", "262144"}) {
    const std::string extreme =
        Write("extreme.json", std::regex_replace(text, std::regex("(\"(int64|float32)\": )[0-9]+"), "$01" + bytes));
    const std::string algorithm = bytes == "0" ? "two-shot" : "one-shot";
    EXPECT_THAT(Run(explain + extreme).out, ContainsRegex(algorithm + " +chosen"));
    const std::string out = dir_.Path("logits.safetensors");
    const Outcome scored =
        Run("score demo -q --ranks 3 --text 'Count from 48 to 52.' --tuning " + extreme + " --out " + out);
    ASSERT_EQ(scored.status, 0) << scored.err;
    logits.push_back(ReadTextFile(out, 1 << 28).value());
  }
  EXPECT_EQ(logits[0], logits[1]);
}

// Without --out and --tuning, the file is the user's own, in the folder that the environment names.
TEST_F(Program, TheUsersOwnTuningIsTaken) {
  const std::string cache = dir_.Path("cache"), file = cache + "/trivet/tuning.json";
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  EXPECT_THAT(Run("explain allreduce --ranks 2").out,
              ContainsRegex("measured +refused +no file; trivet tune makes one"));
  const Outcome tuned = Run("tune --ranks 2");
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_THAT(tuned.out, HasSubstr("kept in " + file));
  EXPECT_THAT(Run("explain allreduce --ranks 2").out, ContainsRegex("measured +chosen +" + file));
  EXPECT_THAT(Run("explain allreduce --ranks 2 --tuning none").out, ContainsRegex("built-in +chosen"));
  // A damaged one is not passed over.
  ASSERT_TRUE(WriteTextFile(file, "{\"format\": \"trivet tuning 1\", \"results\": [], \"weights\": 1}").ok());
  Refused("explain allreduce --ranks 2", 4, {file, "weights"});
  Refused("tune --ranks 2", 4, {file, "weights"});
  // And HOME stands in for a folder of caches.
  ::unsetenv("XDG_CACHE_HOME");
  const std::string home = dir_.Path("home"), before = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  ::setenv("HOME", home.c_str(), 1);
  EXPECT_THAT(Run("tune --ranks 2").out, HasSubstr("kept in " + home + "/.cache/trivet/tuning.json"));
  EXPECT_THAT(Run("explain allreduce --ranks 2").out, ContainsRegex("measured +chosen +" + home));
  ::setenv("HOME", before.c_str(), 1);
}

TEST_F(Program, WeightsOfATuningAreTakenAndSaid) {
  const std::string file = dir_.Path("tuning.json");
  ASSERT_EQ(Run("tune --ranks 3 --out " + file).status, 0);
  EXPECT_THAT(Run("tune --ranks 3 --out " + file).out,
              ContainsRegex("3 ranks on cpu by host: links of [0-9.]+, [0-9.]+, "));
  std::string text = ReadTextFile(file, 1 << 20).value();
  text = std::regex_replace(text, std::regex("\"ranks\": 3,"),
                            "\"ranks\": 3, \"weighted\": {\"weights\": [714, 0, 286], \"from_bytes\": 1048576},");
  text = std::regex_replace(text, std::regex("(\"(int64|float32)\": )[0-9]+"), "$010");
  const std::string weighted = Write("weighted.json", text);
  const std::string explain = "explain allreduce --ranks 3 --tuning " + weighted + " --bytes ";
  EXPECT_THAT(Run(explain + "1048576").out, ContainsRegex("weighted +chosen +weights 714, 0, 286 from 1048576 bytes"));
  EXPECT_THAT(Run(explain + "1048568").out, ContainsRegex("two-shot +chosen"));
  EXPECT_THAT(Run(explain + "1048568").out, ContainsRegex("weighted +refused +weights 714, 0, 286 from 1048576 bytes"));
  EXPECT_THAT(Run("explain allreduce --ranks 3 --tuning none").out, ContainsRegex("weighted +refused +no weights"));
  EXPECT_THAT(Run("doctor --tuning " + weighted).out,
              HasSubstr("3 ranks on cpu by host: by weights 714, 0, 286 from 1048576"));
  EXPECT_THAT(Run("bench allreduce --ranks 3 --soak 500 --tuning " + weighted).out, HasSubstr("500 sums over 3 ranks"));
  // A chunk of so many tokens that its sums are as long.
  std::string tokens = "[1";
  for (int i = 2; i <= 512; ++i) tokens += fmt::format(", {}", i);
  const std::string score =
      "score demo -q --ranks 3 --tokens " + Write("tokens.json", tokens + "]") + " --perplexity --tuning ";
  EXPECT_EQ(Run(score + weighted).out, Run(score + "none").out);
  EXPECT_THAT(Run("bench allreduce --ranks 3 --json --algorithm weighted --weights 5,0,2").out,
              HasSubstr("\"algorithm\":\"weighted\""));
  EXPECT_THAT(Run("bench allreduce --ranks 3 --algorithm weighted --weights 5,0,2 --soak 500").out,
              HasSubstr("500 sums over 3 ranks are right"));
  for (const std::string list : {"5,0", "5,0,2,1", "0,0,0", "5,0,1001", "5,0,-1"}) {
    Refused("bench allreduce --ranks 3 --algorithm weighted --weights=" + list, 2, {"--weights", "each of 3 ranks"});
  }
  Refused("bench allreduce --ranks 3 --weights 1,1,1", 2, {"--weights", "--algorithm weighted"});
  Refused("bench allreduce --algorithm ring", 2, {"--algorithm", "weighted", "ring"});
}

TEST_F(Program, CompressedSumsAreAskedForAndSaid) {
  const std::string score = "score demo --ranks 3 --text 'Count from 48 to 52.' --perplexity --numerics ";
  const Outcome plain = Run(score + "fast"), compressed = Run(score + "fast --compress-sums");
  ASSERT_EQ(compressed.status, 0) << compressed.err;
  EXPECT_THAT(compressed.err, HasSubstr("rounded to 6 bits, so logits change"));
  EXPECT_THAT(plain.err, testing::Not(HasSubstr("6 bits")));
  EXPECT_NE(plain.out, compressed.out);
  EXPECT_EQ(Run(score + "fast --compress-sums --launch processes --prefill-chunk 2").out, compressed.out);
  Refused(score + "exact -q --compress-sums", 2, {"--compress-sums", "--numerics fast"});
  Refused("bench allreduce --type float --compress-sums --soak 10", 2, {"--compress-sums", "--soak"});
  Refused("bench allreduce --compress-sums", 2, {"--compress-sums", "--type float"});
  Refused("bench allreduce --type float --compress-sums --algorithm two-shot", 2, {"--algorithm", "--compress-sums"});
  const std::string explain = "explain allreduce --ranks 3 --bytes 65536 --numerics ";
  EXPECT_THAT(Run(explain + "fast --compress-sums").out, ContainsRegex("compressed +chosen"));
  EXPECT_THAT(Run(explain + "fast --compress-sums").out, ContainsRegex("parts of wht6, sum in f32, order: ascending"));
  EXPECT_THAT(Run(explain + "fast").out, ContainsRegex("compressed +refused"));
  Refused(explain + "exact --compress-sums", 2, {"--compress-sums"});
}

TEST_F(Program, WhatCannotBeATuningIsRefused) {
  const std::string other = SourceRoot() + "/tests/comm/tuning_of_another.json";
  const Outcome foreign = Run("explain allreduce --ranks 3 --tuning " + other);
  EXPECT_EQ(foreign.status, 0) << foreign.err;
  EXPECT_THAT(foreign.out,
              ContainsRegex("measured +refused +.*has nothing for 3 ranks on cpu by host on this machine"));
  EXPECT_THAT(Run("doctor --tuning " + other).out, HasSubstr("has nothing for this machine"));
  Refused("explain allreduce --tuning " + Write("broken.json", "{\"format\": "), 4, {"broken.json"});
  std::string text = ReadTextFile(other, 1 << 20).value();
  text.replace(text.find("8192"), 4, "-8192");
  const std::string absurd = Write("absurd.json", text);
  for (const std::string command : {"explain allreduce", "doctor", "generate demo -q --prompt hi", "bench allreduce"}) {
    Refused(command + " --tuning " + absurd, 4,
            {"one_shot_bytes.int64", "0, or 4096 to 262144 bytes", "-8192", "trivet tune"});
  }
  Refused("tune --ranks 2 --out " + absurd, 4, {"one_shot_bytes.int64"});
  Refused("doctor --tuning " + dir_.Path("none.json"), 3, {"none.json"});
  Refused("doctor --tuning ''", 2, {"--tuning"});
  Refused("tune --ranks 1 --out " + dir_.Path("t.json"), 2, {"--ranks", "2 to 16"});
}

}  // namespace
}  // namespace trivet::cli
