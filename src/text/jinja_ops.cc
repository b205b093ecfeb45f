// SPDX-License-Identifier: Apache-2.0
// shared_ptr: values of a template refer to each other as Python objects do; none of them is the owner.
#include "text/jinja_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/html.h"
#include "text/jinja_format.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace trivet::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;

std::string_view Spelling(Op op) {
  static constexpr std::string_view kSpellings[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSpellings[static_cast<size_t>(op)];
}

Error BadOperands(Op op, const Value& a, const Value& b) {
  return Invalid(fmt::format("expected operands that \"{}\" takes, found {} and {}; convert one of them", Spelling(op),
                             TypeName(a), TypeName(b)));
}

Error Overflow() { return Invalid("expected integers of at most 64 bits, found a larger result; use smaller ones"); }
Error DivisionByZero() { return Invalid("expected a divisor other than zero, found zero; test it first"); }

Result<Value> IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Int(result);
}

Result<Value> FloatPower(double base, double exponent) {
  if (base == 0 && exponent < 0) return DivisionByZero();
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) && exponent != std::floor(exponent)) {
    return Invalid("expected a real power, found one of a negative number; use another exponent");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) return Overflow();
  return Value::Float(result);
}

Result<Value> FloatArithmetic(Op op, double a, double b) {
  const bool divides = op == Op::kDivide || op == Op::kFloorDivide || op == Op::kModulo;
  if (divides && b == 0) return DivisionByZero();
  switch (op) {
    case Op::kAdd:
      return Value::Float(a + b);
    case Op::kSubtract:
      return Value::Float(a - b);
    case Op::kMultiply:
      return Value::Float(a * b);
    case Op::kDivide:
      return Value::Float(a / b);
    case Op::kPower:
      return FloatPower(a, b);
    default:
      break;
  }
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) {
    remainder += b;
    quotient -= 1;
  } else if (remainder == 0) {
    remainder = std::copysign(0.0, b);
  }
  if (op == Op::kModulo) return Value::Float(remainder);
  if (quotient == 0) return Value::Float(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return Value::Float(quotient - floor > 0.5 ? floor + 1 : floor);
}

Result<Value> IntegerArithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      return __builtin_add_overflow(a, b, &result) ? Result<Value>(Overflow()) : Value::Int(result);
    case Op::kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? Result<Value>(Overflow()) : Value::Int(result);
    case Op::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? Result<Value>(Overflow()) : Value::Int(result);
    case Op::kPower:
      break;
    default:
      if (b == 0) return DivisionByZero();
  }
  if (op == Op::kPower) {
    if (b >= 0) return IntegerPower(a, b);
    return FloatPower(static_cast<double>(a), static_cast<double>(b));
  }
  if (op == Op::kDivide)
    return Value::Float(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  if (b == -1) return op == Op::kModulo ? Result<Value>(Value::Int(0)) : IntegerArithmetic(Op::kSubtract, 0, a);
  const bool inexact = a % b != 0 && ((a % b < 0) != (b < 0));
  if (op == Op::kModulo) return Value::Int(inexact ? a % b + b : a % b);
  return Value::Int(inexact ? a / b - 1 : a / b);
}

// When one of the two is markup, the other is escaped.
Value AddStrings(const Value& a, const Value& b) {
  const bool markup = a.IsMarkup() || b.IsMarkup();
  const auto text = [&](const Value& part) {
    return markup && !part.IsMarkup() ? EscapeHtml(part.text()) : part.text();
  };
  return Value::String(text(a) + text(b), markup);
}

Result<Value> OfItems(Kind kind, std::vector<Value> items) {
  return kind == Kind::kTuple ? MakeTuple(std::move(items)) : MakeList(std::move(items));
}

Result<Value> AddSequences(const Value& a, const Value& b) {
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return OfItems(a.kind(), std::move(items));
}

// `times` copies of a string, list or tuple.
Result<Value> Repeat(Runtime& runtime, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const bool is_string = value.Is(Kind::kString);
  const int64_t size = is_string ? std::ssize(value.text()) : std::ssize(value.items());
  const int64_t most = is_string ? kMaxWeight : kMaxItems;
  if (size > 0 && times > most / size) {
    return Invalid(fmt::format("expected a repetition of at most {} {}, found more; repeat less often", most,
                               is_string ? "bytes" : "items"));
  }
  TRY(runtime.Charge(size * times / (is_string ? 64 : 1)));
  if (size == 0) times = 0;
  std::string text;
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) {
    if (is_string) {
      text += value.text();
    } else {
      items.insert(items.end(), value.items().begin(), value.items().end());
    }
  }
  if (is_string) return Value::String(std::move(text), value.IsMarkup());
  return OfItems(value.kind(), std::move(items));
}

