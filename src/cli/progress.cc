// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/str.h"

namespace trivet::cli {

ProgressBar::ProgressBar(std::string title, bool enabled)
    : title_(std::move(title)), enabled_(enabled), terminal_(::isatty(STDERR_FILENO) == 1), begin_us_(NowUs()) {}

void ProgressBar::Show(int64_t done, int64_t total) {
  done_ = done;
  const int64_t now = NowUs();
  if (!enabled_ || !terminal_ || (now - shown_us_ < 50000 && done < total)) return;
  shown_us_ = now;
  constexpr int64_t kWidth = 30;
  const int64_t filled = total > 0 ? kWidth * done / total : kWidth;
  const double seconds = std::max(1e-6, static_cast<double>(now - begin_us_) * 1e-6);
  const std::string line =
      fmt::format("\r{} [{}{}] {:3d}%  {} of {}  {}/s ", title_, std::string(static_cast<size_t>(filled), '#'),
                  std::string(static_cast<size_t>(kWidth - filled), ' '), total > 0 ? 100 * done / total : 100,
                  HumanBytes(static_cast<double>(done)), HumanBytes(static_cast<double>(total)),
                  HumanBytes(static_cast<double>(done) / seconds));
  std::fputs(line.c_str(), stderr);
}

void ProgressBar::Finish() {
  if (!enabled_) return;
  const double seconds = std::max(1e-6, static_cast<double>(NowUs() - begin_us_) * 1e-6);
  const std::string line =
      fmt::format("{}{}: {} in {:.2f} s, {}/s\n", terminal_ ? "\r\033[K" : "", title_,
                  HumanBytes(static_cast<double>(done_)), seconds, HumanBytes(static_cast<double>(done_) / seconds));
  std::fputs(line.c_str(), stderr);
}

}  // namespace trivet::cli
