// SPDX-License-Identifier: Apache-2.0
// shared_ptr: values of a template refer to each other as Python objects do; none of them is the owner.
#include "text/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <numeric>

#include "base/str.h"
#include "text/jinja_text.h"

namespace trivet::text::jinja {
namespace {

// The exact order of an integer and a float, which a conversion of either could change.
std::partial_ordering CompareIntFloat(int64_t a, double b) {
  if (std::isnan(b)) return std::partial_ordering::unordered;
  constexpr double kTwo63 = 9223372036854775808.0;
  if (b >= kTwo63) return std::partial_ordering::less;
  if (b < -kTwo63) return std::partial_ordering::greater;
  const double whole = std::trunc(b);
  const auto integer = static_cast<int64_t>(whole);
  if (a != integer) return a <=> integer;
  return whole <=> b;
}

std::partial_ordering CompareNumbers(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) return a.integer() <=> b.integer();
  if (a.IsIntegral()) return CompareIntFloat(a.integer(), b.number());
  if (b.IsIntegral()) return 0 <=> CompareIntFloat(b.integer(), a.number());
  return a.number() <=> b.number();
}

bool EqualSequences(const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), Equal);
}

bool EqualDicts(const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (size_t i = 0; i < a.order.size(); ++i) {
    const auto& [key_a, value_a] = a.entries[a.order[i]];
    const auto& [key_b, value_b] = b.entries[b.order[i]];
    if (KeyLess(key_a, key_b) || KeyLess(key_b, key_a) || !Equal(value_a, value_b)) return false;
  }
  return true;
}

// Keys of different ranks are never equal.
int KeyRank(const Value& key) {
  if (key.IsNumber()) return key.Is(Kind::kFloat) && std::isnan(key.number()) ? 1 : 0;
  return 2 + static_cast<int>(key.kind());
}

Result<Value> FromFlatJson(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return Value::None();
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string:
      return Value::String(RepairUtf8(json.get_ref<const std::string&>()));
    case Json::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value <= static_cast<uint64_t>(INT64_MAX)) return Value::Int(static_cast<int64_t>(value));
      return Invalid(fmt::format("expected integers of at most 64 bits, found {}; use a smaller one", value));
    }
    default:
      return Invalid("expected JSON values, found binary data; leave it out");
  }
}

Result<Value> FromJsonAt(const Json& json, int depth) {
  if (!json.is_structured()) return FromFlatJson(json);
  if (depth > kMaxNesting) {
    return Invalid(fmt::format("expected JSON nested at most {} deep, found more; flatten it", kMaxNesting));
  }
  std::vector<Value> items;
  std::vector<std::pair<Value, Value>> entries;
  for (auto item = json.begin(); item != json.end(); ++item) {
    TRY_ASSIGN(Value value, FromJsonAt(*item, depth + 1));
    if (json.is_array()) {
      items.push_back(std::move(value));
    } else {
      entries.emplace_back(Value::String(RepairUtf8(item.key())), std::move(value));
    }
  }
  return json.is_array() ? MakeList(std::move(items)) : MakeDict(std::move(entries));
}

}  // namespace

Value Value::Undefined(std::string description) {
  auto object = std::make_shared<StringObject>();
  object->text = std::move(description);
  return Heap(Kind::kUndefined, std::move(object));
}

Value Value::None() { return Heap(Kind::kNone, nullptr); }

Value Value::Bool(bool value) {
  Value result = Heap(Kind::kBool, nullptr);
  result.integer_ = value ? 1 : 0;
  return result;
}

Value Value::Int(int64_t value) {
  Value result = Heap(Kind::kInt, nullptr);
  result.integer_ = value;
  return result;
}

Value Value::Float(double value) {
  Value result = Heap(Kind::kFloat, nullptr);
  result.float_ = value;
  return result;
}

Value Value::String(std::string text, bool markup) {
  auto object = std::make_shared<StringObject>();
  object->length = CountCodePoints(text);
  object->text = std::move(text);
  object->markup = markup;
  object->weight = 48 + static_cast<int64_t>(object->text.size());
  return Heap(Kind::kString, std::move(object));
}

