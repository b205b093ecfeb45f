// SPDX-License-Identifier: Apache-2.0
// A progress bar with bytes per second, on a terminal; a single line elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::cli {

/// Progress on standard error.
class ProgressBar {
 public:
  /// Shows nothing at all when not `enabled`.
  ProgressBar(std::string title, bool enabled);
  /// Units: bytes.
  void Show(int64_t done, int64_t total);
  /// Replaces the bar by one line.
  ///   where  said behind the bytes, such as " on rank 0"
  void Finish(std::string_view where = {});

 private:
  const std::string title_;
  const bool enabled_;
  const bool terminal_;
  const int64_t begin_us_;
  int64_t shown_us_ = 0;
  int64_t done_ = 0;
};

}  // namespace trivet::cli
