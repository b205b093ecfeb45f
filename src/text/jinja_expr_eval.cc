// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_expr_eval.h"

#include <fmt/format.h>

#include "base/str.h"
#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_functions.h"
#include "text/jinja_ops.h"
#include "text/jinja_tests.h"

namespace trivet::text::jinja {

Result<Value> ExprEvaluator::Evaluate(const Expr& expr, Scope* scope) {
  if (expr.kind == ExprKind::kConst) return expr.value;
  const Runtime::Level level(&runtime_);
  TRY(runtime_.CheckStack());
  TRY(runtime_.Charge(1));
  runtime_.set_line(expr.line);
  switch (expr.kind) {
    case ExprKind::kName:
      return EvaluateName(expr, scope);
    case ExprKind::kTuple:
    case ExprKind::kList:
    case ExprKind::kDict:
      return EvaluateItems(expr, scope);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvaluateLogical(expr, scope);
    case ExprKind::kCompare:
      return EvaluateCompare(expr, scope);
    case ExprKind::kCondition:
      return EvaluateCondition(expr, scope);
    case ExprKind::kSlice:
      return EvaluateSlice(expr, scope);
    case ExprKind::kCall:
      return EvaluateCall(expr, scope, nullptr);
    case ExprKind::kFilter:
      return ApplyFilters(&expr, Value(), scope);
    case ExprKind::kTest:
      return EvaluateTest(expr, scope);
    default:
      return EvaluateOperator(expr, scope);
  }
}

Result<Value> ExprEvaluator::EvaluateName(const Expr& expr, Scope* scope) {
  TRY(runtime_.Charge(CountVariables(scope) / 32));
  if (const Value* variable = FindVariable(scope, expr.name)) return *variable;
  TRY_ASSIGN(const Value* member, Lookup(context_.object<DictObject>(), Value::String(expr.name)));
  if (member != nullptr) return *member;
  std::optional<Value> function = FindFunction(expr.name);
  if (function.has_value()) return std::move(*function);
  return Value::Undefined(fmt::format("\"{}\"", Quote(expr.name)));
}

Result<std::vector<Value>> ExprEvaluator::EvaluateAll(const std::vector<ExprPtr>& exprs, Scope* scope) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) {
    TRY_ASSIGN(Value value, Evaluate(*expr, scope));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> ExprEvaluator::EvaluateItems(const Expr& expr, Scope* scope) {
  TRY_ASSIGN(std::vector<Value> values, EvaluateAll(expr.children, scope));
  TRY(runtime_.Charge(2 * std::ssize(values)));
  if (expr.kind == ExprKind::kTuple) return MakeTuple(std::move(values));
  if (expr.kind == ExprKind::kList) return MakeList(std::move(values));
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    entries.emplace_back(std::move(values[i]), std::move(values[i + 1]));
  }
  return MakeDict(std::move(entries));
}

Result<Value> ExprEvaluator::EvaluateLogical(const Expr& expr, Scope* scope) {
  TRY_ASSIGN(Value left, Evaluate(*expr.children[0], scope));
  if (Truth(left) == (expr.kind == ExprKind::kOr)) return left;
  return Evaluate(*expr.children[1], scope);
}

