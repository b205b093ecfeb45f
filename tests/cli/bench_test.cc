// SPDX-License-Identifier: Apache-2.0
// What `trivet bench` prints.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/json.h"
#include "tests/cli/program.h"

namespace trivet::cli {
namespace {

// Bytes of every part that is printed, by its name; the step's stand under "".
std::map<std::string, double> PartBytes(const std::string& out) {
  std::map<std::string, double> bytes;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const Result<Json> json = ParseJson(line, "bench");
    if (!json.ok()) return {};
    if (json->contains("part")) {
      EXPECT_GT((*json)["us"].get<double>(), 0) << line;
      bytes[(*json)["part"].get<std::string>()] = (*json)["bytes"].get<double>();
    } else {
      bytes[""] = (*json)["step_bytes"].get<double>();
    }
  }
  return bytes;
}

TEST_F(Program, BenchTellsThePartsOfAStep) {
  const std::string bench = "bench demo -q --json --alone --rounds 1 --prompt-tokens 3 --tokens 3 ";
  EXPECT_EQ(PartBytes(Run(bench).out).size(), 1U);
  std::map<std::string, double> whole = PartBytes(Run(bench + "--parts").out);
  const double step = whole[""];
  whole.erase("");
  ASSERT_EQ(whole.size(), 6U) << "all but a plain MLP";
  double sum = 0;
  for (const auto& [part, bytes] : whole) sum += bytes;
  EXPECT_NEAR(sum, step, 1);
  // The first of two stages has no head, and half of the layers or so.
  std::map<std::string, double> first = PartBytes(Run(bench + "--parts --pp 2").out);
  EXPECT_FALSE(first.contains("head"));
  EXPECT_LT(first["attention"], whole["attention"]);
  EXPECT_GT(first["attention"], 0);
  Refused("bench demo --parts", 2, {"--parts", "--alone"});
}

}  // namespace
}  // namespace trivet::cli
