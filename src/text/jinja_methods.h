// SPDX-License-Identifier: Apache-2.0
// Methods of strings, lists, dictionaries and the other values.
#pragma once

#include <string_view>

#include "text/jinja_runtime.h"

namespace trivet::text::jinja {

/// The method `name` of values of this kind, or null.
const Native* FindMethod(Kind kind, std::string_view name);
/// The method `name` of strings, or null.
const Native* FindStringMethod(std::string_view name);
/// Whether Python's method of this name would change a value of this kind, which templates may not do.
bool IsChangingMethod(Kind kind, std::string_view name);
/// Whether Python has a method of this name for the kind that this language leaves out.
bool IsOtherMethod(Kind kind, std::string_view name);

}  // namespace trivet::text::jinja