bool IsRepeatable(const Value& value) {
  return value.Is(Kind::kString) || value.Is(Kind::kList) || value.Is(Kind::kTuple);
}

Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.Is(Kind::kString)) {
    if (!item.Is(Kind::kString)) return BadOperands(Op::kIn, item, container);
    TRY(runtime.ChargeValue(container));
    return Find(container.text(), item.text()) != std::string::npos;
  }
  const bool keys = container.Is(Kind::kView) && container.object<ViewObject>().what == ViewObject::What::kKeys;
  if (container.Is(Kind::kDict) || keys) {
    const Value& dict = keys ? container.object<ViewObject>().dict : container;
    TRY(runtime.ChargeDeep(item));
    TRY_ASSIGN(const Value* found, Lookup(dict.object<DictObject>(), item));
    return found != nullptr;
  }
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, container));
  for (const Value& other : items) {
    TRY(runtime.Charge(std::min(other.weight(), item.weight()) / 64));
    if (Equal(other, item)) return true;
  }
  return false;
}

// Bound of a slice as an index of `length` items.
Result<int64_t> SliceIndex(const Value& bound, int64_t length, int64_t step, bool is_start) {
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
  if (bound.Is(Kind::kNone)) return is_start == (step > 0) ? low : high;
  if (!bound.IsIntegral()) {
    return Invalid(fmt::format("expected integers in a slice, found a value of type {}; convert it", TypeName(bound)));
  }
  const int64_t index = bound.integer();
  return std::clamp(index < 0 ? std::max(index, -length - 1) + length : index, low, high);
}

Result<Value> TakeIndices(const Value& value, const std::vector<int64_t>& indices) {
  if (value.Is(Kind::kString)) {
    const std::string& text = value.text();
    std::string out;
    if (value.length() == std::ssize(text)) {
      for (const int64_t index : indices) out += text[static_cast<size_t>(index)];
    } else {
      std::vector<size_t> offsets;
      for (size_t i = 0; i < text.size(); ++i) {
        if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) offsets.push_back(i);
      }
      offsets.push_back(text.size());
      for (const int64_t index : indices) {
        const size_t begin = offsets[static_cast<size_t>(index)];
        out.append(text, begin, offsets[static_cast<size_t>(index) + 1] - begin);
      }
    }
    return Value::String(std::move(out), value.IsMarkup());
  }
  std::vector<Value> items;
  items.reserve(indices.size());
  for (const int64_t index : indices) items.push_back(value.items()[static_cast<size_t>(index)]);
  return OfItems(value.kind(), std::move(items));
}

// The text from code point `start` up to `stop`.
Value Substring(const Value& value, int64_t start, int64_t stop) {
  const std::string& text = value.text();
  const bool ascii = value.length() == std::ssize(text);
  const size_t begin = ascii ? static_cast<size_t>(start) : ByteOffset(text, start);
  const size_t end = ascii ? static_cast<size_t>(stop) : ByteOffset(text, stop);
  return Value::String(end > begin ? text.substr(begin, end - begin) : "", value.IsMarkup());
}

Result<Value> SliceRange(const SequenceObject& range, int64_t start, int64_t stop, int64_t step) {
  int64_t first = 0, last = 0, stride = 0;
  const bool overflow =
      __builtin_mul_overflow(start, range.step, &first) || __builtin_add_overflow(range.start, first, &first) ||
      __builtin_mul_overflow(stop, range.step, &last) || __builtin_add_overflow(range.start, last, &last) ||
      __builtin_mul_overflow(range.step, step, &stride);
  if (overflow) return Overflow();
  return MakeRange(first, last, stride);
}

// Merges the sorted halves [begin, middle) and [middle, end) of `order`.
Status Merge(Runtime& runtime, const std::vector<Value>& keys, bool decreasing, std::vector<size_t>* order,
             std::pair<size_t, size_t> span) {
  const auto [begin, end] = span;
  const size_t middle = begin + (end - begin) / 2;
  std::vector<size_t> merged;
  merged.reserve(end - begin);
  size_t left = begin, right = middle;
  while (left < middle && right < end) {
    const Value& a = keys[(*order)[left]];
    const Value& b = keys[(*order)[right]];
    TRY(runtime.Charge(1 + std::min(a.weight(), b.weight()) / 64));
    TRY_ASSIGN(const bool right_first, decreasing ? Less(a, b) : Less(b, a));
    merged.push_back((*order)[right_first ? right++ : left++]);
  }
  merged.insert(merged.end(), order->begin() + static_cast<std::ptrdiff_t>(left),
                order->begin() + static_cast<std::ptrdiff_t>(middle));
  merged.insert(merged.end(), order->begin() + static_cast<std::ptrdiff_t>(right),
                order->begin() + static_cast<std::ptrdiff_t>(end));
  std::copy(merged.begin(), merged.end(), order->begin() + static_cast<std::ptrdiff_t>(begin));
  return {};
}

