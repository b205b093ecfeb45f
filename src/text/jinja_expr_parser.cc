// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_expr_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/str.h"

namespace trivet::text::jinja {
namespace {

std::vector<ExprPtr> Children(ExprPtr first, ExprPtr second = nullptr) {
  std::vector<ExprPtr> children;
  children.push_back(std::move(first));
  if (second != nullptr) children.push_back(std::move(second));
  return children;
}

int DepthOf(const ExprPtr& node) { return node == nullptr ? 0 : node->depth; }

}  // namespace

void ExprParser::KeepUnknown(size_t from) {
  for (size_t i = from; i < unknown_.size(); ++i) unknown_[i].kept = true;
}

void ExprParser::ForgiveUnknown(size_t from) {
  unknown_.erase(std::remove_if(unknown_.begin() + static_cast<std::ptrdiff_t>(from), unknown_.end(),
                                [](const Unknown& unknown) { return !unknown.kept; }),
                 unknown_.end());
}

Status ExprParser::CheckUnknown() const {
  if (!unknown_.empty()) return unknown_.front().error;
  return {};
}

Status ExprParser::CheckNesting() const {
  if (depth_ > kMaxTreeDepth) {
    return SyntaxError(Peek().line, fmt::format("expected at most {} levels of nesting, found more", kMaxTreeDepth));
  }
  return {};
}

Result<ExprPtr> ExprParser::Make(ExprKind kind, int line, std::vector<ExprPtr> children) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  node->children = std::move(children);
  return Finish(std::move(node));
}

// Sets the depth of a node whose children are in place.
Result<ExprPtr> ExprParser::Finish(ExprPtr node) const {
  int depth = 0;
  for (const ExprPtr& child : node->children) depth = std::max(depth, DepthOf(child));
  if (node->arguments != nullptr) {
    const ArgumentExprs& arguments = *node->arguments;
    for (const ExprPtr& argument : arguments.positional) depth = std::max(depth, DepthOf(argument));
    for (const auto& [name, argument] : arguments.keywords) depth = std::max(depth, DepthOf(argument));
    depth = std::max({depth, DepthOf(arguments.star), DepthOf(arguments.double_star)});
  }
  node->depth = depth + 1;
  if (node->depth > kMaxTreeDepth) {
    return SyntaxError(node->line, fmt::format("expected at most {} levels in an expression, found more; use set to "
                                               "split it",
                                               kMaxTreeDepth));
  }
  return node;
}

Result<ExprPtr> ExprParser::ParseExpression(bool conditions) { return conditions ? ParseCondition() : ParseOr(); }

Result<ExprPtr> ExprParser::ParseTuple(TupleOptions options) {
  const int line = Peek().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!AtTupleEnd()) {
    TRY_ASSIGN(ExprPtr item, ParseExpression(options.conditions));
    items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (!is_tuple && !options.parentheses) return Unexpected("an expression");
  return Make(ExprKind::kTuple, line, std::move(items));
}

bool ExprParser::AtTupleEnd() const {
  return Peek().kind == TokenKind::kPrintEnd || Peek().kind == TokenKind::kBlockEnd || AtOperator(")");
}

Result<ExprPtr> ExprParser::ParseCondition() {
  const Nesting nesting(this);
  TRY(CheckNesting());
  const size_t unknown = unknown_count();
  TRY_ASSIGN(ExprPtr node, ParseOr());
  while (AtName("if")) {
    const int line = Next().line;
    std::vector<ExprPtr> children;
    TRY_ASSIGN(ExprPtr test, ParseOr());
    children.push_back(std::move(test));
    children.push_back(std::move(node));
    if (SkipName("else")) {
      TRY_ASSIGN(ExprPtr other, ParseCondition());
      children.push_back(std::move(other));
    }
    ForgiveUnknown(unknown);
    TRY_ASSIGN(node, Make(ExprKind::kCondition, line, std::move(children)));
  }
  return node;
}

Result<ExprPtr> ExprParser::ParseLogical(Level next, std::string_view word, ExprKind kind) {
  TRY_ASSIGN(ExprPtr left, (this->*next)());
  while (AtName(word)) {
    const int line = Next().line;
    TRY_ASSIGN(ExprPtr right, (this->*next)());
    TRY_ASSIGN(left, Make(kind, line, Children(std::move(left), std::move(right))));
  }
  return left;
}

Result<ExprPtr> ExprParser::ParseOr() { return ParseLogical(&ExprParser::ParseAnd, "or", ExprKind::kOr); }
Result<ExprPtr> ExprParser::ParseAnd() { return ParseLogical(&ExprParser::ParseNot, "and", ExprKind::kAnd); }

