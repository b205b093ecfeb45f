// SPDX-License-Identifier: Apache-2.0
// Values of options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/program.h"

namespace trivet::cli {
namespace {

// Options of a type as --help shows them, by the command that has them.
std::vector<std::pair<std::string, std::string>> OptionsOf(const std::string& help, const std::string& type) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const std::string& line : Split(help, '\n')) {
    std::smatch found;
    static const std::regex kOption(R"(^ +(?:-\w,)?(--[\w-]+)[^ ]* ([A-Z]+)(?:[= ].*)?$)");
    if (std::regex_match(line, found, kOption) && found[2] == type) options.emplace_back(found[1], type);
  }
  return options;
}

// One sentence of ours, whatever the library has to say.
TEST_F(Program, WhatIsNoNumberIsToldAlikeByEveryOption) {
  size_t seen = 0;
  for (const std::string command :
       {"plan", "generate", "serve", "score", "replay", "pad", "quantize", "bench", "explain", "bench allreduce",
        "bench p2p", "placement make", "placement check", "layout owners"}) {
    const std::string help = Run(command + " --help").out;
    for (const auto& [type, expected] :
         std::map<std::string, std::string>{{"INT", "expected an integer of 64 bits"},
                                            {"FLOAT", "expected a decimal number"},
                                            {"SIZE", "expected a whole number of bytes"}}) {
      for (const auto& [option, of] : OptionsOf(help, type)) {
        Refused(command + " " + option + " zzz", 2, {option + ": " + expected, "found \"zzz\"; see trivet --help"});
        ++seen;
      }
    }
  }
  EXPECT_GT(seen, 100U) << "options found in --help";
  for (const std::string value : {"1.5", "1e3", "0x10", "99999999999999999999"}) {
    Refused("plan demo --ranks " + value, 2, {"--ranks: expected an integer of 64 bits, found \"" + value + "\""});
  }
  for (const std::string value : {"0x1p-1", "' 0.5'", "'0.5 '", "0.5x", "1e400"}) {
    Refused("plan demo --memory-fraction " + value, 2, {"--memory-fraction: expected a decimal number, found \""});
  }
  const std::string plan = "plan demo --memory 8G --ranks ";  // the machine's own memory changes
  EXPECT_EQ(Run(plan + "010 --json").out, Run(plan + "10 --json").out);
}

TEST_F(Program, ASizeIsANumberOfBytes) {
  for (const std::string size : {"1e30G", "5Q", "1.5G", "99999999999G", "99999999999999999999999", "G", "''", "-1"}) {
    Refused("plan demo --memory " + size, 2, {"--memory: expected a whole number of bytes", "such as 64G", "found \""});
  }
  Refused("plan demo --memory 2EiB", 2,
          {"--memory: expected 0 to 1152921504606846976 bytes, found 2305843009213693952"});
  EXPECT_EQ(Run("plan demo --memory '64 GB'").out, Run("plan demo --memory 64000000000").out);
}

// A number is told, and judged, as it was given: not as what it is in 32 bits.
TEST_F(Program, LargeNumbersAreNotCutOff) {
  const std::string generate = "generate demo -q --prompt hi ", large = "4294967297";
  Refused(generate + "--logprobs " + large, 2, {"--logprobs: expected 0 to 100, found " + large});
  Refused(generate + "--threads " + large, 2, {"--threads: expected 0 to 1024, found " + large});
  Refused("serve demo -q --port " + large, 2, {"--port: expected 0 to 65535, found " + large});
}

TEST_F(Program, ValuesAreRefusedByTheNameOfTheirOption) {
  Refused("plan demo --ranks 17", 2, {"--ranks: expected"});
  Refused("plan demo --pad-to 17", 2, {"--pad-to: expected"});
  Refused("plan demo --cut zzz", 2, {"--cut: expected"});
  Refused("explain gemm --rows zzz", 2, {"--rows: expected"});
  Refused("placement make --experts 4 --semantics zzz", 2, {"--semantics: expected"});
  Refused("generate demo -q --prompt hi --top-p 7", 2, {"--top-p: expected"});
  Refused("generate demo -q --prompt hi --repetition-penalty 0", 2, {"--repetition-penalty: expected"});
  Refused("generate demo -q --prompt hi --stop ''", 2, {"--stop: expected a text"});
}

// As everywhere: any 64 bits.
TEST_F(Program, ASeedOfAMapIsAnyInteger) {
  const std::string make = "placement make --experts 16 --ep 3 --random --seed ";
  const Outcome negative = Run(make + "-1"), largest = Run(make + "18446744073709551615");
  EXPECT_EQ(negative.status, 0) << negative.err;
  EXPECT_EQ(negative.out, largest.out);
  EXPECT_NE(negative.out, Run(make + "1").out);
  EXPECT_EQ(Run(make + "0").out, Run("placement make --experts 16 --ep 3 --random").out);
  for (const std::string seed : {"seven", "1.5", "''", "18446744073709551616"}) {
    Refused(make + seed, 2, {"--seed: expected an integer from -9223372036854775808 to 18446744073709551615"});
  }
}

}  // namespace
}  // namespace trivet::cli
