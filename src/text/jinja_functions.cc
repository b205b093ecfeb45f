// SPDX-License-Identifier: Apache-2.0
// shared_ptr: values of a template refer to each other as Python objects do; none of them is the owner.
#include "text/jinja_functions.h"

#include <utility>
#include <vector>

#include "text/jinja_format.h"
#include "text/jinja_ops.h"

namespace trivet::text::jinja {
namespace {

Result<Value> Range(Runtime&, const Value&, const Arguments& arguments) {
  TRY_ASSIGN(const int64_t first, arguments.Int(0, 0));
  TRY_ASSIGN(const int64_t stop, arguments.Int(1, first));
  TRY_ASSIGN(const int64_t step, arguments.Int(2, 1));
  return MakeRange(arguments.Get(1) == nullptr ? 0 : first, stop, step);
}

// The entries that dict(...) and namespace(...) are made from: a mapping or pairs, then keywords.
Result<Value> DictOf(Runtime& runtime, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (const Value* source = arguments.Get(0)) {
    if (source->Is(Kind::kDict)) {
      entries = source->object<DictObject>().entries;
      TRY(runtime.Charge(2 * std::ssize(entries)));
    } else {
      TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, *source));
      for (const Value& item : items) {
        TRY_ASSIGN(std::vector<Value> pair, Iterate(runtime, item));
        if (pair.size() != 2) return arguments.Expected("pairs of key and value", item);
        entries.emplace_back(std::move(pair[0]), std::move(pair[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.rest().keywords) entries.emplace_back(Value::String(name), value);
  return MakeDict(std::move(entries));
}

Result<Value> Dict(Runtime& runtime, const Value&, const Arguments& arguments) { return DictOf(runtime, arguments); }

Result<Value> MakeNamespace(Runtime& runtime, const Value&, const Arguments& arguments) {
  TRY_ASSIGN(const Value dict, DictOf(runtime, arguments));
  TRY_ASSIGN(Namespace * space, runtime.NewNamespace());
  for (const auto& [key, value] : dict.object<DictObject>().entries) {
    if (!key.Is(Kind::kString)) return arguments.Expected("names of attributes", key);
    space->attributes.emplace_back(key.text(), value);
  }
  return Value::OfNamespace(space);
}

Result<Value> Cycler(Runtime&, const Value&, const Arguments& arguments) {
  auto object = std::make_shared<CyclerObject>();
  object->items = arguments.rest().positional;
  if (object->items.empty()) return Invalid("cycler: expected values to go through, found none; give some");
  TRY(Contain(object->items, object.get()));
  return Value::Heap(Kind::kCycler, std::move(object));
}

Result<Value> Joiner(Runtime&, const Value&, const Arguments& arguments) {
  auto object = std::make_shared<JoinerObject>();
  object->separator = arguments.Get(0) == nullptr ? Value::String(", ") : arguments.At(0);
  TRY(Contain({object->separator}, object.get()));
  return Value::Heap(Kind::kJoiner, std::move(object));
}

Result<Value> RaiseException(Runtime& runtime, const Value&, const Arguments& arguments) {
  TRY_ASSIGN(std::string message, TextOf(runtime, arguments.At(0)));
  runtime.set_raised();
  return Invalid(std::move(message));
}

Result<Value> TimeNow(Runtime&, const Value&, const Arguments& arguments) {
  TRY_ASSIGN(const std::string pattern, arguments.Text(0, ""));
  TRY_ASSIGN(std::string text, FormatTimeNow(pattern));
  return Value::String(std::move(text));
}

}  // namespace

std::optional<Value> FindFunction(std::string_view name) {
  static constexpr Native kFunctions[] = {
      {"range", "/start /stop? /step?", Range},
      {"dict", "/source? **", Dict},
      {"namespace", "/source? **", MakeNamespace},
      {"cycler", "*", Cycler},
      {"joiner", "sep?", Joiner},
      {"raise_exception", "message", RaiseException},
      {"strftime_now", "format", TimeNow},
  };
  const Native* native = FindNative(kFunctions, name);
  if (native == nullptr) return std::nullopt;
  auto object = std::make_shared<FunctionObject>();
  object->native = native;
  return Value::Heap(Kind::kFunction, std::move(object));
}

}  // namespace trivet::text::jinja
