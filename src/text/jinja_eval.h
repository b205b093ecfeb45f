// SPDX-License-Identifier: Apache-2.0
// Evaluation of a parsed template.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja_ast.h"

namespace trivet::text::jinja {

/// The text that `body` gives with the members of `context`, an object, as variables.
/// Errors:  kInvalid for whatever the language calls an error, for a message that the template raises, and beyond the
///          limits of jinja_runtime.h; kUnsupported for methods that chat templates do not have.
Result<std::string> Evaluate(const Body& body, const Json& context);

}  // namespace trivet::text::jinja
