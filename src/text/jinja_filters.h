// SPDX-License-Identifier: Apache-2.0
// The filters that follow a bar.
#pragma once

#include <string_view>

#include "text/jinja_runtime.h"

namespace trivet::text::jinja {

/// Whether a filter of this name exists.
bool IsFilter(std::string_view name);
/// value|name(arguments).  Errors: an unknown name, arguments that do not fit.
Result<Value> RunFilter(Runtime& runtime, std::string_view name, const Value& value, CallArguments arguments);

/// The filters of texts and numbers, and those of sequences, or null.
const Native* FindPlainFilter(std::string_view name);
const Native* FindSequenceFilter(std::string_view name);

}  // namespace trivet::text::jinja
