// SPDX-License-Identifier: Apache-2.0
// Text from a pattern and values: Python's % operator, str.format, and dates.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja_runtime.h"

namespace trivet::text::jinja {

/// pattern % values.  Errors: values that do not fit the pattern, a width or precision out of bounds.
Result<Value> FormatPercent(Runtime& runtime, const Value& pattern, const Value& values);

/// pattern.format(arguments).  Errors: as FormatPercent.
Result<Value> FormatBraces(Runtime& runtime, const Value& pattern, const CallArguments& arguments);

/// The local time now as strftime writes it.  Errors: a pattern longer than 1000 bytes.
Result<std::string> FormatTimeNow(const std::string& pattern);

}  // namespace trivet::text::jinja
