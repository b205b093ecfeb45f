// SPDX-License-Identifier: Apache-2.0
// The filters of sequences and dictionaries.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/str.h"
#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_ops.h"
#include "text/jinja_tests.h"
#include "text/jinja_text.h"

namespace trivet::text::jinja {
namespace {

// The steps of "a.b.0", each of which takes an item.
std::vector<Value> AttributePath(const Value& attribute) {
  if (attribute.Is(Kind::kNone) || attribute.IsUndefined()) return {};
  if (!attribute.Is(Kind::kString)) return {attribute};
  std::vector<Value> path;
  for (const std::string_view part : SplitOn(attribute.text(), ".", {})) {
    const Result<int64_t> index = ParseInt(part, "index");
    const bool is_index = index.ok() && IsAll(part, TextClass::kDigit);
    path.push_back(is_index ? Value::Int(*index) : Value::String(std::string(part)));
  }
  return path;
}

Result<Value> Follow(Runtime& runtime, Value item, const std::vector<Value>& path,
                     const Value& fallback = Value::None()) {
  for (const Value& step : path) {
    TRY(runtime.Charge(1));
    TRY_ASSIGN(item, GetItem(runtime, item, step));
    if (item.IsUndefined() && !fallback.Is(Kind::kNone)) item = fallback;
  }
  return item;
}

Result<Value> IgnoreCase(Runtime& runtime, const Value& value) {
  if (!value.Is(Kind::kString)) return value;
  TRY(runtime.ChargeValue(value));
  return Value::String(Lower(value.text()));
}

// What items are compared by: the item at `attribute`, in lower case unless `case_sensitive`.
struct KeyOptions {
  bool case_sensitive = false;
  Value attribute = Value::None();
  Value fallback = Value::None();
};
Result<Value> KeyOf(Runtime& runtime, const Value& item, const KeyOptions& options) {
  TRY_ASSIGN(const Value value, Follow(runtime, item, AttributePath(options.attribute), options.fallback));
  return options.case_sensitive ? value : IgnoreCase(runtime, value);
}

KeyOptions ReadKeyOptions(const Arguments& arguments, size_t case_index, size_t attribute_index) {
  KeyOptions options;
  options.case_sensitive = arguments.Flag(case_index, false);
  if (arguments.Has(attribute_index)) options.attribute = arguments.At(attribute_index);
  return options;
}

Result<std::vector<Value>> KeysOf(Runtime& runtime, const std::vector<Value>& items, const KeyOptions& options) {
  std::vector<Value> keys;
  for (const Value& item : items) {
    TRY_ASSIGN(Value key, KeyOf(runtime, item, options));
    keys.push_back(std::move(key));
  }
  return keys;
}

Result<Value> Reorder(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return MakeList(std::move(sorted));
}

Result<Value> Batch(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  TRY_ASSIGN(const int64_t size, arguments.Int(0, 1));
  if (size < 0 || size > kMaxItems) return Invalid("batch: expected a size from 0 to 2^20, found another; correct it");
  std::vector<Value> batches, batch;
  for (size_t i = 0; i < items.size(); ++i) {
    if (std::ssize(batch) == size && (i > 0 || size > 0)) {
      TRY_ASSIGN(Value list, MakeList(std::move(batch)));
      batches.push_back(std::move(list));
      batch.clear();
    }
    batch.push_back(items[i]);
  }
  if (!batch.empty()) {
    TRY(runtime.Charge(size));
    while (arguments.Has(1) && std::ssize(batch) < size) batch.push_back(arguments.At(1));
    TRY_ASSIGN(Value list, MakeList(std::move(batch)));
    batches.push_back(std::move(list));
  }
  return MakeIterator(std::move(batches));
}

Result<Value> SliceItems(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  TRY_ASSIGN(const int64_t slices, arguments.Int(0, 1));
  if (slices == 0 || slices > kMaxItems) return Invalid("slice: expected 1 to 2^20 slices, found another number");
  TRY(runtime.Charge(std::max<int64_t>(slices, 0) * 2));
  std::vector<Value> columns;
  size_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const bool extra = i < std::ssize(items) % slices;
    const size_t size = items.size() / static_cast<size_t>(slices) + (extra ? 1 : 0);
    std::vector<Value> column(items.begin() + static_cast<std::ptrdiff_t>(at),
                              items.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size;
    if (arguments.Has(1) && !extra) column.push_back(arguments.At(1));
    TRY_ASSIGN(Value list, MakeList(std::move(column)));
    columns.push_back(std::move(list));
  }
  return MakeIterator(std::move(columns));
}

Result<Value> DictSort(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (!self.Is(Kind::kDict)) return arguments.Expected("a dictionary", self);
  TRY_ASSIGN(const std::string by, arguments.Text(1, "key"));
  if (by != "key" && by != "value")
    return Invalid("dictsort: expected by=\"key\" or by=\"value\", found another; correct it");
  std::vector<Value> items, keys;
  for (const auto& [key, value] : self.object<DictObject>().entries) {
    TRY(runtime.Charge(4));
    TRY_ASSIGN(Value item, MakeTuple({key, value}));
    items.push_back(std::move(item));
    const Value& chosen = by == "key" ? key : value;
    TRY_ASSIGN(Value sort_key, arguments.Flag(0, false) ? Result<Value>(chosen) : IgnoreCase(runtime, chosen));
    keys.push_back(std::move(sort_key));
  }
  TRY_ASSIGN(const std::vector<size_t> order, SortedOrder(runtime, keys, arguments.Flag(2, false)));
  return Reorder(items, order);
}

Result<Value> Sort(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  const KeyOptions options = ReadKeyOptions(arguments, 1, 2);
  std::vector<Value> attributes = {options.attribute};
  if (options.attribute.Is(Kind::kString)) {
    attributes.clear();
    for (const std::string_view part : SplitOn(options.attribute.text(), ",", {})) {
      attributes.push_back(Value::String(std::string(part)));
    }
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const Value& attribute : attributes) {
      TRY_ASSIGN(Value part, KeyOf(runtime, item, {options.case_sensitive, attribute, Value::None()}));
      parts.push_back(std::move(part));
    }
    TRY_ASSIGN(Value key, MakeList(std::move(parts)));
    keys.push_back(std::move(key));
  }
  TRY_ASSIGN(const std::vector<size_t> order, SortedOrder(runtime, keys, arguments.Flag(0, false)));
  return Reorder(items, order);
}

Result<Value> Unique(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  TRY_ASSIGN(const std::vector<Value> keys, KeysOf(runtime, items, ReadKeyOptions(arguments, 0, 1)));
  std::set<Value, decltype(&KeyLess)> seen(&KeyLess);
  std::vector<Value> kept;
  for (size_t i = 0; i < items.size(); ++i) {
    TRY(CheckHashable(keys[i]));
    TRY(runtime.ChargeDeep(keys[i]));
    if (seen.insert(keys[i]).second) kept.push_back(items[i]);
  }
  return MakeIterator(std::move(kept));
}

template <bool kLargest>
Result<Value> Extreme(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  if (items.empty()) return Value::Undefined("an item of an empty sequence");
  TRY_ASSIGN(const std::vector<Value> keys, KeysOf(runtime, items, ReadKeyOptions(arguments, 0, 1)));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    TRY_ASSIGN(const bool better, Compare(runtime, kLargest ? Op::kGreater : Op::kLess, keys[i], keys[best]));
    if (better) best = i;
  }
  return items[best];
}

