// SPDX-License-Identifier: Apache-2.0
#include "base/list.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/str.h"

namespace trivet {

Result<std::vector<std::string>> ParseList(std::string_view text, std::string_view what) {
  std::vector<std::string> pieces = Split(text, ',');
  const bool gap = std::any_of(pieces.begin(), pieces.end(), [](const std::string& piece) { return piece.empty(); });
  if (!pieces.empty() && !gap) return pieces;
  return MakeError(Code::kUsage, fmt::format("{}: expected pieces between commas, none of them empty, found \"{}\"; "
                                             "correct it",
                                             what, Quote(text)));
}

Result<std::vector<std::string>> ParseLists(const std::vector<std::string>& texts, std::string_view what) {
  std::vector<std::string> all;
  for (const std::string& text : texts) {
    TRY_ASSIGN(const std::vector<std::string> pieces, ParseList(text, what));
    all.insert(all.end(), pieces.begin(), pieces.end());
  }
  return all;
}

}  // namespace trivet
