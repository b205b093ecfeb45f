// SPDX-License-Identifier: Apache-2.0
#include "sampling/stop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/str.h"

namespace trivet::sampling {

Result<StopMatcher> StopMatcher::Make(std::vector<std::string> stops, Cut cut) {
  StopMatcher matcher;
  matcher.cut_ = cut;
  for (std::string& stop : stops) {
    if (stop.empty() || !IsUtf8(stop)) {
      return MakeError(Code::kInvalid,
                       fmt::format("stop: expected non-empty UTF-8 strings, found \"{}\"; remove it", Quote(stop)));
    }
    Pattern pattern;
    pattern.text = std::move(stop);
    pattern.border.assign(pattern.text.size(), 0);
    for (size_t i = 1; i < pattern.text.size(); ++i) {
      Advance(pattern.text[i], &pattern);
      pattern.border[i] = pattern.state;
    }
    pattern.state = 0;
    matcher.patterns_.push_back(std::move(pattern));
  }
  return matcher;
}

void StopMatcher::Advance(char byte, Pattern* pattern) {
  while (pattern->state > 0 && pattern->text[pattern->state] != byte) {
    pattern->state = pattern->border[pattern->state - 1];
  }
  if (pattern->text[pattern->state] == byte) ++pattern->state;
}

std::string StopMatcher::Push(std::string_view text) {
  if (matched()) return {};
  for (size_t i = 0; i < text.size(); ++i) {
    const Pattern* complete = nullptr;
    for (Pattern& pattern : patterns_) {
      Advance(text[i], &pattern);
      if (pattern.state < pattern.text.size()) continue;
      if (complete == nullptr || pattern.text.size() > complete->text.size()) complete = &pattern;
    }
    if (complete == nullptr) continue;
    matched_stop_ = complete->text;
    std::string out = std::exchange(held_, {}).append(text.substr(0, i + 1));
    if (cut_ == Cut::kBefore) out.resize(out.size() - matched_stop_.size());
    return out;
  }
  // The longest suffix that begins some stop string. It begins with a stop string's first byte, so no character is cut.
  size_t hold = 0;
  for (const Pattern& pattern : patterns_) hold = std::max(hold, pattern.state);
  held_.append(text);
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::Flush() {
  for (Pattern& pattern : patterns_) pattern.state = 0;
  return std::exchange(held_, {});
}

}  // namespace trivet::sampling
