// SPDX-License-Identifier: Apache-2.0
// One formatted field, as the % operator and str.format both write it: sign, digits, precision, padding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace trivet::text::jinja {

/// Widest field and longest fraction.
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxPrecision = 1000;

/// A parsed conversion of a format string.
struct FormatSpec {
  std::string fill = " ";  // one character
  char align = 0;          // < > ^ or =; 0 means that the type decides
  char sign = '-';         // - + or space
  bool alternate = false;
  bool zero = false;  // numbers are padded after their sign
  char grouping = 0;  // , or _
  int64_t width = 0;
  int64_t precision = -1;  // -1: not given
  char type = 0;           // 0: not given
};

/// [[fill]align][sign][#][0][width][,][.precision][type], the whole of `text`.  Errors: another form.
Result<FormatSpec> ParseFormatSpec(std::string_view text);
/// A number.  Errors: a type that numbers do not have.
Result<std::string> FormatNumber(const Value& value, const FormatSpec& spec);
/// A text, cut to the precision and padded.
Result<std::string> FormatText(std::string_view text, const FormatSpec& spec);

}  // namespace trivet::text::jinja