Result<ExprPtr> ExprParser::ParseNot() {
  const Nesting nesting(this);
  TRY(CheckNesting());
  if (!AtName("not")) return ParseCompare();
  const int line = Next().line;
  TRY_ASSIGN(ExprPtr operand, ParseNot());
  return Make(ExprKind::kNot, line, Children(std::move(operand)));
}

Result<ExprPtr> ExprParser::ParseCompare() {
  static constexpr BinaryOperator kComparisons[] = {{"==", Op::kEqual},  {"!=", Op::kNotEqual},
                                                    {"<", Op::kLess},    {"<=", Op::kLessEqual},
                                                    {">", Op::kGreater}, {">=", Op::kGreaterEqual}};
  const int line = Peek().line;
  TRY_ASSIGN(ExprPtr first, ParseSum());
  std::vector<ExprPtr> children = Children(std::move(first));
  std::vector<Op> ops;
  while (true) {
    const auto* found = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                     [&](const BinaryOperator& entry) { return AtOperator(entry.spelling); });
    if (found != std::end(kComparisons)) {
      Next();
      ops.push_back(found->op);
    } else if (SkipName("in")) {
      ops.push_back(Op::kIn);
    } else if (AtName("not") && AtName("in", 1)) {
      Next();
      Next();
      ops.push_back(Op::kNotIn);
    } else {
      break;
    }
    TRY_ASSIGN(ExprPtr operand, ParseSum());
    children.push_back(std::move(operand));
  }
  if (ops.empty()) return std::move(children[0]);
  TRY_ASSIGN(ExprPtr node, Make(ExprKind::kCompare, line, std::move(children)));
  node->ops = std::move(ops);
  return node;
}

Result<ExprPtr> ExprParser::ParseLeftBinary(Level next, const std::vector<BinaryOperator>& operators) {
  TRY_ASSIGN(ExprPtr left, (this->*next)());
  while (true) {
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [&](const BinaryOperator& entry) { return AtOperator(entry.spelling); });
    if (found == operators.end()) return left;
    const int line = Next().line;
    TRY_ASSIGN(ExprPtr right, (this->*next)());
    TRY_ASSIGN(left, Make(ExprKind::kBinary, line, Children(std::move(left), std::move(right))));
    left->ops.push_back(found->op);
  }
}

Result<ExprPtr> ExprParser::ParseSum() {
  return ParseLeftBinary(&ExprParser::ParseConcat, {{"+", Op::kAdd}, {"-", Op::kSubtract}});
}

Result<ExprPtr> ExprParser::ParseConcat() {
  const int line = Peek().line;
  std::vector<ExprPtr> children;
  do {
    TRY_ASSIGN(ExprPtr child, ParseProduct());
    children.push_back(std::move(child));
  } while (SkipOperator("~"));
  if (children.size() == 1) return std::move(children[0]);
  return Make(ExprKind::kConcat, line, std::move(children));
}

