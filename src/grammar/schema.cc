// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/str.h"
#include "grammar/pattern.h"
#include "grammar/schema_overlap.h"

namespace trivet::grammar {
namespace {

constexpr int32_t kMaxCount = 1'000'000;  // of minLength and its like

// Keywords that restrict nothing.
constexpr const char* kAnnotations[] = {"title",      "description", "default",   "examples", "example",
                                        "$schema",    "$id",         "$comment",  "$defs",    "definitions",
                                        "deprecated", "readOnly",    "writeOnly", "$anchor",  "discriminator"};

// Keywords that restrict values of one type, and the type. A schema that has one and no "type" is taken to mean it.
constexpr std::pair<const char*, const char*> kTyped[] = {
    {"properties", "object"}, {"required", "object"},         {"additionalProperties", "object"},
    {"items", "array"},       {"prefixItems", "array"},       {"minItems", "array"},
    {"maxItems", "array"},    {"minLength", "string"},        {"maxLength", "string"},
    {"pattern", "string"},    {"format", "string"},           {"minimum", "number"},
    {"maximum", "number"},    {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"}};

constexpr const char* kOthers[] = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};

constexpr const char* kTypes[] = {"object", "array", "string", "integer", "number", "boolean", "null"};

// Formats of strings, as patterns that allow what everybody takes for valid.
constexpr std::pair<const char*, const char*> kFormats[] = {
    {"date", "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"},
    {"time", "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"},
    {"date-time",
     "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
     "(\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"ipv4", "((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"},
    {"email", "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\\.)+[A-Za-z]{2,}"},
    {"uri", "[a-z][a-z0-9+.-]*://[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?(/[A-Za-z0-9_.~-]+)*/?"}};

template <class List, class Value>
bool In(const List& list, const Value& value) {
  return std::any_of(std::begin(list), std::end(list), [&](const auto& one) { return value == one; });
}

const char* TypeOfKeyword(std::string_view keyword) {
  for (const auto& [known, type] : kTyped) {
    if (keyword == known) return type;
  }
  return nullptr;
}

std::string Inside(const std::string& where, std::string_view key) { return fmt::format("{}/{}", where, key); }

// A bound of integers from a keyword: the least or greatest integer that it allows.
std::optional<int64_t> IntegerBound(const Json& schema, const char* inclusive, const char* exclusive, bool lower) {
  std::optional<int64_t> bound;
  const auto tighten = [&](int64_t value) {
    bound = !bound ? value : lower ? std::max(*bound, value) : std::min(*bound, value);
  };
  for (const bool open : {false, true}) {
    const Json* given = Find(schema, open ? exclusive : inclusive);
    if (given == nullptr) continue;
    const double number = given->get<double>();
    const double whole = lower ? std::ceil(number) : std::floor(number);
    // Nothing beyond 20 digits is generated.
    const double most = 9e18;
    int64_t value = given->is_number_float() || std::fabs(number) > most
                        ? static_cast<int64_t>(std::clamp(whole, -most, most))
                        : given->get<int64_t>();
    if (open && whole == number) value += lower ? 1 : -1;
    tighten(value);
  }
  return bound;
}

}  // namespace

bool IsOfType(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (!value.is_number()) return false;
  return type == "number" || value.is_number_integer() || value.get<double>() == std::floor(value.get<double>());
}

std::vector<std::string> TypesOf(const Json& schema) {
  std::vector<std::string> types;
  const auto add = [&](const std::string& type) {
    if (!In(types, type)) types.push_back(type);
  };
  if (const Json* type = Find(schema, "type")) {
    for (const Json& one : type->is_array() ? *type : Json::array({*type})) {
      if (one.is_string()) add(one.get<std::string>());
    }
    return types;
  }
  const Json* values = Find(schema, "enum");
  const Json* single = Find(schema, "const");
  if (values != nullptr || single != nullptr) {
    const Json list = single != nullptr || !values->is_array() ? Json::array({single ? *single : Json()}) : *values;
    for (const char* type : kTypes) {
      if (std::any_of(list.begin(), list.end(), [&](const Json& value) { return IsOfType(value, type); })) add(type);
    }
    return types;
  }
  for (const auto& [keyword, value] : schema.items()) {
    if (const char* type = TypeOfKeyword(keyword)) add(type);
  }
  return types.empty() ? std::vector<std::string>(std::begin(kTypes), std::end(kTypes)) : types;
}

const Json* Resolve(const Json& root, const std::string& reference) {
  if (reference.empty() || reference[0] != '#' || (reference.size() > 1 && reference[1] != '/')) return nullptr;
  const Json* at = &root;
  const std::vector<std::string> parts = Split(std::string_view(reference).substr(1), '/');
  for (size_t i = 1; i < parts.size(); ++i) {
    std::string name;
    for (size_t k = 0; k < parts[i].size(); ++k) {
      const bool escape = parts[i][k] == '~' && k + 1 < parts[i].size();
      name += escape ? (parts[i][++k] == '1' ? '/' : '~') : parts[i][k];
    }
    if (at->is_array()) {
      const Result<int64_t> index = ParseInt(name, "reference");
      if (!index.ok() || *index < 0 || *index >= static_cast<int64_t>(at->size())) return nullptr;
      at = &(*at)[static_cast<size_t>(*index)];
    } else if (at = Find(*at, name); at == nullptr) {
      return nullptr;
    }
  }
  return at;
}

Error SchemaReader::Wrong(const std::string& where, std::string_view keyword, std::string_view expected,
                          const Json& found) const {
  return MakeError(Code::kInvalid, fmt::format("{}{}: \"{}\": expected {}, found {}; correct the schema", what_,
                                               Quote(where), Quote(keyword), expected, Quote(DumpJson(found), 80)));
}

Error SchemaReader::Unsupported(const std::string& where, std::string_view keyword, std::string_view advice) const {
  return MakeError(Code::kUnsupported,
                   fmt::format("{}{}: \"{}\": expected a keyword that answers can be held to, found this one; {}",
                               what_, Quote(where), Quote(keyword), advice));
}

Result<NodeId> SchemaReader::Read() {
  TRY_ASSIGN(const NodeId node, Value(root_, ""));
  while (!undefined_.empty()) {
    const std::string reference = undefined_.back();
    undefined_.pop_back();
    TRY_ASSIGN(const NodeId body, Value(*Resolve(root_, reference), reference.substr(1)));
    builder_.Define(rules_.at(reference), body);
  }
  return node;
}

Status SchemaReader::CheckKeywords(const Json& schema, const std::string& where) const {
  for (const auto& [keyword, value] : schema.items()) {
    if (In(kAnnotations, keyword) || In(kOthers, keyword) || TypeOfKeyword(keyword) != nullptr) continue;
    if (keyword.starts_with("x-")) continue;
    return Unsupported(where, keyword, "leave it out");
  }
  return {};
}

// Nothing but annotations stands beside the keyword.
Status SchemaReader::CheckAlone(const Json& schema, std::string_view keyword, const std::string& where) const {
  for (const auto& [other, value] : schema.items()) {
    if (other == keyword || In(kAnnotations, other) || other.starts_with("x-")) continue;
    return Unsupported(where, keyword, fmt::format("take \"{}\" from beside it into each alternative", Quote(other)));
  }
  return {};
}

Result<NodeId> SchemaReader::Value(const Json& schema, const std::string& where) {
  if (schema.is_boolean()) return schema.get<bool>() ? json_.AnyValue() : builder_.Nothing();
  if (!schema.is_object()) return Wrong(where, "schema", "an object, true or false", schema);
  TRY(CheckKeywords(schema, where));
  if (Find(schema, "$ref") != nullptr) return Reference(schema, where);
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    if (Find(schema, keyword) != nullptr) return Combined(schema, keyword, where);
  }
  const Json* type = Find(schema, "type");
  const Json given = type == nullptr ? Json::array() : type->is_array() ? *type : Json::array({*type});
  for (const Json& one : given) {
    if (!one.is_string() || !In(kTypes, one.get<std::string>()))
      return Wrong(where, "type", fmt::format("{}", fmt::join(kTypes, ", ")), one);
  }
  if (Find(schema, "enum") != nullptr || Find(schema, "const") != nullptr) return Enumerated(schema, where);
  std::vector<NodeId> choices;
  for (const std::string& name : TypesOf(schema)) {
    TRY_ASSIGN(const NodeId node, OfType(name, schema, where));
    choices.push_back(node);
  }
  return builder_.Choice(std::move(choices));
}

Result<NodeId> SchemaReader::Reference(const Json& schema, const std::string& where) {
  TRY(CheckAlone(schema, "$ref", where));
  const Json& given = schema["$ref"];
  if (!given.is_string() || Resolve(root_, given.get<std::string>()) == nullptr) {
    return Wrong(where, "$ref", "a reference to a part of this schema, such as #/$defs/name", given);
  }
  const auto reference = given.get<std::string>();
  const auto [found, fresh] = rules_.try_emplace(reference, 0);
  if (fresh) {
    found->second = builder_.Rule();
    undefined_.push_back(reference);
  }
  return found->second;
}

Result<NodeId> SchemaReader::Enumerated(const Json& schema, const std::string& where) {
  const Json* list = Find(schema, "enum");
  const Json* single = Find(schema, "const");
  if (list != nullptr && single != nullptr) return Unsupported(where, "const", "leave out \"enum\" beside it");
  if (list != nullptr && !list->is_array()) return Wrong(where, "enum", "a list of values", *list);
  for (const auto& [keyword, value] : schema.items()) {
    if (TypeOfKeyword(keyword) != nullptr) {
      return Unsupported(where, keyword, "leave it out beside \"enum\" or \"const\", and list only what is meant");
    }
  }
  std::vector<std::string> texts;
  for (const Json& value : list == nullptr ? Json::array({*single}) : *list) {
    const std::vector<std::string> types = TypesOf(schema);
    const auto fits = [&](const std::string& type) { return IsOfType(value, type); };
    if (std::any_of(types.begin(), types.end(), fits)) texts.push_back(DumpJson(value));
  }
  return builder_.Literals(std::move(texts));
}

Result<NodeId> SchemaReader::Combined(const Json& schema, std::string_view keyword, const std::string& where) {
  TRY(CheckAlone(schema, keyword, where));
  const Json& list = schema[std::string(keyword)];
  if (!list.is_array() || list.empty()) return Wrong(where, keyword, "a list of schemas", list);
  if (keyword == "allOf" && list.size() > 1) return Unsupported(where, keyword, "write its schemas as one");
  std::vector<NodeId> choices;
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t k = 0; k < list.size() && keyword == "oneOf"; ++k) {
      if (i == k || !MayOverlap(root_, list[i], list[k])) continue;
      return Unsupported(where, keyword,
                         fmt::format("a value might be valid under {} and {}, so write anyOf if that may be", i, k));
    }
    TRY_ASSIGN(const NodeId node, Value(list[i], fmt::format("{}/{}/{}", where, keyword, i)));
    choices.push_back(node);
  }
  return builder_.Choice(std::move(choices));
}

Result<NodeId> SchemaReader::OfType(std::string_view type, const Json& schema, const std::string& where) {
  if (type == "object") return Object(schema, where);
  if (type == "array") return Array(schema, where);
  if (type == "string") return String(schema, where);
  if (type == "integer") return Integer(schema, where);
  if (type == "number") return Number(schema, where);
  return type == "boolean" ? json_.Boolean() : json_.Null();
}

// The members in their order: those of "properties", then required ones that it does not describe.
Result<std::vector<SchemaReader::Member>> SchemaReader::Members(const Json& schema, NodeId other,
                                                                const std::string& where) {
  std::vector<Member> members;
  std::map<std::string, size_t> places;
  if (const Json* properties = Find(schema, "properties")) {
    if (!properties->is_object()) return Wrong(where, "properties", "an object of schemas", *properties);
    for (const auto& [name, value] : properties->items()) {
      TRY_ASSIGN(const NodeId node, Value(value, Inside(Inside(where, "properties"), name)));
      places[name] = members.size();
      members.push_back({name, node, false});
    }
  }
  const Json* required = Find(schema, "required");
  if (required == nullptr) return members;
  if (!required->is_array()) return Wrong(where, "required", "a list of names", *required);
  for (const Json& name : *required) {
    if (!name.is_string()) return Wrong(where, "required", "a list of names", name);
    const auto [found, fresh] = places.try_emplace(name.get<std::string>(), members.size());
    if (fresh) members.push_back({name.get<std::string>(), other, true});
    members[found->second].required = true;
  }
  return members;
}

Result<NodeId> SchemaReader::Object(const Json& schema, const std::string& where) {
  const Json* more = Find(schema, "additionalProperties");
  const bool open = Find(schema, "properties") == nullptr && Find(schema, "required") == nullptr;
  NodeId other = json_.AnyValue();
  if (more != nullptr) {
    TRY_ASSIGN(other, Value(*more, Inside(where, "additionalProperties")));
  }
  TRY_ASSIGN(const std::vector<Member> members, Members(schema, other, where));
  const bool others = more == nullptr ? open : *more != false;
  if (members.empty() && others && more == nullptr) return json_.AnyObject();
  std::vector<std::string> names;
  for (const Member& member : members) names.push_back(member.name);
  // What may follow the member before, from the last member to the first: with and without one before.
  NodeId rest = builder_.Empty(), first = builder_.Empty();
  if (others) {
    const NodeId member = json_.Member(names.empty() ? json_.String() : json_.OtherString(names), other);
    rest = builder_.Repeat(json_.Next(member), 0, kNoLimit);
    first = builder_.Optional(builder_.Sequence({member, rest}));
  }
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    const NodeId node = json_.Member(member->name, member->value);
    const NodeId begun = builder_.Sequence({node, rest});
    const NodeId next = builder_.Sequence({json_.Next(node), rest});
    first = member->required ? begun : builder_.Choice({begun, first});
    rest = member->required ? next : builder_.Choice({next, rest});
  }
  return json_.Enclosed('{', first, '}');
}

Result<NodeId> SchemaReader::Array(const Json& schema, const std::string& where) {
  TRY_ASSIGN(const int32_t min, Count(schema, "minItems", 0, where));
  TRY_ASSIGN(const int32_t max, Count(schema, "maxItems", kNoLimit, where));
  NodeId item = json_.AnyValue();
  if (const Json* items = Find(schema, "items")) {
    TRY_ASSIGN(item, Value(*items, Inside(where, "items")));
  }
  std::vector<NodeId> prefix;
  if (const Json* given = Find(schema, "prefixItems")) {
    if (!given->is_array()) return Wrong(where, "prefixItems", "a list of schemas", *given);
    for (size_t i = 0; i < given->size(); ++i) {
      TRY_ASSIGN(const NodeId node, Value((*given)[i], fmt::format("{}/prefixItems/{}", where, i)));
      prefix.push_back(node);
    }
  }
  if (prefix.empty()) prefix.push_back(item);  // every other one follows a comma
  const auto known = static_cast<int32_t>(prefix.size());
  // What follows the first `count` items, from the last that is told apart to the first.
  NodeId rest = max < known ? builder_.Nothing()
                            : builder_.Repeat(json_.Next(item), std::max(0, min - known),
                                              max == kNoLimit ? kNoLimit : max - known);
  for (int32_t count = known - 1; count >= 0; --count) {
    const NodeId one = prefix[static_cast<size_t>(count)];
    std::vector<NodeId> choices;
    if (count >= min) choices.push_back(builder_.Empty());
    if (count < max) choices.push_back(builder_.Sequence({count == 0 ? one : json_.Next(one), rest}));
    rest = builder_.Choice(std::move(choices));
  }
  return json_.Enclosed('[', rest, ']');
}

Result<NodeId> SchemaReader::String(const Json& schema, const std::string& where) {
  TRY_ASSIGN(const int32_t min, Count(schema, "minLength", 0, where));
  TRY_ASSIGN(const int32_t max, Count(schema, "maxLength", kNoLimit, where));
  const bool bounded = min > 0 || max != kNoLimit;
  const Json* pattern = Find(schema, "pattern");
  const Json* format = Find(schema, "format");
  if (pattern == nullptr && format == nullptr) return json_.String(min, max);
  const char* keyword = pattern != nullptr ? "pattern" : "format";
  if (bounded || (pattern != nullptr && format != nullptr)) {
    return Unsupported(where, keyword, "leave out minLength, maxLength, pattern or format, so that one is left");
  }
  const Json& given = pattern != nullptr ? *pattern : *format;
  if (!given.is_string()) return Wrong(where, keyword, "a text", given);
  auto text = given.get<std::string>();
  if (format != nullptr) {
    const auto known =
        std::find_if(std::begin(kFormats), std::end(kFormats), [&](const auto& row) { return text == row.first; });
    if (known == std::end(kFormats)) {
      return Unsupported(where, keyword, fmt::format("\"{}\" is not among those it knows", Quote(text)));
    }
    text = known->second;
  }
  const PatternOptions options{format != nullptr, [this](const CharSet& set) { return json_.Character(set); }};
  TRY_ASSIGN(const NodeId characters,
             ReadPattern(text, options, &builder_, fmt::format("{}{}: \"{}\"", what_, Quote(where), keyword)));
  return json_.Quoted(characters);
}

Result<NodeId> SchemaReader::Integer(const Json& schema, const std::string& where) {
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    const Json* given = Find(schema, keyword);
    if (given != nullptr && !given->is_number()) return Wrong(where, keyword, "a number", *given);
  }
  return json_.Integer(IntegerBound(schema, "minimum", "exclusiveMinimum", true),
                       IntegerBound(schema, "maximum", "exclusiveMaximum", false));
}

Result<NodeId> SchemaReader::Number(const Json& schema, const std::string& where) {
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    if (Find(schema, keyword) == nullptr) continue;
    return Unsupported(where, keyword, "it is read beside \"type\": \"integer\" alone");
  }
  return json_.Number();
}

Result<int32_t> SchemaReader::Count(const Json& schema, const char* keyword, int32_t fallback,
                                    const std::string& where) const {
  const Json* given = Find(schema, keyword);
  if (given == nullptr) return fallback;
  if (!given->is_number() || *given < 0 || given->get<double>() != std::floor(given->get<double>())) {
    return Wrong(where, keyword, "an integer of at least 0", *given);
  }
  if (*given > kMaxCount) return Wrong(where, keyword, fmt::format("at most {}", kMaxCount), *given);
  return static_cast<int32_t>(given->get<double>());
}

}  // namespace trivet::grammar
