// SPDX-License-Identifier: Apache-2.0
// shared_ptr: values of a template refer to each other as Python objects do; none of them is the owner.
#include "text/jinja_access.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/str.h"
#include "text/jinja_methods.h"
#include "text/jinja_text.h"

namespace trivet::text::jinja {
namespace {

std::optional<Value> Maybe(bool found, Value value) {
  if (!found) return std::nullopt;
  return value;
}

Error UndefinedAccess(const Value& value, std::string_view name) {
  const std::string what = value.identity() == nullptr ? "a value" : value.object<StringObject>().text;
  return Invalid(fmt::format("expected {} to be defined, found it undefined where its \"{}\" is used; test it first",
                             what, Quote(name)));
}

Value Missing(const Value& value, std::string_view name) {
  return Value::Undefined(fmt::format("\"{}\" of a {}", Quote(name), TypeName(value)));
}

// The item at an integer index, or nothing.
std::optional<Value> ItemAt(const Value& value, int64_t index) {
  const bool is_string = value.Is(Kind::kString);
  const int64_t length = is_string ? value.length() : std::ssize(value.items());
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  if (!is_string) return value.items()[static_cast<size_t>(index)];
  const std::string& text = value.text();
  const bool ascii = length == std::ssize(text);
  const size_t begin = ascii ? static_cast<size_t>(index) : ByteOffset(text, index);
  const size_t size = ascii ? 1 : ByteOffset(std::string_view(text).substr(begin), 1);
  return Value::String(text.substr(begin, size), value.IsMarkup());
}

Result<std::optional<Value>> FindItem(Runtime& runtime, const Value& value, const Value& key) {
  std::optional<Value> none;
  if (value.Is(Kind::kDict)) {
    TRY(runtime.ChargeDeep(key));
    if (!CheckHashable(key).ok()) return none;
    TRY_ASSIGN(const Value* found, Lookup(value.object<DictObject>(), key));
    return found == nullptr ? none : std::optional<Value>(*found);
  }
  if ((value.Is(Kind::kString) || value.IsSequence()) && key.IsIntegral()) {
    if (value.Is(Kind::kString)) TRY(runtime.Charge(std::ssize(value.text()) / 256));
    return ItemAt(value, key.integer());
  }
  return none;
}

Result<std::optional<Value>> LoopAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  auto& loop = value.object<LoopObject>();
  const auto number = [](int64_t n) { return std::optional<Value>(Value::Int(n)); };
  if (name == "index0") return number(loop.index0);
  if (name == "index") return number(loop.index0 + 1);
  if (name == "first") return std::optional<Value>(Value::Bool(loop.index0 == 0));
  if (name == "depth") return number(1);
  if (name == "depth0") return number(0);
  if (name == "previtem") {
    return std::optional<Value>(loop.before.value_or(Value::Undefined("the item before the first")));
  }
  if (name == "last" || name == "nextitem") {
    if (!loop.after.has_value()) {
      TRY_ASSIGN(loop.after, runtime.TakeItem(&loop));
    }
    if (name == "last") return std::optional<Value>(Value::Bool(!loop.after.has_value()));
    return std::optional<Value>(loop.after.value_or(Value::Undefined("the item after the last")));
  }
  if (name != "length" && name != "revindex" && name != "revindex0") return std::optional<Value>();
  if (!loop.length.has_value()) {
    int64_t length = std::ssize(loop.items);
    if (!loop.sized) {
      std::vector<Value> rest;
      while (true) {
        TRY_ASSIGN(std::optional<Value> item, runtime.TakeItem(&loop));
        if (!item.has_value()) break;
        rest.push_back(std::move(*item));
      }
      length = std::ssize(rest) + loop.index0 + 1 + (loop.after.has_value() ? 1 : 0);
      loop.rest = std::move(rest);
      loop.rest_next = 0;
    }
    loop.length = length;
  }
  return number(name == "length" ? *loop.length : *loop.length - loop.index0 - (name == "revindex" ? 0 : 1));
}

Result<std::optional<Value>> MacroAttribute(const MacroObject& macro, std::string_view name) {
  const MacroDefinition& definition = *macro.definition;
  if (name == "name") return std::optional<Value>(Value::String(definition.name));
  if (name == "caller") return std::optional<Value>(Value::Bool(definition.uses_caller));
  if (name == "catch_kwargs") return std::optional<Value>(Value::Bool(definition.uses_kwargs));
  if (name == "catch_varargs") return std::optional<Value>(Value::Bool(definition.uses_varargs));
  if (name != "arguments") return std::optional<Value>();
  std::vector<Value> parameters;
  for (const std::string& parameter : definition.parameters) parameters.push_back(Value::String(parameter));
  TRY_ASSIGN(Value tuple, MakeTuple(std::move(parameters)));
  return std::optional<Value>(std::move(tuple));
}

Result<std::optional<Value>> SequenceAttribute(const Value& value, std::string_view name) {
  const auto& sequence = value.object<SequenceObject>();
  if (value.Is(Kind::kRange)) {
    if (name == "start") return std::optional<Value>(Value::Int(sequence.start));
    if (name == "stop") return std::optional<Value>(Value::Int(sequence.stop));
    if (name == "step") return std::optional<Value>(Value::Int(sequence.step));
  }
  if (sequence.grouped && name == "grouper") return std::optional<Value>(sequence.items[0]);
  if (sequence.grouped && name == "list") return std::optional<Value>(sequence.items[1]);
  return std::optional<Value>();
}

std::optional<Value> NumberAttribute(const Value& value, std::string_view name) {
  const bool is_float = value.Is(Kind::kFloat);
  if (name == "real") return is_float ? value : Value::Int(value.integer());
  if (name == "imag") return is_float ? Value::Float(0) : Value::Int(0);
  if (name == "numerator" && !is_float) return Value::Int(value.integer());
  return Maybe(name == "denominator" && !is_float, Value::Int(1));
}

// Attributes that are values rather than methods.
Result<std::optional<Value>> DataAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kNamespace:
      TRY(runtime.Charge(std::ssize(value.space()->attributes) / 32));
      for (const auto& [key, item] : value.space()->attributes) {
        if (key == name) return std::optional<Value>(item);
      }
      return std::optional<Value>();
    case Kind::kLoop:
      return LoopAttribute(runtime, value, name);
    case Kind::kMacro:
      return MacroAttribute(value.object<MacroObject>(), name);
    case Kind::kTuple:
    case Kind::kRange:
      return SequenceAttribute(value, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return NumberAttribute(value, name);
    case Kind::kCycler: {
      const auto& cycler = value.object<CyclerObject>();
      if (name == "pos") return std::optional<Value>(Value::Int(static_cast<int64_t>(cycler.position)));
      return Maybe(name == "current", cycler.items[cycler.position]);
    }
    case Kind::kJoiner: {
      const auto& joiner = value.object<JoinerObject>();
      if (name == "used") return std::optional<Value>(Value::Bool(joiner.used));
      return Maybe(name == "sep", joiner.separator);
    }
    default:
      return std::optional<Value>();
  }
}

}  // namespace