Result<ExprPtr> ExprParser::ParseProduct() {
  return ParseLeftBinary(&ExprParser::ParsePower,
                         {{"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}});
}

Result<ExprPtr> ExprParser::ParsePower() {
  return ParseLeftBinary(&ExprParser::ParseFilteredUnary, {{"**", Op::kPower}});
}

Result<ExprPtr> ExprParser::ParseFilteredUnary() { return ParseUnary(true); }

Result<ExprPtr> ExprParser::ParseUnary(bool filters) {
  const Nesting nesting(this);
  TRY(CheckNesting());
  ExprPtr node;
  if (AtOperator("-") || AtOperator("+")) {
    const Token sign = Next();
    TRY_ASSIGN(ExprPtr operand, ParseUnary(false));
    const ExprKind kind = sign.text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
    TRY_ASSIGN(node, Make(kind, sign.line, Children(std::move(operand))));
  } else {
    TRY_ASSIGN(node, ParsePrimary());
  }
  TRY_ASSIGN(node, ParsePostfix(std::move(node)));
  return filters ? ParseFilterExpr(std::move(node)) : Result<ExprPtr>(std::move(node));
}

Result<ExprPtr> ExprParser::ParseNamePrimary() {
  const Token token = Next();
  TRY_ASSIGN(ExprPtr node, Make(ExprKind::kConst, token.line, {}));
  const std::string& name = token.text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->value = Value::Bool(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    node->value = Value::None();
  } else {
    node->kind = ExprKind::kName;
    node->name = name;
    for (MacroDefinition* macro : macros_) {
      macro->uses_varargs |= name == "varargs";
      macro->uses_kwargs |= name == "kwargs";
      macro->uses_caller |= name == "caller";
    }
  }
  return node;
}

Result<ExprPtr> ExprParser::ParsePrimary() {
  const Token& token = Peek();
  const int line = token.line;
  if (token.kind == TokenKind::kName) return ParseNamePrimary();
  if (SkipOperator("(")) {
    TRY_ASSIGN(ExprPtr node, ParseTuple({.conditions = true, .parentheses = true}));
    TRY(ExpectOperator(")"));
    return node;
  }
  if (AtOperator("[") || AtOperator("{")) return ParseBracketed(Next().text == "[" ? "]" : "}");
  Value value;
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (Peek().kind == TokenKind::kString) text += Next().text;
    value = Value::String(std::move(text));
  } else if (token.kind == TokenKind::kInteger) {
    value = Value::Int(Next().integer);
  } else if (token.kind == TokenKind::kFloat) {
    value = Value::Float(Next().number);
  } else {
    return Unexpected("an expression");
  }
  TRY_ASSIGN(ExprPtr node, Make(ExprKind::kConst, line, {}));
  node->value = std::move(value);
  return node;
}

// The rest of a list or dictionary, after its opening bracket.
Result<ExprPtr> ExprParser::ParseBracketed(std::string_view close) {
  const bool is_dict = close == "}";
  const int line = Peek().line;
  std::vector<ExprPtr> children;
  while (!AtOperator(close)) {
    TRY_ASSIGN(ExprPtr item, ParseExpression());
    children.push_back(std::move(item));
    if (is_dict) {
      TRY(ExpectOperator(":"));
      TRY_ASSIGN(ExprPtr value, ParseExpression());
      children.push_back(std::move(value));
    }
    if (!SkipOperator(",")) break;
  }
  TRY(ExpectOperator(close));
  return Make(is_dict ? ExprKind::kDict : ExprKind::kList, line, std::move(children));
}

Result<ExprPtr> ExprParser::ParsePostfix(ExprPtr node) {
  while (true) {
    if (AtOperator(".") || AtOperator("[")) {
      TRY_ASSIGN(node, ParseSubscript(std::move(node)));
    } else if (AtOperator("(")) {
      TRY_ASSIGN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExprParser::ParseFilterExpr(ExprPtr node) {
  while (true) {
    if (AtOperator("|")) {
      TRY_ASSIGN(node, ParseFilters(std::move(node), false));
    } else if (AtName("is")) {
      TRY_ASSIGN(node, ParseTest(std::move(node)));
    } else if (AtOperator("(")) {
      TRY_ASSIGN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExprParser::ParseSubscript(ExprPtr node) {
  const Token open = Next();
  if (open.text == ".") {
    if (Peek().kind == TokenKind::kInteger) {
      TRY_ASSIGN(ExprPtr index, ParsePrimary());
      return Make(ExprKind::kItem, open.line, Children(std::move(node), std::move(index)));
    }
    TRY_ASSIGN(std::string name, ExpectName());
    TRY_ASSIGN(ExprPtr attribute, Make(ExprKind::kAttribute, open.line, Children(std::move(node))));
    attribute->name = std::move(name);
    return attribute;
  }
  // up to three parts with colons between them, each of which may be missing
  std::vector<ExprPtr> parts(1);
  while (!AtOperator("]")) {
    if (SkipOperator(":")) {
      if (parts.size() == 3) return Unexpected("\"]\"");
      parts.emplace_back();
      continue;
    }
    if (parts.back() != nullptr) return Unexpected("\"]\"");
    TRY_ASSIGN(parts.back(), ParseExpression());
  }
  Next();
  if (parts.size() == 1) {
    if (parts[0] == nullptr) return Unexpected("an index");
    return Make(ExprKind::kItem, open.line, Children(std::move(node), std::move(parts[0])));
  }
  parts.resize(3);
  parts.insert(parts.begin(), std::move(node));
  return Make(ExprKind::kSlice, open.line, std::move(parts));
}

Result<ExprPtr> ExprParser::ParseCall(ExprPtr node) {
  auto call = std::make_unique<Expr>();
  call->kind = ExprKind::kCall;
  call->line = Peek().line;
  call->children = Children(std::move(node));
  TRY_ASSIGN(call->arguments, ParseArguments());
  return Finish(std::move(call));
}

Result<std::unique_ptr<ArgumentExprs>> ExprParser::ParseArguments() {
  auto arguments = std::make_unique<ArgumentExprs>();
  TRY(ExpectOperator("("));
  while (!AtOperator(")")) {
    TRY(ParseArgument(arguments.get()));
    if (!SkipOperator(",")) break;
  }
  TRY(ExpectOperator(")"));
  return arguments;
}

Status ExprParser::ParseArgument(ArgumentExprs* arguments) {
  if (arguments->double_star != nullptr) return Unexpected("\")\" after ** arguments");
  if (SkipOperator("**")) {
    TRY_ASSIGN(arguments->double_star, ParseExpression());
    return {};
  }
  const bool is_keyword =
      Peek().kind == TokenKind::kName && Peek(1).kind == TokenKind::kOperator && Peek(1).text == "=";
  if (is_keyword) {
    const std::string name = Next().text;
    Next();
    if (std::ssize(arguments->keywords) >= kMaxParameters) return Unexpected("fewer arguments");
    for (const auto& [other, value] : arguments->keywords) {
      if (other == name) return Unexpected(fmt::format("argument \"{}\" once", Quote(name)));
    }
    TRY_ASSIGN(ExprPtr value, ParseExpression());
    arguments->keywords.emplace_back(name, std::move(value));
    return {};
  }
  if (arguments->star != nullptr) return Unexpected("keyword arguments after * arguments");
  if (SkipOperator("*")) {
    TRY_ASSIGN(arguments->star, ParseExpression());
    return {};
  }
  if (!arguments->keywords.empty()) return Unexpected("positional arguments before keyword arguments");
  TRY_ASSIGN(ExprPtr value, ParseExpression());
  arguments->positional.push_back(std::move(value));
  return {};
}

Result<std::string> ExprParser::ParseDottedName() {
  TRY_ASSIGN(std::string name, ExpectName());
  while (SkipOperator(".")) {
    TRY_ASSIGN(const std::string part, ExpectName());
    name += "." + part;
  }
  return name;
}

Result<ExprPtr> ExprParser::ParseFilters(ExprPtr base, bool first_inline) {
  while (first_inline || SkipOperator("|")) {
    first_inline = false;
    auto filter = std::make_unique<Expr>();
    filter->kind = ExprKind::kFilter;
    filter->line = Peek().line;
    TRY_ASSIGN(filter->name, ParseDottedName());
    filter->arguments = std::make_unique<ArgumentExprs>();
    if (AtOperator("(")) {
      TRY_ASSIGN(filter->arguments, ParseArguments());
    }
    if (!names_.is_filter(filter->name)) {
      unknown_.push_back({SyntaxError(filter->line, fmt::format("expected a filter that chat templates have, found "
                                                                "\"{}\"; leave it out",
                                                                Quote(filter->name)))});
    }
    filter->children.push_back(std::move(base));
    TRY_ASSIGN(base, Finish(std::move(filter)));
  }
  return base;
}

bool ExprParser::AtTestArgument() const {
  switch (Peek().kind) {
    case TokenKind::kName:
      return !AtName("else") && !AtName("or") && !AtName("and");
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return AtOperator("[") || AtOperator("{");
  }
}

Result<ExprPtr> ExprParser::ParseTest(ExprPtr node) {
  auto test = std::make_unique<Expr>();
  test->kind = ExprKind::kTest;
  test->line = Next().line;
  const bool negated = SkipName("not");
  TRY_ASSIGN(test->name, ParseDottedName());
  test->children = Children(std::move(node));
  test->arguments = std::make_unique<ArgumentExprs>();
  if (AtOperator("(")) {
    TRY_ASSIGN(test->arguments, ParseArguments());
  } else if (AtTestArgument()) {
    if (AtName("is")) return Unexpected("one test after is");
    TRY_ASSIGN(ExprPtr argument, ParsePrimary());
    TRY_ASSIGN(argument, ParsePostfix(std::move(argument)));
    test->arguments->positional.push_back(std::move(argument));
  }
  if (!names_.is_test(test->name)) {
    unknown_.push_back({SyntaxError(test->line, fmt::format("expected a test that chat templates have, found \"{}\"; "
                                                            "leave it out",
                                                            Quote(test->name)))});
  }
  const int line = test->line;
  TRY_ASSIGN(ExprPtr result, Finish(std::move(test)));
  return negated ? Make(ExprKind::kNot, line, Children(std::move(result))) : Result<ExprPtr>(std::move(result));
}

}  // namespace trivet::text::jinja
