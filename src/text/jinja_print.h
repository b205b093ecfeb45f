// SPDX-License-Identifier: Apache-2.0
// Values as text: what Python's str() and repr() write, and JSON as json.dumps writes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace trivet::text::jinja {

/// Python's repr of a float: the shortest digits that read back the same.
std::string FloatText(double value);
/// Python's repr of a string.
std::string QuoteText(std::string_view text);

/// What {{ value }} prints.  Errors: none for a value made by this language.
std::string ToText(const Value& value);
/// Python's repr.
std::string Represent(const Value& value);

/// The keyword arguments of |tojson.
struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // white space of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// Errors: a value that JSON does not have, and text longer than kMaxWeight.
Result<std::string> ToJson(const Value& value, const JsonOptions& options);

}  // namespace trivet::text::jinja
