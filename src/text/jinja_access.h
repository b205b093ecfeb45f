// SPDX-License-Identifier: Apache-2.0
// What a dot, brackets and a call reach: items, attributes and methods, under the rules of an environment that changes
// nothing.
#pragma once

#include <string_view>

#include "text/jinja_runtime.h"

namespace trivet::text::jinja {

/// value[key]: the item, else the attribute of that name, else undefined.  Errors: `value` is undefined.
Result<Value> GetItem(Runtime& runtime, const Value& value, const Value& key);
/// value.name: the attribute, else the item of that name, else undefined. What would change a value is undefined.
/// Errors:  `value` is undefined; a method that chat templates do not have.
Result<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name);
/// The attribute alone, or nothing.
Result<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& value, std::string_view name);
/// callee(arguments).  Errors: a value that cannot be called, and those of the call.
Result<Value> CallValue(Runtime& runtime, const Value& callee, CallArguments arguments);
/// Whether CallValue takes it.
bool IsCallable(const Value& value);

}  // namespace trivet::text::jinja
