// SPDX-License-Identifier: Apache-2.0
// Operators of the template language with Python's meaning: arithmetic, comparison, membership, slices, iteration.
#pragma once

#include <string>
#include <vector>

#include "text/jinja_runtime.h"

namespace trivet::text::jinja {

/// a op b for the arithmetic operators.  Errors: types that the operator does not take, division by zero, a result
/// beyond 64 bits.
Result<Value> Arithmetic(Runtime& runtime, Op op, const Value& a, const Value& b);
/// -value, or +value.
Result<Value> Signed(const Value& value, bool negative);
/// a op b for the comparison and membership operators.
Result<bool> Compare(Runtime& runtime, Op op, const Value& a, const Value& b);
/// The texts of `parts` one after the other.
Result<Value> Concatenate(Runtime& runtime, const std::vector<Value>& parts);
/// value[start:stop:step]; none or undefined stands for a bound left out.
struct SliceBounds {
  Value start, stop, step;
};
/// The elements of `value` within `bounds`, with the rules of Python.
Result<Value> Slice(Runtime& runtime, const Value& value, const SliceBounds& bounds);
/// What a loop over `value` goes through; an iterator is used up.  Errors: a value that cannot be iterated.
Result<std::vector<Value>> Iterate(Runtime& runtime, const Value& value);
/// Python's len().  Errors: a value without a length.
Result<int64_t> Length(Runtime& runtime, const Value& value);
/// What printing `value` gives.  Errors: a text beyond kMaxWeight.
Result<std::string> TextOf(Runtime& runtime, const Value& value);
/// Indices of `keys` in stable increasing (decreasing) order.  Errors: keys that cannot be ordered.
Result<std::vector<size_t>> SortedOrder(Runtime& runtime, const std::vector<Value>& keys, bool decreasing);
/// range(start, stop, step).  Errors: step 0, more than 100000 items.
Result<Value> MakeRange(int64_t start, int64_t stop, int64_t step);

}  // namespace trivet::text::jinja