Status SortSpan(Runtime& runtime, const std::vector<Value>& keys, bool decreasing, std::vector<size_t>* order,
                std::pair<size_t, size_t> span) {
  if (span.second - span.first < 2) return {};
  const size_t middle = span.first + (span.second - span.first) / 2;
  TRY(SortSpan(runtime, keys, decreasing, order, {span.first, middle}));
  TRY(SortSpan(runtime, keys, decreasing, order, {middle, span.second}));
  return Merge(runtime, keys, decreasing, order, span);
}

}  // namespace

Result<Value> Arithmetic(Runtime& runtime, Op op, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsIntegral() && b.IsIntegral()) return IntegerArithmetic(op, a.integer(), b.integer());
    return FloatArithmetic(op, a.number(), b.number());
  }
  Result<Value> result = BadOperands(op, a, b);
  if (op == Op::kAdd && a.kind() == b.kind() && IsRepeatable(a)) {
    result = a.Is(Kind::kString) ? Result<Value>(AddStrings(a, b)) : AddSequences(a, b);
  } else if (op == Op::kMultiply && IsRepeatable(a) && b.IsIntegral()) {
    result = Repeat(runtime, a, b.integer());
  } else if (op == Op::kMultiply && a.IsIntegral() && IsRepeatable(b)) {
    result = Repeat(runtime, b, a.integer());
  } else if (op == Op::kModulo && a.Is(Kind::kString)) {
    result = FormatPercent(runtime, a, b);
  }
  if (result.ok()) TRY(runtime.ChargeValue(*result));
  return result;
}

Result<Value> Signed(const Value& value, bool negative) {
  if (!value.IsNumber()) {
    return Invalid(
        fmt::format("expected a number after a sign, found a value of type {}; convert it", TypeName(value)));
  }
  if (value.Is(Kind::kFloat)) return Value::Float(negative ? -value.number() : value.number());
  return negative ? IntegerArithmetic(Op::kSubtract, 0, value.integer()) : Value::Int(value.integer());
}

Result<bool> Compare(Runtime& runtime, Op op, const Value& a, const Value& b) {
  TRY(runtime.Charge(std::min(a.weight(), b.weight()) / 64));
  switch (op) {
    case Op::kEqual:
      return Equal(a, b);
    case Op::kNotEqual:
      return !Equal(a, b);
    case Op::kLess:
      return Less(a, b);
    case Op::kGreater:
      return Less(b, a);
    case Op::kIn:
      return Contains(runtime, b, a);
    case Op::kNotIn: {
      TRY_ASSIGN(const bool contains, Contains(runtime, b, a));
      return !contains;
    }
    default:
      break;
  }
  // "not (b < a)" would be wrong for nan and would hide the error of types without an order.
  TRY_ASSIGN(const bool less, op == Op::kLessEqual ? Less(a, b) : Less(b, a));
  return less || Equal(a, b);
}

Result<Value> Concatenate(Runtime& runtime, const std::vector<Value>& parts) {
  std::string text;
  for (const Value& part : parts) {
    TRY_ASSIGN(const std::string piece, TextOf(runtime, part));
    text += piece;
    if (std::ssize(text) > kMaxWeight) break;  // ChargeValue refuses it
  }
  Value result = Value::String(std::move(text));
  TRY(runtime.ChargeValue(result));
  return result;
}

