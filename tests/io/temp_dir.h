// SPDX-License-Identifier: Apache-2.0
// A directory for one test's files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "base/str.h"

namespace trivet {

/// An empty directory, removed with all it holds at the end of the scope.
class TempDir {
 public:
  TempDir() {
    // One process runs one test at a time, so the process id keeps parallel test programs apart.
    dir_ = std::filesystem::path(testing::TempDir()) / ("trivet_test_" + std::to_string(::getpid()));
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code error;
    std::filesystem::remove_all(dir_, error);
  }

  /// The path of `name` in it, or its own path.
  std::string Path(std::string_view name = {}) const { return name.empty() ? dir_ : dir_ / name; }

  /// Writes a file.
  void Write(std::string_view name, std::string_view text) const { ASSERT_TRUE(WriteTextFile(Path(name), text).ok()); }

  /// How many files it holds.
  int Count() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir_)) ++count;
    return count;
  }

 private:
  std::filesystem::path dir_;
};

}  // namespace trivet
