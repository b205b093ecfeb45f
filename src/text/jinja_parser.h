// SPDX-License-Identifier: Apache-2.0
// Parser of templates.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja_ast.h"

namespace trivet::text::jinja {

/// Tells whether a filter or a test of this name exists.
struct KnownNames {
  bool (*is_filter)(std::string_view name);
  bool (*is_test)(std::string_view name);
};

/// The statements of `source`. Unknown filters and tests are errors here unless an if may skip them.
/// Errors:  those of Lex, kInvalid for a malformed template or one nested deeper than kMaxTreeDepth, kUnsupported for a
///          statement that chat templates do not have (extends, include, import and so on).
Result<Body> Parse(std::string_view source, const KnownNames& names);

}  // namespace trivet::text::jinja
