// SPDX-License-Identifier: Apache-2.0
// Syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace trivet::text::jinja {

/// Deepest tree of expressions or statements.
inline constexpr int kMaxTreeDepth = 100;
/// Most parameters of a macro, and most keywords of a call.
inline constexpr int64_t kMaxParameters = 255;

/// An operator of an expression.
enum class Op {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// Arguments of a call, filter or test.
struct ArgumentExprs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star;         // *sequence, or null
  ExprPtr double_star;  // **mapping, or null
};

/// What kind of expression a node is.
enum class ExprKind {
  kConst,      // value
  kName,       // name
  kTuple,      // children
  kList,       // children
  kDict,       // children: key, value, key, value, ...
  kNegate,     // children[0]
  kPlus,       // children[0]
  kNot,        // children[0]
  kBinary,     // children[0] ops[0] children[1]
  kAnd,        // children[0], children[1]
  kOr,         // children[0], children[1]
  kCompare,    // children[0] ops[0] children[1] ops[1] children[2] ...
  kConcat,     // children, as text
  kCondition,  // children: test, then, and else unless absent
  kAttribute,  // children[0].name
  kItem,       // children[0][children[1]]
  kSlice,      // children[0][children[1]:children[2]:children[3]], null where left out
  kCall,       // children[0](arguments)
  kFilter,     // children[0]|name(arguments); a null child stands for the text of a block
  kTest,       // children[0] is name(arguments)
};

/// A node of an expression.
struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 1;
  int depth = 1;  // of the tree below and including this
  std::string name;
  Value value;
  std::vector<Op> ops;
  std::vector<ExprPtr> children;
  std::unique_ptr<ArgumentExprs> arguments;
};

/// What a set or a for assigns to: a name, an attribute of a namespace, or several of them.
struct Target {
  enum class What { kName, kAttribute, kTuple } what = What::kName;
  std::string name;
  std::string attribute;
  std::vector<Target> items;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

/// A macro, or the body of a call block.
struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Body body;
};

/// What kind of statement a node is.
enum class StmtKind {
  kData,        // text
  kPrint,       // expr
  kFor,         // target in expr if test: body else other
  kIf,          // branches, other
  kSet,         // target = expr
  kSetBlock,    // target = body, through filters when expr is not null
  kMacro,       // macro
  kCall,        // expr (a call) with macro as the caller
  kFilter,      // body through the filters of expr
  kGeneration,  // body
  kBreak,
  kContinue,
};

/// A node of a template.
struct Stmt {
  StmtKind kind = StmtKind::kData;
  int line = 1;
  std::string text;
  ExprPtr expr;
  ExprPtr test;
  Target target;
  Body body;
  Body other;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::unique_ptr<MacroDefinition> macro;
};

}  // namespace trivet::text::jinja
