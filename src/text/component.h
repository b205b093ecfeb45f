// SPDX-License-Identifier: Apache-2.0
// What the components of tokenizer.json (normalizer, pre-tokenizer, post-processor, decoder) share: each is null, an
// object with a "type", or a Sequence of such objects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"

namespace trivet::text {

/// One component that is no Sequence; `json` points into the document.
struct Component {
  std::string type;
  const Json* json;
};

/// The components of `json` in order, Sequences opened.
///   list_key   the member of a Sequence that holds its parts
///   what       the object's name for messages
/// Errors:      kInvalid when one is no object with a "type".
Result<std::vector<Component>> ListComponents(const Json& json, std::string_view list_key, std::string_view what);

/// The error for a type that is not one of ours.
Error UnknownComponent(std::string_view type, std::string_view what);

/// A string member that must be there.  Errors: kInvalid.
Result<std::string> NeedString(const Json& object, std::string_view key, std::string_view what);
/// A string member of exactly one character; absent gives `fallback`, or an error when that is 0.  Errors: kInvalid.
Result<char32_t> GetCharacter(const Json& object, std::string_view key, char32_t fallback, std::string_view what);
/// The "pattern" member: {"String": text} or {"Regex": expression}.  Errors: kInvalid and those of Regex::Compile.
Result<Regex> NeedPattern(const Json& object, std::string_view what);

/// When a space mark is put before the text.
enum class PrependScheme { kNever, kFirst, kAlways };
/// The "prepend_scheme" of a Metaspace, or the older "add_prefix_space" it replaced.  Errors: kInvalid.
Result<PrependScheme> GetPrependScheme(const Json& object, std::string_view what);

}  // namespace trivet::text
