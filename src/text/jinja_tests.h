// SPDX-License-Identifier: Apache-2.0
// The tests that follow "is".
#pragma once

#include <string_view>

#include "text/jinja_runtime.h"

namespace trivet::text::jinja {

/// Whether a test of this name exists.
bool IsTest(std::string_view name);
/// value is name(arguments).  Errors: an unknown name, arguments that do not fit.
Result<bool> RunTest(Runtime& runtime, std::string_view name, const Value& value, CallArguments arguments);

}  // namespace trivet::text::jinja
