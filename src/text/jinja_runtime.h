// SPDX-License-Identifier: Apache-2.0
// What a rendering shares with the functions, filters, tests and methods of the language: its limits, the calls it can
// make, and how arguments reach parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace trivet::text::jinja {

/// Work of one rendering, in steps: a node evaluated, 64 bytes copied, half an item made.
inline constexpr int64_t kMaxSteps = 8'000'000;
/// Levels of evaluation on the stack.
inline constexpr int kMaxStack = 800;
/// Longest text a rendering gives.  Units: bytes.
inline constexpr int64_t kMaxOutput = kMaxWeight;

/// Arguments as the caller wrote them.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

struct Scope;

/// A macro, and the scope it was defined in.
struct MacroObject : Object {
  const MacroDefinition* definition = nullptr;
  Scope* scope = nullptr;  // where it was defined; the evaluator keeps it
};

/// The variable `loop`. Items are taken one at a time, because the test of a loop may depend on what its body did.
struct LoopObject : Object {
  const Stmt* node = nullptr;
  Scope* scope = nullptr;
  std::vector<Value> items;
  size_t next = 0;
  bool sized = true;              // the length is that of `items`: no test, no iterator
  std::optional<int64_t> length;  // once asked for
  std::vector<Value> rest;        // what passed the test when the length was asked for, from `rest_next` on
  size_t rest_next = 0;
  std::optional<Value> after;  // taken early for last or nextitem
  std::optional<Value> current, before;
  int64_t index0 = -1;
  std::optional<std::vector<Value>> changed;  // arguments of the last call of changed()
};

/// One rendering, as native functions see it.
class Runtime {
 public:
  Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  virtual ~Runtime() = default;

  /// Counts `steps` of work.  Errors: beyond kMaxSteps.
  Status Charge(int64_t steps);
  /// Counts making `value`, its top level only.  Errors: those of Charge, and a string beyond kMaxWeight.
  Status ChargeValue(const Value& value);
  /// Counts walking all of `value`.
  Status ChargeDeep(const Value& value) { return Charge(value.weight() / 64); }

  /// A namespace that lives as long as the rendering.
  Result<Namespace*> NewNamespace();

  /// Calls a macro.
  virtual Result<Value> CallMacro(const MacroObject& macro, CallArguments arguments) = 0;
  /// The next item of a loop that passes its test, or nothing at the end.
  virtual Result<std::optional<Value>> TakeItem(LoopObject* loop) = 0;

  /// Line of the template being evaluated.
  void set_line(int line) { line_ = line; }
  int line() const { return line_; }
  /// Set when the template itself raised the error.
  void set_raised() { raised_ = true; }
  bool raised() const { return raised_; }

  /// Counts one level of the stack while it lives.
  class Level {
   public:
    explicit Level(Runtime* runtime) : runtime_(runtime) { ++runtime_->levels_; }
    ~Level() { --runtime_->levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime* runtime_;
  };
  /// Errors beyond kMaxStack levels.
  Status CheckStack() const;

 private:
  int64_t steps_ = 0;
  int levels_ = 0;
  int line_ = 1;
  bool raised_ = false;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

/// Arguments in the order of a native function's parameters.
class Arguments {
 public:
  Arguments(std::string_view callee, std::vector<std::optional<Value>> values, CallArguments rest)
      : callee_(callee), values_(std::move(values)), rest_(std::move(rest)) {}

  /// The argument of parameter `index`, or null when it was left out.
  const Value* Get(size_t index) const { return values_[index].has_value() ? &*values_[index] : nullptr; }
  /// As Get, for a parameter that must be there.
  const Value& At(size_t index) const { return *values_[index]; }
  /// Whether it is there and not none.
  bool Has(size_t index) const { return values_[index].has_value() && !values_[index]->Is(Kind::kNone); }
  /// Typed arguments.  Errors: another type.
  Result<int64_t> Int(size_t index, int64_t fallback) const;
  Result<std::string> Text(size_t index, std::string fallback) const;
  /// Truth of an argument.
  bool Flag(size_t index, bool fallback) const { return Get(index) == nullptr ? fallback : Truth(*Get(index)); }
  /// What no parameter takes, where a function accepts that.
  const CallArguments& rest() const { return rest_; }
  std::string_view callee() const { return callee_; }
  /// An error about an argument of this call.
  Error Expected(std::string_view expected, const Value& found) const;

 private:
  std::string_view callee_;
  std::vector<std::optional<Value>> values_;
  CallArguments rest_;
};

/// A native function, method, filter or test.
///   parameters  names with spaces between: "/name" takes no keyword, "name?" may be left out, "*" and "**" accept more
///   run         `self` is what the method, filter or test applies to
struct Native {
  std::string_view name;
  std::string_view parameters;
  Result<Value> (*run)(Runtime& runtime, const Value& self, const Arguments& arguments);
};

/// A function of the environment.
struct FunctionObject : Object {
  const Native* native = nullptr;
};

/// A method, and the value it belongs to.
struct MethodObject : Object {
  const Native* native = nullptr;
  Value self;
};

/// Binds `arguments` to the parameters of `native` and runs it.  Errors: arguments that do not fit, and its own.
Result<Value> RunNative(Runtime& runtime, const Native& native, const Value& self, CallArguments arguments);

/// The entry of this name in a table, or null.
template <size_t kSize>
const Native* FindNative(const Native (&table)[kSize], std::string_view name) {
  for (const Native& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace trivet::text::jinja
