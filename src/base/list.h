// SPDX-License-Identifier: Apache-2.0
// Lists in one text, as flags and plans have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trivet {

/// The pieces between commas, none of them empty.
///   what  names the object in messages
/// Errors:  kUsage.
Result<std::vector<std::string>> ParseList(std::string_view text, std::string_view what);

/// Those of several such texts, one list behind the other.
Result<std::vector<std::string>> ParseLists(const std::vector<std::string>& texts, std::string_view what);

}  // namespace trivet