Result<Value> GroupBy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  KeyOptions options = ReadKeyOptions(arguments, 2, 0);
  if (arguments.Has(1)) options.fallback = arguments.At(1);
  TRY_ASSIGN(const std::vector<Value> keys, KeysOf(runtime, items, options));
  TRY_ASSIGN(const std::vector<size_t> order, SortedOrder(runtime, keys, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < order.size(); ++end) {
      TRY_ASSIGN(const bool same, Compare(runtime, Op::kEqual, keys[order[begin]], keys[order[end]]));
      if (!same && end > begin) break;
      members.push_back(items[order[end]]);
    }
    options.case_sensitive = true;  // the group is named as its first member writes it
    TRY_ASSIGN(const Value name, KeyOf(runtime, members[0], options));
    TRY_ASSIGN(const Value list, MakeList(std::move(members)));
    TRY_ASSIGN(Value group, MakeTuple({name, list}));
    group.object<SequenceObject>().grouped = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return MakeList(std::move(groups));
}

Result<Value> First(Runtime& runtime, const Value& self, const Arguments&) {
  if (self.Is(Kind::kIterator)) {
    auto& iterator = self.object<IteratorObject>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return Value::Undefined("the first item of an empty sequence");
  }
  if (self.Is(Kind::kString) || self.IsSequence()) {
    TRY_ASSIGN(const Value item, GetItem(runtime, self, Value::Int(0)));
    return item.IsMarkup() ? Value::String(item.text()) : item;
  }
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  return items.empty() ? Value::Undefined("the first item of an empty sequence") : items.front();
}

Result<Value> Last(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (self.Is(Kind::kIterator)) return arguments.Expected("a sequence", self);
  if (self.Is(Kind::kString) || self.IsSequence()) {
    TRY_ASSIGN(const Value item, GetItem(runtime, self, Value::Int(-1)));
    return item;
  }
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  return items.empty() ? Value::Undefined("the last item of an empty sequence") : items.back();
}

Result<Value> Items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (self.IsUndefined()) return MakeIterator({});
  if (!self.Is(Kind::kDict)) return arguments.Expected("a dictionary", self);
  TRY_ASSIGN(const Value view, MakeView(self, ViewObject::What::kItems));
  TRY_ASSIGN(std::vector<Value> items, Iterate(runtime, view));
  return MakeIterator(std::move(items));
}

