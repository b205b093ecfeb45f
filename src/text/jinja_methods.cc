// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_methods.h"

#include <algorithm>

#include "text/jinja_ops.h"

namespace trivet::text::jinja {
namespace {

Result<Value> DictGet(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(runtime.ChargeDeep(arguments.At(0)));
  TRY_ASSIGN(const Value* found, Lookup(self.object<DictObject>(), arguments.At(0)));
  if (found != nullptr) return *found;
  return arguments.Get(1) == nullptr ? Value::None() : arguments.At(1);
}

template <ViewObject::What kWhat>
Result<Value> DictView(Runtime&, const Value& self, const Arguments&) {
  return MakeView(self, kWhat);
}

Result<Value> Itself(Runtime&, const Value& self, const Arguments&) { return self; }

Result<Value> SequenceIndex(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto& items = self.items();
  const int64_t length = std::ssize(items);
  TRY(runtime.Charge(length));
  int64_t bounds[2] = {0, length};
  for (size_t i = 0; i < 2; ++i) {
    TRY_ASSIGN(int64_t bound, arguments.Int(i + 1, bounds[i]));
    if (bound < 0) bound = std::max<int64_t>(bound + length, 0);
    bounds[i] = std::min(bound, length);
  }
  for (int64_t i = bounds[0]; i < bounds[1]; ++i) {
    TRY_ASSIGN(const bool equal, Compare(runtime, Op::kEqual, items[static_cast<size_t>(i)], arguments.At(0)));
    if (equal) return Value::Int(i);
  }
  return Invalid("index: expected the list to contain its argument, found that it does not; test with \"in\" first");
}

Result<Value> SequenceCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY(runtime.Charge(std::ssize(self.items())));
  int64_t count = 0;
  for (const Value& item : self.items()) {
    TRY_ASSIGN(const bool equal, Compare(runtime, Op::kEqual, item, arguments.At(0)));
    count += equal ? 1 : 0;
  }
  return Value::Int(count);
}

Result<Value> LoopCycle(Runtime&, const Value& self, const Arguments& arguments) {
  const auto& items = arguments.rest().positional;
  if (items.empty()) return Invalid("loop.cycle: expected values to go through, found none; give some");
  const int64_t index = std::max<int64_t>(self.object<LoopObject>().index0, 0);
  return items[static_cast<size_t>(index) % items.size()];
}

Result<Value> LoopChanged(Runtime& runtime, const Value& self, const Arguments& arguments) {
  auto& loop = self.object<LoopObject>();
  // A loop that is over keeps nothing, so that no value can come to hold itself through it.
  if (loop.node == nullptr) return Invalid("loop.changed: expected a loop that goes on, found one that is over");
  const auto& values = arguments.rest().positional;
  bool same = loop.changed.has_value() && loop.changed->size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) {
    TRY_ASSIGN(same, Compare(runtime, Op::kEqual, values[i], (*loop.changed)[i]));
  }
  if (!same) loop.changed = values;
  return Value::Bool(!same);
}

Result<Value> CyclerNext(Runtime&, const Value& self, const Arguments&) {
  auto& cycler = self.object<CyclerObject>();
  const Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

Result<Value> CyclerReset(Runtime&, const Value& self, const Arguments&) {
  self.object<CyclerObject>().position = 0;
  return Value::None();
}

constexpr Native kDictMethods[] = {
    {"get", "/key /default?", DictGet},
    {"items", "", DictView<ViewObject::What::kItems>},
    {"keys", "", DictView<ViewObject::What::kKeys>},
    {"values", "", DictView<ViewObject::What::kValues>},
    {"copy", "", Itself},
};
constexpr Native kListMethods[] = {
    {"index", "/value /start? /stop?", SequenceIndex},
    {"count", "/value", SequenceCount},
    {"copy", "", Itself},
};
constexpr Native kTupleMethods[] = {
    {"index", "/value /start? /stop?", SequenceIndex},
    {"count", "/value", SequenceCount},
};
constexpr Native kRangeMethods[] = {{"index", "/value /start? /stop?", SequenceIndex},
                                    {"count", "/value", SequenceCount}};
constexpr Native kLoopMethods[] = {{"cycle", "*", LoopCycle}, {"changed", "*", LoopChanged}};
constexpr Native kCyclerMethods[] = {{"next", "", CyclerNext}, {"reset", "", CyclerReset}};

template <size_t kSize>
bool IsOneOf(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const Native* FindMethod(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString:
      return FindStringMethod(name);
    case Kind::kDict:
      return FindNative(kDictMethods, name);
    case Kind::kList:
      return FindNative(kListMethods, name);
    case Kind::kTuple:
      return FindNative(kTupleMethods, name);
    case Kind::kRange:
      return FindNative(kRangeMethods, name);
    case Kind::kLoop:
      return FindNative(kLoopMethods, name);
    case Kind::kCycler:
      return FindNative(kCyclerMethods, name);
    default:
      return nullptr;
  }
}

bool IsChangingMethod(Kind kind, std::string_view name) {
  static constexpr std::string_view kOfList[] = {"append", "clear",  "pop",    "reverse",
                                                 "insert", "extend", "remove", "sort"};
  static constexpr std::string_view kOfDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  return (kind == Kind::kList && IsOneOf(kOfList, name)) || (kind == Kind::kDict && IsOneOf(kOfDict, name));
}

bool IsOtherMethod(Kind kind, std::string_view name) {
  static constexpr std::string_view kOfString[] = {"encode",     "translate", "maketrans",
                                                   "format_map", "isnumeric", "isidentifier"};
  static constexpr std::string_view kOfNumber[] = {"bit_length",       "bit_count", "to_bytes",   "from_bytes",
                                                   "as_integer_ratio", "conjugate", "is_integer", "hex",
                                                   "fromhex"};
  static constexpr std::string_view kOfView[] = {"isdisjoint", "mapping"};
  if (kind == Kind::kString) return IsOneOf(kOfString, name);
  if (kind == Kind::kDict) return name == "fromkeys";
  if (kind == Kind::kView) return IsOneOf(kOfView, name);
  return (kind == Kind::kBool || kind == Kind::kInt || kind == Kind::kFloat) && IsOneOf(kOfNumber, name);
}

}  // namespace trivet::text::jinja