Value Value::OfNamespace(Namespace* space) {
  Value result = Heap(Kind::kNamespace, nullptr);
  result.space_ = space;
  return result;
}

Value Value::Heap(Kind kind, std::shared_ptr<Object> object) {
  Value result;
  result.kind_ = kind;
  result.object_ = std::move(object);
  return result;
}

bool Value::IsMarkup() const { return kind_ == Kind::kString && object<StringObject>().markup; }

int64_t Value::integer() const {
  CHECK(IsIntegral());
  return integer_;
}

double Value::number() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(integer()); }

const std::string& Value::text() const {
  CHECK(kind_ == Kind::kString);
  return object<StringObject>().text;
}

int64_t Value::length() const {
  CHECK(kind_ == Kind::kString);
  return object<StringObject>().length;
}

const std::vector<Value>& Value::items() const {
  CHECK(IsSequence());
  return object<SequenceObject>().items;
}

Namespace* Value::space() const {
  CHECK(kind_ == Kind::kNamespace);
  return space_;
}

Error Invalid(std::string message) { return MakeError(Code::kInvalid, std::move(message)); }

std::string_view TypeName(Kind kind) {
  switch (kind) {
    case Kind::kUndefined:
      return "undefined";
    case Kind::kNone:
      return "none";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return "dict view";
    case Kind::kIterator:
      return "iterator";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kLoop:
      return "loop";
    case Kind::kMacro:
      return "macro";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kCycler:
      return "cycler";
    case Kind::kJoiner:
      return "joiner";
  }
  return "value";
}

std::string_view TypeName(const Value& value) { return TypeName(value.kind()); }

Status Contain(const std::vector<Value>& parts, Object* object) {
  if (std::ssize(parts) > kMaxItems) {
    return Invalid(fmt::format("expected at most {} items in a value, found more; shorten it", kMaxItems));
  }
  for (const Value& part : parts) {
    object->nesting = std::max(object->nesting, part.nesting() + 1);
    object->weight += 32 + part.weight();
    if (object->weight > kMaxWeight) {
      return Invalid(fmt::format("expected values of at most {} bytes, found a larger one; shorten it", kMaxWeight));
    }
  }
  if (object->nesting > kMaxNesting) {
    return Invalid(fmt::format("expected values nested at most {} deep, found a deeper one; flatten it", kMaxNesting));
  }
  return {};
}

namespace {

template <class T>
Result<Value> MakeItems(Kind kind, std::vector<Value> items) {
  auto object = std::make_shared<T>();
  TRY(Contain(items, object.get()));
  object->items = std::move(items);
  return Value::Heap(kind, std::move(object));
}

}  // namespace

Result<Value> MakeList(std::vector<Value> items) { return MakeItems<SequenceObject>(Kind::kList, std::move(items)); }
Result<Value> MakeTuple(std::vector<Value> items) { return MakeItems<SequenceObject>(Kind::kTuple, std::move(items)); }
Result<Value> MakeIterator(std::vector<Value> items) {
  return MakeItems<IteratorObject>(Kind::kIterator, std::move(items));
}

Result<Value> MakeDict(std::vector<std::pair<Value, Value>> entries) {
  auto object = std::make_shared<DictObject>();
  for (const auto& [key, value] : entries) {
    TRY(CheckHashable(key));
    TRY(Contain({key, value}, object.get()));
  }
  if (std::ssize(entries) > kMaxItems) return Invalid("expected fewer keys in a dictionary; shorten it");
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  const auto less = [&](uint32_t a, uint32_t b) { return KeyLess(entries[a].first, entries[b].first); };
  std::stable_sort(order.begin(), order.end(), less);
  // Of a run of equal keys the first stays, with the value of the last.
  std::vector<bool> dropped(entries.size(), false);
  for (size_t i = 0, first = 0; i < order.size(); ++i) {
    if (i > 0 && !less(order[first], order[i])) {
      entries[order[first]].second = entries[order[i]].second;
      dropped[order[i]] = true;
    } else {
      first = i;
    }
  }
  std::vector<uint32_t> position(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (dropped[i]) continue;
    position[i] = static_cast<uint32_t>(object->entries.size());
    object->entries.push_back(std::move(entries[i]));
  }
  for (const uint32_t i : order) {
    if (!dropped[i]) object->order.push_back(position[i]);
  }
  return Value::Heap(Kind::kDict, std::move(object));
}