Result<Value> Slice(Runtime& runtime, const Value& value, const SliceBounds& bounds) {
  if (!value.Is(Kind::kString) && !value.IsSequence()) {
    return Invalid(
        fmt::format("expected a string or list to slice, found a value of type {}; convert it first", TypeName(value)));
  }
  if (value.Is(Kind::kString)) TRY(runtime.ChargeValue(value));
  const int64_t length = value.Is(Kind::kString) ? value.length() : std::ssize(value.items());
  int64_t step = 1;
  if (!bounds.step.Is(Kind::kNone)) {
    if (!bounds.step.IsIntegral() || bounds.step.integer() == 0) {
      return Invalid("expected a slice step that is an integer other than 0, found another value; correct it");
    }
    step = std::clamp(bounds.step.integer(), -kMaxWeight, kMaxWeight);
  }
  TRY_ASSIGN(const int64_t start, SliceIndex(bounds.start, length, step, true));
  TRY_ASSIGN(const int64_t stop, SliceIndex(bounds.stop, length, step, false));
  Result<Value> result = Value::None();
  if (value.Is(Kind::kRange)) {
    result = SliceRange(value.object<SequenceObject>(), start, stop, step);
  } else if (value.Is(Kind::kString) && step == 1) {
    result = Substring(value, start, stop);
  } else {
    std::vector<int64_t> indices;
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) indices.push_back(i);
    TRY(runtime.Charge(std::ssize(indices) / 8));
    result = TakeIndices(value, indices);
  }
  if (result.ok()) TRY(runtime.ChargeValue(*result));
  return result;
}

Result<std::vector<Value>> Iterate(Runtime& runtime, const Value& value) {
  TRY(runtime.ChargeValue(value));
  if (value.IsSequence()) return value.items();
  std::vector<Value> items;
  if (value.Is(Kind::kString)) {
    TRY_ASSIGN(const Value characters, MakeStrings(Characters(value.text())));
    TRY(runtime.ChargeValue(characters));
    return characters.items();
  }
  if (value.Is(Kind::kDict) || value.Is(Kind::kView)) {
    const bool is_view = value.Is(Kind::kView);
    const auto what = is_view ? value.object<ViewObject>().what : ViewObject::What::kKeys;
    const auto& dict = (is_view ? value.object<ViewObject>().dict : value).object<DictObject>();
    TRY(runtime.Charge(std::ssize(dict.entries)));
    for (const auto& [key, item] : dict.entries) {
      items.push_back(what == ViewObject::What::kKeys ? key : item);
      if (what != ViewObject::What::kItems) continue;
      TRY_ASSIGN(items.back(), MakeTuple({key, item}));
    }
    return items;
  }
  if (value.Is(Kind::kIterator)) {
    auto& iterator = value.object<IteratorObject>();
    items.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next), iterator.items.end());
    iterator.next = iterator.items.size();
    return items;
  }
  if (value.IsUndefined()) return items;
  return Invalid(
      fmt::format("expected a value to iterate over, found a value of type {}; give a list", TypeName(value)));
}

Result<int64_t> Length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      return value.length();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return std::ssize(value.items());
    case Kind::kDict:
      return std::ssize(value.object<DictObject>().entries);
    case Kind::kView:
      return Length(runtime, value.object<ViewObject>().dict);
    case Kind::kUndefined:
      return int64_t{0};
    default:
      return Invalid(
          fmt::format("expected a value with a length, found a value of type {}; make it a list", TypeName(value)));
  }
}

Result<std::string> TextOf(Runtime& runtime, const Value& value) {
  TRY(runtime.ChargeDeep(value));
  std::string text = ToText(value);
  if (std::ssize(text) > kMaxWeight) {
    return Invalid(fmt::format("expected texts of at most {} bytes, found a longer one; shorten it", kMaxWeight));
  }
  return text;
}

Result<std::vector<size_t>> SortedOrder(Runtime& runtime, const std::vector<Value>& keys, bool decreasing) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  TRY(SortSpan(runtime, keys, decreasing, &order, {0, keys.size()}));
  return order;
}

Result<Value> MakeRange(int64_t start, int64_t stop, int64_t step) {
  if (step == 0) return Invalid("range: expected a step other than 0, found 0; correct it");
  const auto unsigned_start = static_cast<uint64_t>(start), unsigned_stop = static_cast<uint64_t>(stop);
  const auto unsigned_step = static_cast<uint64_t>(step);
  const bool empty = step > 0 ? start >= stop : start <= stop;
  const uint64_t span = step > 0 ? unsigned_stop - unsigned_start : unsigned_start - unsigned_stop;
  const uint64_t size = step > 0 ? unsigned_step : -unsigned_step;
  const uint64_t count = empty ? 0 : span / size + (span % size != 0 ? 1 : 0);
  if (count > kMaxRange) {
    return Invalid(fmt::format("range: expected at most {} items, found more; make it shorter", kMaxRange));
  }
  auto object = std::make_shared<SequenceObject>();
  for (uint64_t i = 0; i < count; ++i) {
    object->items.push_back(Value::Int(static_cast<int64_t>(unsigned_start + i * unsigned_step)));
  }
  object->start = start;
  object->stop = stop;
  object->step = step;
  TRY(Contain(object->items, object.get()));
  return Value::Heap(Kind::kRange, std::move(object));
}

}  // namespace trivet::text::jinja
