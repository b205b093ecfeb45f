// SPDX-License-Identifier: Apache-2.0
// StopMatcher: finds stop strings in text that arrives in pieces, and holds back only what may yet become one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trivet::sampling {

/// Matches one stream of text. The stop string that is complete first wins, the longest of those that end together;
/// how the text is cut into pieces makes no difference.
class StopMatcher {
 public:
  /// Whether the matched stop string belongs to the text.
  enum class Cut { kBefore, kAfter };

  /// A matcher for `stops`; none is fine and never matches.
  /// Errors:  kInvalid for an empty stop string or one that is not UTF-8.
  static Result<StopMatcher> Make(std::vector<std::string> stops, Cut cut = Cut::kBefore);

  /// Takes the next piece and returns the text that is now certain; it ends between characters if the pieces do.
  /// After a match it returns nothing more.
  std::string Push(std::string_view text);
  /// The end of the stream: returns what was held back.
  std::string Flush();

  /// Whether a stop string was found.
  bool matched() const { return !matched_stop_.empty(); }
  /// The stop string that was found, or an empty text.
  const std::string& matched_stop() const { return matched_stop_; }
  /// The text that may begin a stop string.
  const std::string& held() const { return held_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // border[i]: longest proper border of the first i + 1 bytes (Knuth, Morris, Pratt)
    size_t state = 0;            // bytes matched so far
  };

  static void Advance(char byte, Pattern* pattern);

  Cut cut_ = Cut::kBefore;
  std::vector<Pattern> patterns_;
  std::string held_;
  std::string matched_stop_;
};

}  // namespace trivet::sampling