Result<Value> ExprEvaluator::EvaluateCompare(const Expr& expr, Scope* scope) {
  TRY_ASSIGN(Value left, Evaluate(*expr.children[0], scope));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    TRY_ASSIGN(Value right, Evaluate(*expr.children[i + 1], scope));
    TRY_ASSIGN(const bool holds, Compare(runtime_, expr.ops[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> ExprEvaluator::EvaluateCondition(const Expr& expr, Scope* scope) {
  TRY_ASSIGN(const Value test, Evaluate(*expr.children[0], scope));
  if (Truth(test)) return Evaluate(*expr.children[1], scope);
  if (expr.children.size() == 3) return Evaluate(*expr.children[2], scope);
  return Value::Undefined("an inline if without else");
}

Result<Value> ExprEvaluator::EvaluateSlice(const Expr& expr, Scope* scope) {
  TRY_ASSIGN(const Value value, Evaluate(*expr.children[0], scope));
  Value bounds[3] = {Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1] == nullptr) continue;
    TRY_ASSIGN(bounds[i], Evaluate(*expr.children[i + 1], scope));
  }
  return Slice(runtime_, value, {bounds[0], bounds[1], bounds[2]});
}

Result<Value> ExprEvaluator::EvaluateTest(const Expr& expr, Scope* scope) {
  TRY_ASSIGN(const Value value, Evaluate(*expr.children[0], scope));
  TRY_ASSIGN(CallArguments arguments, EvaluateArguments(*expr.arguments, scope));
  TRY_ASSIGN(const bool passes, RunTest(runtime_, expr.name, value, std::move(arguments)));
  return Value::Bool(passes);
}

Result<Value> ExprEvaluator::EvaluateOperator(const Expr& expr, Scope* scope) {
  TRY_ASSIGN(std::vector<Value> operands, EvaluateAll(expr.children, scope));
  runtime_.set_line(expr.line);
  switch (expr.kind) {
    case ExprKind::kNegate:
      return Signed(operands[0], true);
    case ExprKind::kPlus:
      return Signed(operands[0], false);
    case ExprKind::kNot:
      return Value::Bool(!Truth(operands[0]));
    case ExprKind::kBinary:
      return Arithmetic(runtime_, expr.ops[0], operands[0], operands[1]);
    case ExprKind::kConcat:
      return Concatenate(runtime_, operands);
    case ExprKind::kAttribute:
      return GetAttribute(runtime_, operands[0], expr.name);
    default:
      return GetItem(runtime_, operands[0], operands[1]);
  }
}

Result<Value> ExprEvaluator::ApplyFilters(const Expr* expr, const Value& text, Scope* scope) {
  if (expr == nullptr) return text;
  const Runtime::Level level(&runtime_);
  TRY(runtime_.CheckStack());
  const ExprPtr& operand = expr->children[0];
  const bool is_inner = operand == nullptr || operand->kind == ExprKind::kFilter;
  TRY_ASSIGN(const Value value, is_inner ? ApplyFilters(operand.get(), text, scope) : Evaluate(*operand, scope));
  TRY_ASSIGN(CallArguments arguments, EvaluateArguments(*expr->arguments, scope));
  runtime_.set_line(expr->line);
  return RunFilter(runtime_, expr->name, value, std::move(arguments));
}

Result<CallArguments> ExprEvaluator::EvaluateArguments(const ArgumentExprs& exprs, Scope* scope) {
  CallArguments arguments;
  TRY_ASSIGN(arguments.positional, EvaluateAll(exprs.positional, scope));
  for (const auto& [name, expr] : exprs.keywords) {
    TRY_ASSIGN(Value value, Evaluate(*expr, scope));
    arguments.keywords.emplace_back(name, std::move(value));
  }
  if (exprs.star != nullptr) {
    TRY_ASSIGN(const Value sequence, Evaluate(*exprs.star, scope));
    TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime_, sequence));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (exprs.double_star != nullptr) {
    TRY_ASSIGN(const Value mapping, Evaluate(*exprs.double_star, scope));
    if (!mapping.Is(Kind::kDict)) return Invalid("expected a dictionary after **, found another value; convert it");
    for (const auto& [key, value] : mapping.object<DictObject>().entries) {
      TRY(runtime_.Charge(2));
      if (!key.Is(Kind::kString)) return Invalid("expected names as keys after **, found another key; use strings");
      arguments.keywords.emplace_back(key.text(), value);
    }
  }
  return arguments;
}

Result<Value> ExprEvaluator::EvaluateCall(const Expr& expr, Scope* scope, const Value* caller) {
  TRY_ASSIGN(const Value callee, Evaluate(*expr.children[0], scope));
  TRY_ASSIGN(CallArguments arguments, EvaluateArguments(*expr.arguments, scope));
  if (caller != nullptr) arguments.keywords.emplace_back("caller", *caller);
  runtime_.set_line(expr.line);
  return CallValue(runtime_, callee, std::move(arguments));
}

}  // namespace trivet::text::jinja
