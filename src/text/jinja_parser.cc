// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "base/str.h"
#include "text/jinja_expr_parser.h"

namespace trivet::text::jinja {
namespace {

// What the enclosing statements allow.
struct Place {
  bool in_loop = false;
};

class Parser {
 public:
  Parser(std::vector<Token> tokens, const KnownNames& names) : in_(std::move(tokens), names) {}

  Result<Body> Run() {
    Body body;
    TRY(ParseBody({}, &body));
    TRY(in_.CheckUnknown());
    return body;
  }

 private:
  using Words = std::initializer_list<std::string_view>;
  using StmtPtr = std::unique_ptr<Stmt>;

  StmtPtr New(StmtKind kind) const {
    auto node = std::make_unique<Stmt>();
    node->kind = kind;
    node->line = in_.Peek().line;
    return node;
  }

  // Statements up to a block that begins with one of `ends`, whose word is then the current token; up to the end of
  // the template when there are none.
  Status ParseBody(Words ends, Body* body) {
    const ExprParser::Nesting nesting(&in_);
    TRY(in_.CheckNesting());
    while (in_.Peek().kind != TokenKind::kEnd) {
      if (in_.Peek().kind == TokenKind::kData) {
        body->push_back(New(StmtKind::kData));
        body->back()->text = in_.Next().text;
      } else if (in_.Peek().kind == TokenKind::kPrintBegin) {
        in_.Next();
        body->push_back(New(StmtKind::kPrint));
        TRY_ASSIGN(body->back()->expr, in_.ParseTuple({}));
        TRY(in_.Expect(TokenKind::kPrintEnd));
      } else {
        in_.Next();
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view word) { return in_.AtName(word); })) return {};
        TRY_ASSIGN(StmtPtr node, ParseStatement());
        body->push_back(std::move(node));
        TRY(in_.Expect(TokenKind::kBlockEnd));
      }
    }
    if (ends.size() != 0) return in_.Unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
    return {};
  }

  // The body of a statement after its head: the end of the block, then statements up to one of `ends`.
  Status ParseBlock(Words ends, Body* body) {
    in_.SkipOperator(":");
    TRY(in_.Expect(TokenKind::kBlockEnd));
    return ParseBody(ends, body);
  }

  // As ParseBlock, with one end, which is moved past.
  Status ParseWholeBlock(std::string_view end, Body* body) {
    TRY(ParseBlock({end}, body));
    in_.Next();
    return {};
  }

  // As ParseWholeBlock, for a body that becomes a function: it is not inside any loop.
  Status ParseFunctionBlock(std::string_view end, Body* body) {
    const Place outer = place_;
    const size_t unknown = in_.unknown_count();
    place_ = Place{};
    const Status status = ParseWholeBlock(end, body);
    place_ = outer;
    in_.KeepUnknown(unknown);
    return status;
  }

  Result<StmtPtr> ParseStatement() {
    struct Entry {
      std::string_view word;
      Result<StmtPtr> (Parser::*parse)();
    };
    static constexpr Entry kEntries[] = {
        {"for", &Parser::ParseFor},           {"if", &Parser::ParseIf},       {"set", &Parser::ParseSet},
        {"macro", &Parser::ParseMacro},       {"call", &Parser::ParseCall},   {"filter", &Parser::ParseFilter},
        {"generation", &Parser::ParseMarked}, {"break", &Parser::ParseBreak}, {"continue", &Parser::ParseBreak}};
    for (const auto& [word, parse] : kEntries) {
      if (in_.AtName(word)) return (this->*parse)();
    }
    static constexpr std::string_view kOthers[] = {"extends", "include", "import", "from",      "block",
                                                   "with",    "print",   "do",     "autoescape"};
    for (const std::string_view word : kOthers) {
      if (!in_.AtName(word)) continue;
      return MakeError(
          Code::kUnsupported,
          fmt::format("chat template, line {}: expected a statement that chat templates have, found \"{}\"; "
                      "rewrite the template without it",
                      in_.Peek().line, word));
    }
    return in_.Unexpected("a statement");
  }

  Result<StmtPtr> ParseFor() {
    StmtPtr node = New(StmtKind::kFor);
    in_.Next();
    TRY_ASSIGN(node->target, ParseTargets(false));
    if (!in_.SkipName("in")) return in_.Unexpected("\"in\"");
    TRY_ASSIGN(node->expr, in_.ParseTuple({.conditions = false}));
    const size_t unknown = in_.unknown_count();
    if (in_.SkipName("if")) {
      TRY_ASSIGN(node->test, in_.ParseExpression());
    }
    if (in_.AtName("recursive")) {
      return MakeError(Code::kUnsupported, fmt::format("chat template, line {}: expected a loop without \"recursive\", "
                                                       "found one with it; use a macro",
                                                       node->line));
    }
    const Place outer = place_;
    place_.in_loop = true;
    const Status status = ParseBlock({"else", "endfor"}, &node->body);
    place_ = outer;
    TRY(status);
    if (in_.Next().text == "else") TRY(ParseWholeBlock("endfor", &node->other));
    in_.KeepUnknown(unknown);
    return node;
  }

  Result<StmtPtr> ParseIf() {
    StmtPtr node = New(StmtKind::kIf);
    const size_t unknown = in_.unknown_count();
    std::string word = in_.Next().text;
    while (word != "endif") {
      if (word == "else") {
        TRY(ParseWholeBlock("endif", &node->other));
        break;
      }
      TRY_ASSIGN(ExprPtr test, in_.ParseTuple({.conditions = false}));
      node->branches.emplace_back(std::move(test), Body());
      TRY(ParseBlock({"elif", "else", "endif"}, &node->branches.back().second));
      word = in_.Next().text;
    }
    in_.ForgiveUnknown(unknown);
    return node;
  }

  Result<StmtPtr> ParseSet() {
    StmtPtr node = New(StmtKind::kSet);
    in_.Next();
    TRY_ASSIGN(node->target, ParseTargets(true));
    if (in_.SkipOperator("=")) {
      TRY_ASSIGN(node->expr, in_.ParseTuple({}));
      return node;
    }
    node->kind = StmtKind::kSetBlock;
    if (node->target.what == Target::What::kTuple) return in_.Unexpected("\"=\"");
    TRY_ASSIGN(node->expr, in_.ParseFilters(nullptr, false));
    const size_t unknown = in_.unknown_count();
    TRY(ParseWholeBlock("endset", &node->body));
    in_.KeepUnknown(unknown);
    return node;
  }

  Result<StmtPtr> ParseMacro() {
    StmtPtr node = New(StmtKind::kMacro);
    in_.Next();
    node->macro = std::make_unique<MacroDefinition>();
    TRY_ASSIGN(const Target name, ParseName(false));
    node->macro->name = name.name;
    TRY(ParseParameters(node->macro.get()));
    in_.macros().push_back(node->macro.get());
    const Status status = ParseFunctionBlock("endmacro", &node->macro->body);
    in_.macros().pop_back();
    TRY(status);
    return node;
  }

  Result<StmtPtr> ParseCall() {
    StmtPtr node = New(StmtKind::kCall);
    in_.Next();
    node->macro = std::make_unique<MacroDefinition>();
    node->macro->name = "caller";
    if (in_.AtOperator("(")) TRY(ParseParameters(node->macro.get()));
    TRY_ASSIGN(node->expr, in_.ParseExpression());
    if (node->expr->kind != ExprKind::kCall) return in_.Unexpected("a call");
    in_.macros().push_back(node->macro.get());
    const Status status = ParseFunctionBlock("endcall", &node->macro->body);
    in_.macros().pop_back();
    TRY(status);
    return node;
  }

  Result<StmtPtr> ParseFilter() {
    StmtPtr node = New(StmtKind::kFilter);
    in_.Next();
    TRY_ASSIGN(node->expr, in_.ParseFilters(nullptr, true));
    const size_t unknown = in_.unknown_count();
    TRY(ParseWholeBlock("endfilter", &node->body));
    in_.KeepUnknown(unknown);
    return node;
  }

  Result<StmtPtr> ParseMarked() {
    StmtPtr node = New(StmtKind::kGeneration);
    in_.Next();
    TRY(ParseFunctionBlock("endgeneration", &node->body));
    return node;
  }

  Result<StmtPtr> ParseBreak() {
    if (!place_.in_loop) return in_.Unexpected("a loop around it");
    StmtPtr node = New(in_.AtName("break") ? StmtKind::kBreak : StmtKind::kContinue);
    in_.Next();
    return node;
  }

  // (a, b=1, c=2)
  Status ParseParameters(MacroDefinition* macro) {
    TRY(in_.ExpectOperator("("));
    while (!in_.AtOperator(")")) {
      TRY_ASSIGN(const Target parameter, ParseName(false));
      const auto& others = macro->parameters;
      if (std::find(others.begin(), others.end(), parameter.name) != others.end()) {
        return in_.Unexpected("parameters with different names");
      }
      if (std::ssize(macro->parameters) >= kMaxParameters) return in_.Unexpected("fewer parameters");
      macro->parameters.push_back(parameter.name);
      if (in_.SkipOperator("=")) {
        TRY_ASSIGN(ExprPtr value, in_.ParseExpression());
        macro->defaults.push_back(std::move(value));
      } else if (!macro->defaults.empty()) {
        return in_.Unexpected("a default for the parameter");
      }
      if (!in_.SkipOperator(",")) break;
    }
    return in_.ExpectOperator(")");
  }

  // One name that may be assigned to, or an attribute of one.
  Result<Target> ParseName(bool attributes) {
    static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    Target target;
    if (std::any_of(std::begin(kReserved), std::end(kReserved), [&](auto word) { return in_.AtName(word); })) {
      return in_.Unexpected("a name");
    }
    TRY_ASSIGN(target.name, in_.ExpectName());
    if (attributes && in_.SkipOperator(".")) {
      target.what = Target::What::kAttribute;
      TRY_ASSIGN(target.attribute, in_.ExpectName());
    }
    return target;
  }

  Result<Target> ParseTarget(bool attributes) {
    const ExprParser::Nesting nesting(&in_);
    TRY(in_.CheckNesting());
    const bool in_set = attributes;
    if (in_.AtName("loop") && (place_.in_loop || !in_set)) return in_.Unexpected("a name other than that of the loop");
    if (!in_.SkipOperator("(")) return ParseName(attributes);
    TRY_ASSIGN(Target target, ParseTargets(false));
    TRY(in_.ExpectOperator(")"));
    return target;
  }

  // Targets with commas between them; one alone is itself.
  Result<Target> ParseTargets(bool attributes) {
    Target all;
    all.what = Target::What::kTuple;
    do {
      const bool ends = in_.AtOperator(")") || in_.AtOperator("=") || in_.Peek().kind == TokenKind::kBlockEnd;
      if (ends && !all.items.empty()) return all;
      TRY_ASSIGN(Target target, ParseTarget(attributes));
      all.items.push_back(std::move(target));
    } while (in_.SkipOperator(","));
    if (all.items.size() == 1) {
      Target only = std::move(all.items[0]);
      return only;
    }
    return all;
  }

  ExprParser in_;
  Place place_;
};

}  // namespace

Result<Body> Parse(std::string_view source, const KnownNames& names) {
  TRY_ASSIGN(std::vector<Token> tokens, Lex(source));
  return Parser(std::move(tokens), names).Run();
}

}  // namespace trivet::text::jinja
