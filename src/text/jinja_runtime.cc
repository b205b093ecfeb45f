// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/str.h"

namespace trivet::text::jinja {
namespace {

struct Parameter {
  std::string_view name;
  bool positional_only = false;
  bool optional = false;
};

struct Signature {
  std::vector<Parameter> parameters;
  bool more_positional = false;
  bool more_keywords = false;
};

Signature ReadSignature(std::string_view text) {
  Signature signature;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word == "*" || word == "**") {
      (word == "*" ? signature.more_positional : signature.more_keywords) = true;
      continue;
    }
    Parameter parameter;
    parameter.positional_only = word.starts_with('/');
    parameter.optional = word.ends_with('?');
    if (parameter.positional_only) word.remove_prefix(1);
    if (parameter.optional) word.remove_suffix(1);
    parameter.name = word;
    signature.parameters.push_back(parameter);
  }
  return signature;
}

Result<Arguments> Bind(const Native& native, CallArguments given) {
  const Signature signature = ReadSignature(native.parameters);
  const auto& parameters = signature.parameters;
  std::vector<std::optional<Value>> values(parameters.size());
  CallArguments rest;
  for (size_t i = 0; i < given.positional.size(); ++i) {
    if (i < values.size()) {
      values[i] = std::move(given.positional[i]);
    } else if (signature.more_positional) {
      rest.positional.push_back(std::move(given.positional[i]));
    } else {
      return Invalid(fmt::format("{}: expected at most {} arguments, found {}; leave out the others", native.name,
                                 parameters.size(), given.positional.size()));
    }
  }
  for (auto& keyword : given.keywords) {
    const std::string& name = keyword.first;
    const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
      return !parameter.positional_only && parameter.name == name;
    });
    if (found == parameters.end() && signature.more_keywords) {
      rest.keywords.emplace_back(name, std::move(keyword.second));
      continue;
    }
    std::optional<Value>* slot =
        found == parameters.end() ? nullptr : &values[static_cast<size_t>(found - parameters.begin())];
    if (slot == nullptr || slot->has_value()) {
      return Invalid(fmt::format("{}: expected {} argument \"{}\", found {}; correct the call", native.name,
                                 slot == nullptr ? "no" : "one", Quote(name), slot == nullptr ? "one" : "two"));
    }
    *slot = std::move(keyword.second);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].has_value() && !parameters[i].optional) {
      return Invalid(
          fmt::format("{}: expected an argument \"{}\", found none; add it", native.name, parameters[i].name));
    }
  }
  return Arguments(native.name, std::move(values), std::move(rest));
}

}  // namespace

Status Runtime::Charge(int64_t steps) {
  steps_ += steps;
  if (steps_ > kMaxSteps) {
    return Invalid(
        fmt::format("expected a rendering of at most {} steps, found more; shorten the conversation or the "
                    "template",
                    kMaxSteps));
  }
  return {};
}

Status Runtime::ChargeValue(const Value& value) {
  if (value.Is(Kind::kString)) {
    if (std::ssize(value.text()) > kMaxWeight) {
      return Invalid(fmt::format("expected strings of at most {} bytes, found a longer one; shorten it", kMaxWeight));
    }
    return Charge(std::ssize(value.text()) / 64);
  }
  if (value.IsSequence()) return Charge(2 * std::ssize(value.items()));
  if (value.Is(Kind::kIterator)) return Charge(2 * std::ssize(value.object<IteratorObject>().items));
  return {};
}

Result<Namespace*> Runtime::NewNamespace() {
  TRY(Charge(16));
  namespaces_.push_back(std::make_unique<Namespace>());
  return namespaces_.back().get();
}

Status Runtime::CheckStack() const {
  if (levels_ > kMaxStack) {
    return Invalid(
        fmt::format("expected at most {} levels of calls, found more; make the template recur less deeply", kMaxStack));
  }
  return {};
}

Result<int64_t> Arguments::Int(size_t index, int64_t fallback) const {
  const Value* value = Get(index);
  if (value == nullptr) return fallback;
  if (!value->IsIntegral()) return Expected("an integer", *value);
  return value->integer();
}

Result<std::string> Arguments::Text(size_t index, std::string fallback) const {
  const Value* value = Get(index);
  if (value == nullptr) return fallback;
  if (!value->Is(Kind::kString)) return Expected("a string", *value);
  return value->text();
}

Error Arguments::Expected(std::string_view expected, const Value& found) const {
  return Invalid(
      fmt::format("{}: expected {}, found a value of type {}; convert it first", callee_, expected, TypeName(found)));
}

Result<Value> RunNative(Runtime& runtime, const Native& native, const Value& self, CallArguments arguments) {
  const Runtime::Level level(&runtime);
  TRY(runtime.CheckStack());
  if (self.Is(Kind::kString)) TRY(runtime.ChargeValue(self));
  for (const Value& argument : arguments.positional) {
    if (argument.Is(Kind::kString)) TRY(runtime.ChargeValue(argument));
  }
  for (const auto& [name, argument] : arguments.keywords) {
    if (argument.Is(Kind::kString)) TRY(runtime.ChargeValue(argument));
  }
  TRY_ASSIGN(const Arguments bound, Bind(native, std::move(arguments)));
  TRY_ASSIGN(Value result, native.run(runtime, self, bound));
  TRY(runtime.ChargeValue(result));
  return result;
}

}  // namespace trivet::text::jinja