Result<Value> Join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  const Value separator_value = arguments.Get(0) == nullptr ? Value::String("") : arguments.At(0);
  TRY_ASSIGN(const std::string separator, TextOf(runtime, separator_value));
  const std::vector<Value> path = arguments.Has(1) ? AttributePath(arguments.At(1)) : std::vector<Value>();
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += separator;
    TRY_ASSIGN(const Value item, Follow(runtime, items[i], path));
    TRY_ASSIGN(const std::string piece, TextOf(runtime, item));
    text += piece;
    if (std::ssize(text) > kMaxWeight) break;  // the caller refuses it
  }
  return Value::String(std::move(text));
}

Result<Value> ToList(Runtime& runtime, const Value& self, const Arguments&) {
  TRY_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  return MakeList(std::move(items));
}

Result<Value> Reverse(Runtime& runtime, const Value& self, const Arguments&) {
  if (self.Is(Kind::kString)) return Slice(runtime, self, {Value::None(), Value::None(), Value::Int(-1)});
  TRY_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  std::reverse(items.begin(), items.end());
  return self.Is(Kind::kIterator) ? MakeList(std::move(items)) : MakeIterator(std::move(items));
}

Result<Value> Sum(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  const std::vector<Value> path = arguments.Has(0) ? AttributePath(arguments.At(0)) : std::vector<Value>();
  Value total = arguments.Get(1) == nullptr ? Value::Int(0) : arguments.At(1);
  if (total.Is(Kind::kString)) return arguments.Expected("a start that is no string", total);
  for (const Value& item : items) {
    TRY_ASSIGN(const Value part, Follow(runtime, item, path));
    TRY_ASSIGN(total, Arithmetic(runtime, Op::kAdd, total, part));
  }
  return total;
}

Result<Value> MapItems(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (!Truth(self)) return MakeIterator({});
  CallArguments given = arguments.rest();
  const bool by_attribute = given.positional.empty();
  std::vector<Value> path;
  Value fallback = Value::None();
  std::string filter;
  if (by_attribute) {
    bool found = false;
    for (const auto& [name, value] : given.keywords) {
      if (name != "attribute" && name != "default")
        return Invalid("map: expected attribute and default, found another");
      found |= name == "attribute";
      if (name == "attribute") path = AttributePath(value);
      if (name == "default") fallback = value;
    }
    if (!found) return Invalid("map: expected a filter or attribute=, found neither; give one");
  } else {
    if (!given.positional[0].Is(Kind::kString)) return arguments.Expected("the name of a filter", given.positional[0]);
    filter = given.positional[0].text();
    given.positional.erase(given.positional.begin());
  }
  TRY_ASSIGN(std::vector<Value> items, Iterate(runtime, self));
  for (Value& item : items) {
    TRY(runtime.Charge(1 + std::ssize(given.positional)));
    TRY_ASSIGN(item, by_attribute ? Follow(runtime, item, path, fallback) : RunFilter(runtime, filter, item, given));
  }
  return MakeIterator(std::move(items));
}

template <bool kKeep, bool kByAttribute>
Result<Value> Choose(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (!Truth(self)) return MakeIterator({});
  CallArguments given = arguments.rest();
  std::vector<Value> path;
  if (kByAttribute) {
    if (given.positional.empty()) return Invalid("expected the name of an attribute, found none; give it");
    path = AttributePath(given.positional[0]);
    given.positional.erase(given.positional.begin());
  }
  std::optional<std::string> test;
  if (!given.positional.empty()) {
    if (!given.positional[0].Is(Kind::kString)) return arguments.Expected("the name of a test", given.positional[0]);
    test = given.positional[0].text();
    given.positional.erase(given.positional.begin());
  }
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, self));
  std::vector<Value> kept;
  for (const Value& item : items) {
    TRY(runtime.Charge(1 + std::ssize(given.positional)));
    TRY_ASSIGN(const Value value, Follow(runtime, item, path));
    TRY_ASSIGN(const bool passes,
               test.has_value() ? RunTest(runtime, *test, value, given) : Result<bool>(Truth(value)));
    if (passes == kKeep) kept.push_back(item);
  }
  return MakeIterator(std::move(kept));
}

}  // namespace

const Native* FindSequenceFilter(std::string_view name) {
  static constexpr Native kFilters[] = {
      {"join", "d? attribute?", Join},
      {"list", "", ToList},
      {"first", "", First},
      {"last", "", Last},
      {"items", "", Items},
      {"dictsort", "case_sensitive? by? reverse?", DictSort},
      {"map", "* **", MapItems},
      {"select", "* **", Choose<true, false>},
      {"reject", "* **", Choose<false, false>},
      {"selectattr", "* **", Choose<true, true>},
      {"rejectattr", "* **", Choose<false, true>},
      {"sort", "reverse? case_sensitive? attribute?", Sort},
      {"unique", "case_sensitive? attribute?", Unique},
      {"reverse", "", Reverse},
      {"sum", "attribute? start?", Sum},
      {"min", "case_sensitive? attribute?", Extreme<false>},
      {"max", "case_sensitive? attribute?", Extreme<true>},
      {"batch", "linecount fill_with?", Batch},
      {"slice", "slices fill_with?", SliceItems},
      {"groupby", "attribute default? case_sensitive?", GroupBy},
  };
  return FindNative(kFilters, name);
}

}  // namespace trivet::text::jinja
