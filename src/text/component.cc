// SPDX-License-Identifier: Apache-2.0
#include "text/component.h"

#include <fmt/format.h>

#include "base/str.h"
#include "text/unicode.h"

namespace trivet::text {
namespace {

constexpr size_t kMaxComponents = 64;  // tokenizers have a handful

}  // namespace

Result<std::vector<Component>> ListComponents(const Json& json, std::string_view list_key, std::string_view what) {
  std::vector<Component> components;
  std::vector<const Json*> open = {&json};  // last first; a stack of our own, as the nesting is the file's
  while (!open.empty()) {
    const Json& next = *open.back();
    open.pop_back();
    if (next.is_null() && &next == &json) break;
    const Result<std::string> type = NeedString(next, "type", what);
    if (!type.ok()) return type.error();
    if (*type != "Sequence") {
      if (components.size() == kMaxComponents) {
        return MakeError(Code::kInvalid, fmt::format("{}: expected at most {} parts, found more; correct the file",
                                                     what, kMaxComponents));
      }
      components.push_back({*type, &next});
      continue;
    }
    const Json* list = Find(next, list_key);
    if (list == nullptr || !list->is_array()) {
      return MakeError(
          Code::kInvalid,
          fmt::format("{}: Sequence: expected an array \"{}\", found none; correct the file", what, list_key));
    }
    for (auto it = list->rbegin(); it != list->rend(); ++it) open.push_back(&*it);
  }
  return components;
}

Error UnknownComponent(std::string_view type, std::string_view what) {
  return MakeError(Code::kUnsupported, fmt::format("{}: expected a type that Trivet implements, found \"{}\"; this "
                                                   "tokenizer cannot be served",
                                                   what, Quote(type)));
}

Result<std::string> NeedString(const Json& object, std::string_view key, std::string_view what) {
  const Json* value = Find(object, key);
  if (value == nullptr || !value->is_string()) {
    return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected a string, found {}; correct the file", what, key,
                                                 value == nullptr ? "nothing" : value->type_name()));
  }
  return value->get<std::string>();
}

Result<char32_t> GetCharacter(const Json& object, std::string_view key, char32_t fallback, std::string_view what) {
  if (fallback != 0 && Find(object, key) == nullptr) return fallback;
  TRY_ASSIGN(const std::string text, NeedString(object, key, what));
  const std::optional<char32_t> value = OnlyCodePoint(text);
  if (!value.has_value()) {
    return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected one character, found \"{}\"; correct the file",
                                                 what, key, Quote(text)));
  }
  return *value;
}

Result<Regex> NeedPattern(const Json& object, std::string_view what) {
  const Json* pattern = Find(object, "pattern");
  if (pattern != nullptr && pattern->is_object() && pattern->size() == 1) {
    const Json& value = pattern->front();
    if (Find(*pattern, "String") != nullptr && value.is_string()) {
      return Regex::Literal(value.get_ref<const std::string&>(), what);
    }
    if (Find(*pattern, "Regex") != nullptr && value.is_string()) {
      return Regex::Compile(value.get_ref<const std::string&>(), what);
    }
  }
  return MakeError(Code::kInvalid, fmt::format("{}: \"pattern\": expected an object with the string \"String\" or "
                                               "\"Regex\", found {}; correct the file",
                                               what, pattern == nullptr ? "nothing" : Quote(DumpJson(*pattern))));
}

Result<PrependScheme> GetPrependScheme(const Json& object, std::string_view what) {
  TRY_ASSIGN(const bool add_prefix_space, GetBool(object, "add_prefix_space", true, what));
  TRY_ASSIGN(const std::string scheme,
             GetString(object, "prepend_scheme", add_prefix_space ? "always" : "never", what));
  if (scheme == "always") return PrependScheme::kAlways;
  if (scheme == "first") return PrependScheme::kFirst;
  if (scheme == "never") return PrependScheme::kNever;
  return MakeError(Code::kInvalid, fmt::format("{}: \"prepend_scheme\": expected \"always\", \"first\" or \"never\", "
                                               "found \"{}\"; correct the file",
                                               what, Quote(scheme)));
}

}  // namespace trivet::text