Result<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.IsUndefined()) return UndefinedAccess(value, name);
  if (name.starts_with('_')) return std::optional<Value>();
  if (const Native* native = FindMethod(value.kind(), name)) {
    auto method = std::make_shared<MethodObject>();
    TRY(Contain({value}, method.get()));
    method->native = native;
    method->self = value;
    return std::optional<Value>(Value::Heap(Kind::kMethod, std::move(method)));
  }
  if (IsOtherMethod(value.kind(), name)) {
    return MakeError(
        Code::kUnsupported,
        fmt::format("expected a method that chat templates have, found \"{}\" of a {}; rewrite the template "
                    "without it",
                    Quote(name), TypeName(value)));
  }
  return DataAttribute(runtime, value, name);
}

Result<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  TRY_ASSIGN(std::optional<Value> attribute, FindAttribute(runtime, value, name));
  if (attribute.has_value()) return std::move(*attribute);
  if (!value.Is(Kind::kDict) || IsChangingMethod(Kind::kDict, name)) return Missing(value, name);
  TRY_ASSIGN(std::optional<Value> item, FindItem(runtime, value, Value::String(std::string(name))));
  return item.has_value() ? std::move(*item) : Missing(value, name);
}

Result<Value> GetItem(Runtime& runtime, const Value& value, const Value& key) {
  if (value.IsUndefined()) {
    return UndefinedAccess(value, key.Is(Kind::kString) ? key.text() : "item");
  }
  TRY_ASSIGN(std::optional<Value> item, FindItem(runtime, value, key));
  if (item.has_value()) return std::move(*item);
  if (!key.Is(Kind::kString)) return Missing(value, "item");
  TRY_ASSIGN(std::optional<Value> attribute, FindAttribute(runtime, value, key.text()));
  return attribute.has_value() ? std::move(*attribute) : Missing(value, key.text());
}

bool IsCallable(const Value& value) {
  switch (value.kind()) {
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kMethod:
    case Kind::kJoiner:
      return true;
    default:
      return false;
  }
}

Result<Value> CallValue(Runtime& runtime, const Value& callee, CallArguments arguments) {
  switch (callee.kind()) {
    case Kind::kMacro:
      return runtime.CallMacro(callee.object<MacroObject>(), std::move(arguments));
    case Kind::kFunction:
      return RunNative(runtime, *callee.object<FunctionObject>().native, callee, std::move(arguments));
    case Kind::kMethod: {
      const auto& method = callee.object<MethodObject>();
      return RunNative(runtime, *method.native, method.self, std::move(arguments));
    }
    case Kind::kJoiner: {
      auto& joiner = callee.object<JoinerObject>();
      const bool used = joiner.used;
      joiner.used = true;
      return used ? joiner.separator : Value::String("");
    }
    default:
      break;
  }
  const bool known = callee.IsUndefined() && callee.identity() != nullptr;
  return Invalid(fmt::format("expected something that can be called, found {}; correct the name",
                             known ? callee.object<StringObject>().text + ", which is undefined"
                                   : fmt::format("a value of type {}", TypeName(callee))));
}

}  // namespace trivet::text::jinja
