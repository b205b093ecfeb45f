// SPDX-License-Identifier: Apache-2.0
// The program as its users see it: arguments in; exit status, standard output and standard error out.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/str.h"
#include "tests/io/temp_dir.h"
#include "tests/support/paths.h"

namespace trivet::cli {

/// How a run ended.
struct Outcome {
  int status = -1;
  std::string out, err;
};

/// Runs the program in a folder of its own.
class Program : public testing::Test {
 protected:
  // Runs the program through the shell, so `arguments` are quoted as a user would.
  Outcome Run(const std::string& arguments) {
    const std::string out = dir_.Path("out"), err = dir_.Path("err");
    const std::string command = ProgramPath() + " " + arguments + " >" + out + " 2>" + err + " </dev/null";
    const int status = std::system(command.c_str());
    Outcome outcome;
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.out = ReadTextFile(out, 1 << 24).value();
    outcome.err = ReadTextFile(err, 1 << 24).value();
    return outcome;
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = dir_.Path(name);
    EXPECT_TRUE(WriteTextFile(path, text).ok());
    return path;
  }

  // One line on standard error with every word, nothing on standard output.
  void Refused(const std::string& arguments, int status, const std::vector<std::string>& words) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.status, status) << arguments << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_EQ(Split(outcome.err, '\n').size(), 2U) << arguments << "\n" << outcome.err;
    for (const std::string& word : words) EXPECT_THAT(outcome.err, testing::HasSubstr(word)) << arguments;
  }

  TempDir dir_;
};

}  // namespace trivet::cli
