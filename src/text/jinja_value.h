// SPDX-License-Identifier: Apache-2.0
// shared_ptr: values of a template refer to each other as Python objects do; none of them is the owner.
// Values of the template language, with Python's meaning of truth, equality, order and printing. Strings, sequences and
// dictionaries never change once made; every container knows how deep and how large it is, so that walking a value is
// bounded whatever the template does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace trivet::text::jinja {

/// Bounds on one value: levels of nesting, and bytes with everything that it contains counted each time it occurs.
inline constexpr int kMaxNesting = 96;
inline constexpr int64_t kMaxWeight = int64_t{64} << 20;

/// What kind of value it is.
enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kDict,
  kView,      // dict.keys(), dict.values(), dict.items()
  kIterator,  // what lazy filters return; can be walked once
  kNamespace,
  kLoop,
  kMacro,
  kFunction,
  kMethod,
  kCycler,
  kJoiner,
};

/// What every value on the heap starts with.
struct Object {
  int nesting = 0;
  int64_t weight = 16;
};

struct Namespace;

/// One value. Copies share what is on the heap: a template passes the same message around many times, and values live
/// as long as any variable, list or loop needs them, so ownership is shared. Namespaces, the only values that can come
/// to contain themselves, belong to the evaluator, so there are no cycles.
class Value {
 public:
  Value() = default;  // undefined
  /// Undefined, with a description such as "'x'" for messages.
  static Value Undefined(std::string description);
  static Value None();
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  /// `text` must be valid UTF-8.
  static Value String(std::string text, bool markup = false);
  static Value OfNamespace(Namespace* space);
  /// A value of `kind` whose content is `object`.
  static Value Heap(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNumber() const { return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat; }
  /// int or bool, as Python's isinstance(x, int).
  bool IsIntegral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  /// list, tuple or range.
  bool IsSequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple || kind_ == Kind::kRange; }
  /// String that |safe or |escape marked, which escapes what is joined to it.
  bool IsMarkup() const;

  /// Integer value of an int or bool.
  int64_t integer() const;
  /// Value of any number.
  double number() const;
  const std::string& text() const;
  /// Number of code points of a string.
  int64_t length() const;
  /// Items of a list, tuple or range.
  const std::vector<Value>& items() const;
  Namespace* space() const;
  template <class T>
  T& object() const {
    return static_cast<T&>(*object_);
  }
  const Object* identity() const { return object_.get(); }

  int nesting() const { return object_ == nullptr ? 0 : object_->nesting; }
  /// Bytes, those of everything inside included.
  int64_t weight() const { return object_ == nullptr ? 16 : object_->weight; }

 private:
  Kind kind_ = Kind::kUndefined;
  union {
    int64_t integer_ = 0;
    double float_;
    Namespace* space_;
  };
  std::shared_ptr<Object> object_;
};

/// A text.
struct StringObject : Object {
  std::string text;
  int64_t length = 0;
  bool markup = false;
};

/// A list or a tuple.
struct SequenceObject : Object {
  std::vector<Value> items;
  int64_t start = 0, stop = 0, step = 1;  // of a range
  bool grouped = false;                   // a tuple of |groupby, which has attributes
};

/// A dict, in order of insertion.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;  // in insertion order
  std::vector<uint32_t> order;                   // entries by increasing key
};

/// The keys, values or items of a dict.
struct ViewObject : Object {
  enum class What { kKeys, kValues, kItems } what = What::kKeys;
  Value dict;
};

/// A sequence that can be walked once.
struct IteratorObject : Object {
  std::vector<Value> items;
  size_t next = 0;
};

/// What cycler() returns.
struct CyclerObject : Object {
  std::vector<Value> items;
  size_t position = 0;
};

/// What joiner() returns.
struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

/// What namespace() returns.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

/// Error of a template: kInvalid with one sentence.
Error Invalid(std::string message);
/// "str", "int", "dict" and so on, as Python names the type.
std::string_view TypeName(const Value& value);
std::string_view TypeName(Kind kind);

/// Accounts for `parts` in `object`.  Errors: kInvalid beyond kMaxNesting, kMaxWeight or kMaxItems.
Status Contain(const std::vector<Value>& parts, Object* object);
Result<Value> MakeList(std::vector<Value> items);
Result<Value> MakeTuple(std::vector<Value> items);
Result<Value> MakeIterator(std::vector<Value> items);
/// Later entries of an equal key replace the value of the first.  Errors: an unhashable key, and those of Contain.
Result<Value> MakeDict(std::vector<std::pair<Value, Value>> entries);
Result<Value> MakeView(const Value& dict, ViewObject::What what);
/// Strings of a list, `markup` as given.
Result<Value> MakeStrings(const std::vector<std::string_view>& texts, bool markup = false);
/// A JSON document as a value.  Errors: those of Contain, and an integer beyond 64 bits.
Result<Value> FromJson(const Json& json);

/// The value stored under `key`, or null.  Errors: an unhashable key.
Result<const Value*> Lookup(const DictObject& dict, const Value& key);

/// Python's bool().
bool Truth(const Value& value);
/// Python's ==; takes time in proportion to the smaller weight.
bool Equal(const Value& a, const Value& b);
/// Python's <.  Errors: types without an order between them.
Result<bool> Less(const Value& a, const Value& b);
/// Errors when `key` cannot be a dictionary key.
Status CheckHashable(const Value& key);
/// A total order of hashable values in which exactly the equal ones are equivalent.
bool KeyLess(const Value& a, const Value& b);

}  // namespace trivet::text::jinja
