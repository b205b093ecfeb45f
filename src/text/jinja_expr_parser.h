// SPDX-License-Identifier: Apache-2.0
// The expression half of the template parser, over the tokens that the statement half shares.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"
#include "text/jinja_parser.h"

namespace trivet::text::jinja {

/// Reads expressions from a token list; every method moves past what it read.
class ExprParser : public TokenStream {
 public:
  ExprParser(std::vector<Token> tokens, const KnownNames& names) : TokenStream(std::move(tokens)), names_(names) {}

  /// One expression; `conditions` allows an inline if.
  Result<ExprPtr> ParseExpression(bool conditions = true);
  /// One expression, or several with commas as a tuple.
  struct TupleOptions {
    bool conditions = true;
    bool parentheses = false;  // an empty tuple is one
  };
  Result<ExprPtr> ParseTuple(TupleOptions options);
  /// The filters that follow `base`, which is null for the text of a block.
  ///   first_inline   the first filter comes without its bar
  Result<ExprPtr> ParseFilters(ExprPtr base, bool first_inline);

  /// What uses of the names caller, kwargs and varargs are recorded in, for every macro being parsed.
  std::vector<MacroDefinition*>& macros() { return macros_; }

  /// Unknown filters and tests so far. Those that an if may skip are taken back; those inside a loop or macro are not.
  size_t unknown_count() const { return unknown_.size(); }
  void KeepUnknown(size_t from);
  void ForgiveUnknown(size_t from);
  Status CheckUnknown() const;

  /// Counts one level of nesting while it lives.
  class Nesting {
   public:
    explicit Nesting(ExprParser* parser) : parser_(parser) { ++parser_->depth_; }
    ~Nesting() { --parser_->depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExprParser* parser_;
  };
  /// Errors when nested deeper than kMaxTreeDepth.
  Status CheckNesting() const;

 private:
  using Level = Result<ExprPtr> (ExprParser::*)();
  struct BinaryOperator {
    std::string_view spelling;
    Op op;
  };
  struct Unknown {
    Error error;
    bool kept = false;
  };

  Result<ExprPtr> Make(ExprKind kind, int line, std::vector<ExprPtr> children) const;
  Result<ExprPtr> Finish(ExprPtr node) const;
  Result<ExprPtr> ParseLeftBinary(Level next, const std::vector<BinaryOperator>& operators);
  Result<ExprPtr> ParseLogical(Level next, std::string_view word, ExprKind kind);
  Result<ExprPtr> ParseCondition();
  Result<ExprPtr> ParseOr();
  Result<ExprPtr> ParseAnd();
  Result<ExprPtr> ParseNot();
  Result<ExprPtr> ParseCompare();
  Result<ExprPtr> ParseSum();
  Result<ExprPtr> ParseConcat();
  Result<ExprPtr> ParseProduct();
  Result<ExprPtr> ParsePower();
  Result<ExprPtr> ParseFilteredUnary();
  Result<ExprPtr> ParseUnary(bool filters);
  Result<ExprPtr> ParsePrimary();
  Result<ExprPtr> ParseNamePrimary();
  Result<ExprPtr> ParseBracketed(std::string_view close);
  Result<ExprPtr> ParsePostfix(ExprPtr node);
  Result<ExprPtr> ParseFilterExpr(ExprPtr node);
  Result<ExprPtr> ParseSubscript(ExprPtr node);
  Result<ExprPtr> ParseCall(ExprPtr node);
  Result<ExprPtr> ParseTest(ExprPtr node);
  Result<std::unique_ptr<ArgumentExprs>> ParseArguments();
  Status ParseArgument(ArgumentExprs* arguments);
  Result<std::string> ParseDottedName();
  bool AtTupleEnd() const;
  bool AtTestArgument() const;

  KnownNames names_;
  int depth_ = 0;
  std::vector<MacroDefinition*> macros_;
  std::vector<Unknown> unknown_;
};

}  // namespace trivet::text::jinja
