// SPDX-License-Identifier: Apache-2.0
// Evaluation of expressions.
#pragma once

#include <string_view>

#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"
#include "text/jinja_scope.h"

namespace trivet::text::jinja {

/// Evaluates expressions in a scope; the context holds what no scope has.
class ExprEvaluator {
 public:
  /// `context` is a dictionary.
  ExprEvaluator(Runtime* runtime, Value context) : runtime_(*runtime), context_(std::move(context)) {}

  Result<Value> Evaluate(const Expr& expr, Scope* scope);
  /// The filters of `expr`, whose innermost operand is missing, applied to `text`; `text` itself when `expr` is null.
  Result<Value> ApplyFilters(const Expr* expr, const Value& text, Scope* scope);
  /// A call whose arguments are joined by `caller`.
  Result<Value> EvaluateCall(const Expr& expr, Scope* scope, const Value* caller);

 private:
  Result<Value> EvaluateName(const Expr& expr, Scope* scope);
  Result<Value> EvaluateItems(const Expr& expr, Scope* scope);
  Result<Value> EvaluateLogical(const Expr& expr, Scope* scope);
  Result<Value> EvaluateCompare(const Expr& expr, Scope* scope);
  Result<Value> EvaluateCondition(const Expr& expr, Scope* scope);
  Result<Value> EvaluateSlice(const Expr& expr, Scope* scope);
  Result<Value> EvaluateTest(const Expr& expr, Scope* scope);
  Result<Value> EvaluateOperator(const Expr& expr, Scope* scope);
  Result<std::vector<Value>> EvaluateAll(const std::vector<ExprPtr>& exprs, Scope* scope);
  Result<CallArguments> EvaluateArguments(const ArgumentExprs& exprs, Scope* scope);

  Runtime& runtime_;
  const Value context_;
};

}  // namespace trivet::text::jinja
