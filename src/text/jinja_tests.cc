// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_tests.h"

#include <fmt/format.h>

#include "base/str.h"
#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace trivet::text::jinja {
namespace {

Result<Value> ToValue(const Result<bool>& result) {
  if (!result.ok()) return result.error();
  return Value::Bool(*result);
}

template <bool (*kTest)(const Value&)>
Result<Value> Simple(Runtime&, const Value& self, const Arguments&) {
  return Value::Bool(kTest(self));
}

template <Kind kKind>
bool HasKind(const Value& value) {
  return value.Is(kKind);
}

bool IsDefined(const Value& value) { return !value.IsUndefined(); }
bool IsTrue(const Value& value) { return value.Is(Kind::kBool) && value.integer() != 0; }
bool IsFalse(const Value& value) { return value.Is(Kind::kBool) && value.integer() == 0; }
bool IsNumberValue(const Value& value) { return value.IsNumber(); }
bool IsMarkupValue(const Value& value) { return value.IsMarkup(); }

// The reference's undefined value has a method for being called, which fails.
bool HasCall(const Value& value) { return value.IsUndefined() || IsCallable(value); }

bool IsIndexable(const Value& value) {
  return value.IsUndefined() || value.Is(Kind::kString) || value.IsSequence() || value.Is(Kind::kDict);
}

bool IsIterable(const Value& value) {
  return IsIndexable(value) || value.Is(Kind::kView) || value.Is(Kind::kIterator) || value.Is(Kind::kLoop);
}

template <Op kOp>
Result<Value> Comparison(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return ToValue(Compare(runtime, kOp, self, arguments.At(0)));
}

Result<Value> HasRemainder(Runtime& runtime, const Value& self, const Value& divisor, int64_t remainder) {
  TRY_ASSIGN(const Value found, Arithmetic(runtime, Op::kModulo, self, divisor));
  return Value::Bool(Equal(found, Value::Int(remainder)));
}

template <int kRemainder>
Result<Value> Parity(Runtime& runtime, const Value& self, const Arguments&) {
  return HasRemainder(runtime, self, Value::Int(2), kRemainder);
}

Result<Value> DivisibleBy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return HasRemainder(runtime, self, arguments.At(0), 0);
}

template <TextClass kClass>
Result<Value> HasCase(Runtime& runtime, const Value& self, const Arguments&) {
  TRY_ASSIGN(const std::string text, TextOf(runtime, self));
  return Value::Bool(IsAll(text, kClass));
}

// Python's "is". Numbers and strings have no identity here; equal ones of one type count as the same.
Result<Value> SameAs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Value& other = arguments.At(0);
  if (self.kind() != other.kind()) return Value::Bool(false);
  const bool is_plain = self.IsNumber() || self.Is(Kind::kNone) || self.Is(Kind::kString) || self.Is(Kind::kNamespace);
  if (is_plain) return ToValue(Compare(runtime, Op::kEqual, self, other));
  return Value::Bool(self.identity() == other.identity());
}

template <bool (*kKnown)(std::string_view)>
Result<Value> Exists(Runtime&, const Value& self, const Arguments&) {
  TRY(CheckHashable(self));
  return Value::Bool(self.Is(Kind::kString) && kKnown(self.text()));
}

constexpr Native kTests[] = {
    {"defined", "", Simple<IsDefined>},
    {"undefined", "", Simple<HasKind<Kind::kUndefined>>},
    {"none", "", Simple<HasKind<Kind::kNone>>},
    {"string", "", Simple<HasKind<Kind::kString>>},
    {"mapping", "", Simple<HasKind<Kind::kDict>>},
    {"sequence", "", Simple<IsIndexable>},
    {"iterable", "", Simple<IsIterable>},
    {"number", "", Simple<IsNumberValue>},
    {"integer", "", Simple<HasKind<Kind::kInt>>},
    {"float", "", Simple<HasKind<Kind::kFloat>>},
    {"boolean", "", Simple<HasKind<Kind::kBool>>},
    {"true", "", Simple<IsTrue>},
    {"false", "", Simple<IsFalse>},
    {"callable", "", Simple<HasCall>},
    {"escaped", "", Simple<IsMarkupValue>},
    {"odd", "", Parity<1>},
    {"even", "", Parity<0>},
    {"divisibleby", "num", DivisibleBy},
    {"lower", "", HasCase<TextClass::kLower>},
    {"upper", "", HasCase<TextClass::kUpper>},
    {"sameas", "other", SameAs},
    {"filter", "", Exists<IsFilter>},
    {"test", "", Exists<IsTest>},
    {"in", "seq", Comparison<Op::kIn>},
    {"==", "/other", Comparison<Op::kEqual>},
    {"eq", "/other", Comparison<Op::kEqual>},
    {"equalto", "/other", Comparison<Op::kEqual>},
    {"!=", "/other", Comparison<Op::kNotEqual>},
    {"ne", "/other", Comparison<Op::kNotEqual>},
    {"<", "/other", Comparison<Op::kLess>},
    {"lt", "/other", Comparison<Op::kLess>},
    {"lessthan", "/other", Comparison<Op::kLess>},
    {"<=", "/other", Comparison<Op::kLessEqual>},
    {"le", "/other", Comparison<Op::kLessEqual>},
    {">", "/other", Comparison<Op::kGreater>},
    {"gt", "/other", Comparison<Op::kGreater>},
    {"greaterthan", "/other", Comparison<Op::kGreater>},
    {">=", "/other", Comparison<Op::kGreaterEqual>},
    {"ge", "/other", Comparison<Op::kGreaterEqual>},
};

}  // namespace

bool IsTest(std::string_view name) { return FindNative(kTests, name) != nullptr; }

Result<bool> RunTest(Runtime& runtime, std::string_view name, const Value& value, CallArguments arguments) {
  const Native* native = FindNative(kTests, name);
  if (native == nullptr) {
    return Invalid(fmt::format("expected a test that chat templates have, found \"{}\"; leave it out", Quote(name)));
  }
  TRY_ASSIGN(const Value result, RunNative(runtime, *native, value, std::move(arguments)));
  return Truth(result);
}

}  // namespace trivet::text::jinja
