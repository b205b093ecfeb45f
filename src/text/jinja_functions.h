// SPDX-License-Identifier: Apache-2.0
// The global functions of chat templates: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja_runtime.h"

namespace trivet::text::jinja {

/// The function of this name, or nothing.
std::optional<Value> FindFunction(std::string_view name);

}  // namespace trivet::text::jinja