Result<Value> MakeView(const Value& dict, ViewObject::What what) {
  auto object = std::make_shared<ViewObject>();
  TRY(Contain({dict}, object.get()));
  object->what = what;
  object->dict = dict;
  return Value::Heap(Kind::kView, std::move(object));
}

Result<Value> MakeStrings(const std::vector<std::string_view>& texts, bool markup) {
  if (std::ssize(texts) > kMaxItems) {
    return Invalid(fmt::format("expected at most {} pieces of a string, found more; shorten it", kMaxItems));
  }
  std::vector<Value> items;
  items.reserve(texts.size());
  for (const std::string_view text : texts) items.push_back(Value::String(std::string(text), markup));
  return MakeList(std::move(items));
}

Result<Value> FromJson(const Json& json) { return FromJsonAt(json, 0); }

Result<const Value*> Lookup(const DictObject& dict, const Value& key) {
  TRY(CheckHashable(key));
  const auto found = std::lower_bound(dict.order.begin(), dict.order.end(), key, [&](uint32_t entry, const Value& k) {
    return KeyLess(dict.entries[entry].first, k);
  });
  const Value* none = nullptr;
  if (found == dict.order.end() || KeyLess(key, dict.entries[*found].first)) return none;
  return &dict.entries[*found].second;
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return !value.items().empty();
    case Kind::kDict:
      return !value.object<DictObject>().entries.empty();
    case Kind::kView:
      return Truth(value.object<ViewObject>().dict);
    default:
      return true;
  }
}

bool Equal(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return a.identity() == b.identity() || EqualSequences(a.items(), b.items());
    case Kind::kDict:
      return a.identity() == b.identity() || EqualDicts(a.object<DictObject>(), b.object<DictObject>());
    case Kind::kNamespace:
      return a.space() == b.space();
    default:
      return a.identity() == b.identity();
  }
}

Result<bool> Less(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b) < 0;
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) return a.text() < b.text();
  if (a.kind() == b.kind() && (a.Is(Kind::kList) || a.Is(Kind::kTuple))) {
    const size_t common = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < common; ++i) {
      if (!Equal(a.items()[i], b.items()[i])) return Less(a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  return Invalid(fmt::format("expected two values that can be ordered, found {} and {}; compare values of one type",
                             TypeName(a), TypeName(b)));
}

Status CheckHashable(const Value& key) {
  if (key.Is(Kind::kTuple)) {
    for (const Value& item : key.items()) TRY(CheckHashable(item));
  }
  if (key.Is(Kind::kList) || key.Is(Kind::kDict) || key.Is(Kind::kView)) {
    return Invalid(fmt::format("expected a dictionary key, found a {}; use a string", TypeName(key)));
  }
  return {};
}

bool KeyLess(const Value& a, const Value& b) {
  const int rank_a = KeyRank(a), rank_b = KeyRank(b);
  if (rank_a != rank_b) return rank_a < rank_b;
  if (rank_a == 0) return CompareNumbers(a, b) < 0;
  switch (a.kind()) {
    case Kind::kString:
      return a.text() < b.text();
    case Kind::kTuple:
    case Kind::kRange:
      return std::lexicographical_compare(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                                          KeyLess);
    case Kind::kUndefined:
    case Kind::kNone:
    case Kind::kFloat:
      return false;
    case Kind::kNamespace:
      return std::less<>()(a.space(), b.space());
    default:
      return std::less<>()(a.identity(), b.identity());
  }
}

}  // namespace trivet::text::jinja
