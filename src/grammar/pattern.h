// SPDX-License-Identifier: Apache-2.0
// Regular expressions, in the part of ECMAScript's syntax that describes a regular language.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/char_set.h"
#include "grammar/grammar.h"

namespace trivet::grammar {

/// How a pattern is read.
struct PatternOptions {
  bool whole = true;  // it must match the whole text; false: some part of it, as far as ^ and $ allow
  std::function<NodeId(const CharSet&)> character;  // how a character of a set is written
};

/// The texts that `pattern` matches.
///   what     its name in messages
/// Errors:  kInvalid for a malformed pattern; kUnsupported names what is not a regular language's or not read:
///          look-around, back references, \b, \p, flags, and ^ and $ other than at the ends.
Result<NodeId> ReadPattern(std::string_view pattern, const PatternOptions& options, GrammarBuilder* builder,
                           std::string_view what);

}  // namespace trivet::grammar
