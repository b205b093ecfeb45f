// SPDX-License-Identifier: Apache-2.0
// shared_ptr: values of a template refer to each other as Python objects do; none of them is the owner.
#include "text/jinja_eval.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/str.h"
#include "text/jinja_expr_eval.h"
#include "text/jinja_ops.h"
#include "text/jinja_scope.h"

namespace trivet::text::jinja {
namespace {

enum class Flow { kNext, kBreak, kContinue };

// Ends a loop: what outlives it keeps neither the tree nor values.
class LoopEnd {
 public:
  explicit LoopEnd(LoopObject* loop) : loop_(loop) {}
  ~LoopEnd() {
    loop_->node = nullptr;
    loop_->scope = nullptr;
    loop_->changed.reset();
  }
  LoopEnd(const LoopEnd&) = delete;
  LoopEnd& operator=(const LoopEnd&) = delete;

 private:
  LoopObject* loop_;
};

class Evaluator : public Runtime {
 public:
  explicit Evaluator(Value context) : exprs_(this, std::move(context)) {}

  Result<std::string> Run(const Body& body) {
    std::string out;
    out_ = &out;
    const Scopes::Local root(&scopes_, nullptr);
    TRY(Execute(body, root.get()));
    return out;
  }

  Result<Value> CallMacro(const MacroObject& macro, CallArguments arguments) override {
    const Level level(this);
    TRY(CheckStack());
    TRY(Charge(4));
    const Scopes::Local local(&scopes_, macro.scope);
    const MacroDefinition& definition = *macro.definition;
    TRY(BindMacro(definition, std::move(arguments), local.get()));
    TRY_ASSIGN(std::string text, Capture(definition.body, local.get()));
    return Value::String(std::move(text));
  }

  Result<std::optional<Value>> TakeItem(LoopObject* loop) override {
    std::optional<Value> none;
    if (loop->node == nullptr) return none;
    if (!loop->sized && loop->length.has_value()) {
      return loop->rest_next < loop->rest.size() ? std::optional<Value>(loop->rest[loop->rest_next++]) : none;
    }
    while (loop->next < loop->items.size()) {
      const Value& item = loop->items[loop->next++];
      if (loop->node->test == nullptr) return std::optional<Value>(item);
      const Scopes::Local local(&scopes_, loop->scope);
      TRY(Assign(loop->node->target, item, local.get()));
      TRY_ASSIGN(const Value passes, exprs_.Evaluate(*loop->node->test, local.get()));
      if (Truth(passes)) return std::optional<Value>(item);
    }
    return none;
  }

 private:
  // Binds the arguments of a call to the parameters of a macro, in the order in which defaults may refer to others.
  Status BindMacro(const MacroDefinition& definition, CallArguments given, Scope* scope) {
    const auto& parameters = definition.parameters;
    const auto take = [&given](std::string_view name) {
      const auto found = std::find_if(given.keywords.begin(), given.keywords.end(),
                                      [&](const auto& keyword) { return keyword.first == name; });
      std::optional<Value> value;
      if (found == given.keywords.end()) return value;
      value = std::move(found->second);
      given.keywords.erase(found);
      return value;
    };
    std::vector<std::optional<Value>> values(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      values[i] = i < given.positional.size() ? std::move(given.positional[i]) : take(parameters[i]);
    }
    const size_t first_default = parameters.size() - definition.defaults.size();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!values[i].has_value() && i >= first_default) {
        TRY_ASSIGN(values[i], exprs_.Evaluate(*definition.defaults[i - first_default], scope));
      }
      SetVariable(scope, parameters[i],
                  values[i].value_or(Value::Undefined(fmt::format("\"{}\"", Quote(parameters[i])))));
    }
    const bool has_caller = std::find(parameters.begin(), parameters.end(), "caller") != parameters.end();
    if (definition.uses_caller && !has_caller) {
      SetVariable(scope, "caller", take("caller").value_or(Value::Undefined("\"caller\"")));
    }
    return BindRest(definition, std::move(given), scope);
  }

  // varargs and kwargs, or an error when there is something that the macro does not take.
  Status BindRest(const MacroDefinition& definition, CallArguments given, Scope* scope) {
    const size_t taken = std::min(definition.parameters.size(), given.positional.size());
    std::vector<Value> more(given.positional.begin() + static_cast<std::ptrdiff_t>(taken), given.positional.end());
    if (definition.uses_kwargs) {
      std::vector<std::pair<Value, Value>> entries;
      for (auto& [name, value] : given.keywords) entries.emplace_back(Value::String(name), std::move(value));
      TRY_ASSIGN(Value dict, MakeDict(std::move(entries)));
      SetVariable(scope, "kwargs", std::move(dict));
    } else if (!given.keywords.empty()) {
      return Invalid(fmt::format("{}: expected no argument \"{}\", found one; correct the call", Quote(definition.name),
                                 Quote(given.keywords[0].first)));
    }
    if (definition.uses_varargs) {
      TRY_ASSIGN(Value tuple, MakeTuple(std::move(more)));
      SetVariable(scope, "varargs", std::move(tuple));
    } else if (!more.empty()) {
      return Invalid(fmt::format("{}: expected at most {} arguments, found {}; correct the call",
                                 Quote(definition.name), definition.parameters.size(), given.positional.size()));
    }
    return {};
  }

  // The text that a body gives.
  Result<std::string> Capture(const Body& body, Scope* scope) {
    TRY_ASSIGN(auto captured, CaptureFlow(body, scope));
    return std::move(captured.first);
  }

  Result<std::pair<std::string, Flow>> CaptureFlow(const Body& body, Scope* scope) {
    std::string text;
    std::string* const outer = out_;
    out_ = &text;
    Result<Flow> flow = Execute(body, scope);
    out_ = outer;
    if (!flow.ok()) return flow.error();
    return std::pair<std::string, Flow>(std::move(text), *flow);
  }

  Status Print(std::string_view text) {
    TRY(Charge(std::ssize(text) / 64));
    out_->append(text);
    if (std::ssize(*out_) > kMaxOutput) {
      return Invalid(fmt::format("expected a rendering of at most {} bytes, found more; shorten it", kMaxOutput));
    }
    return {};
  }

  Status PrintValue(const Value& value) {
    if (value.Is(Kind::kString)) return Print(value.text());
    TRY_ASSIGN(const std::string text, TextOf(*this, value));
    return Print(text);
  }

  Status Assign(const Target& target, const Value& value, Scope* scope) {
    TRY(Charge(CountVariables(scope) / 32));
    if (target.what == Target::What::kName) {
      SetVariable(scope, target.name, value);
      return {};
    }
    if (target.what == Target::What::kAttribute) return AssignAttribute(target, value, scope);
    TRY_ASSIGN(const std::vector<Value> items, Iterate(*this, value));
    if (items.size() != target.items.size()) {
      return Invalid(fmt::format("expected {} values to assign, found {}; correct the left side", target.items.size(),
                                 items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) TRY(Assign(target.items[i], items[i], scope));
    return {};
  }

  Status AssignAttribute(const Target& target, const Value& value, Scope* scope) {
    const Value* space = FindVariable(scope, target.name);
    if (space == nullptr || !space->Is(Kind::kNamespace)) {
      return Invalid(fmt::format("expected \"{}\" to be a namespace, found another value; make it with namespace()",
                                 Quote(target.name)));
    }
    auto& attributes = space->space()->attributes;
    TRY(Charge(std::ssize(attributes) / 32));
    const auto found = std::find_if(attributes.begin(), attributes.end(),
                                    [&](const auto& attribute) { return attribute.first == target.attribute; });
    if (found == attributes.end()) {
      attributes.emplace_back(target.attribute, value);
    } else {
      found->second = value;
    }
    return {};
  }

  Result<Flow> Execute(const Body& body, Scope* scope) {
    for (const auto& statement : body) {
      TRY_ASSIGN(const Flow flow, ExecuteOne(*statement, scope));
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Result<Flow> ExecuteOne(const Stmt& node, Scope* scope) {
    const Level level(this);
    TRY(CheckStack());
    TRY(Charge(1));
    set_line(node.line);
    switch (node.kind) {
      case StmtKind::kFor:
        return ExecuteFor(node, scope);
      case StmtKind::kIf:
        return ExecuteIf(node, scope);
      case StmtKind::kSetBlock:
      case StmtKind::kFilter:
        return ExecuteBlock(node, scope);
      case StmtKind::kBreak:
        return Flow::kBreak;
      case StmtKind::kContinue:
        return Flow::kContinue;
      default:
        break;
    }
    TRY(ExecutePlain(node, scope));
    return Flow::kNext;
  }

  // The statements that never leave a loop.
  Status ExecutePlain(const Stmt& node, Scope* scope) {
    if (node.kind == StmtKind::kData) return Print(node.text);
    if (node.kind == StmtKind::kMacro) {
      SetVariable(scope, node.macro->name, MakeMacro(*node.macro, scope));
      return {};
    }
    if (node.kind == StmtKind::kCall) {
      const Value caller = MakeMacro(*node.macro, scope);
      TRY_ASSIGN(const Value value, exprs_.EvaluateCall(*node.expr, scope, &caller));
      return PrintValue(value);
    }
    if (node.kind == StmtKind::kGeneration) {
      const Scopes::Local local(&scopes_, scope);
      TRY_ASSIGN(const std::string text, Capture(node.body, local.get()));
      return Print(text);
    }
    TRY_ASSIGN(const Value value, exprs_.Evaluate(*node.expr, scope));
    return node.kind == StmtKind::kPrint ? PrintValue(value) : Assign(node.target, value, scope);
  }

  Value MakeMacro(const MacroDefinition& definition, Scope* scope) {
    jinja::Capture(scope);
    auto macro = std::make_shared<MacroObject>();
    macro->definition = &definition;
    macro->scope = scope;
    return Value::Heap(Kind::kMacro, std::move(macro));
  }

  Result<Flow> ExecuteIf(const Stmt& node, Scope* scope) {
    for (const auto& [test, body] : node.branches) {
      TRY_ASSIGN(const Value value, exprs_.Evaluate(*test, scope));
      if (Truth(value)) return Execute(body, scope);
    }
    return Execute(node.other, scope);
  }

  Result<Flow> ExecuteBlock(const Stmt& node, Scope* scope) {
    const Scopes::Local local(&scopes_, scope);
    TRY_ASSIGN(auto captured, CaptureFlow(node.body, local.get()));
    if (captured.second != Flow::kNext) return captured.second;
    TRY_ASSIGN(const Value value,
               exprs_.ApplyFilters(node.expr.get(), Value::String(std::move(captured.first)), scope));
    if (node.kind == StmtKind::kSetBlock) {
      TRY(Assign(node.target, value, scope));
    } else {
      TRY(PrintValue(value));
    }
    return Flow::kNext;
  }

  Result<Flow> ExecuteFor(const Stmt& node, Scope* scope) {
    TRY_ASSIGN(const Value iterable, exprs_.Evaluate(*node.expr, scope));
    auto loop = std::make_shared<LoopObject>();
    TRY(Contain({iterable}, loop.get()));
    TRY_ASSIGN(loop->items, Iterate(*this, iterable));
    loop->node = &node;
    loop->scope = scope;
    loop->sized = node.test == nullptr && !iterable.Is(Kind::kIterator);
    const LoopEnd end(loop.get());
    const Value loop_value = Value::Heap(Kind::kLoop, loop);
    while (true) {
      std::optional<Value> item = std::move(loop->after);
      loop->after.reset();
      if (!item.has_value()) {
        TRY_ASSIGN(item, TakeItem(loop.get()));
      }
      if (!item.has_value()) break;
      ++loop->index0;
      loop->before = std::move(loop->current);
      loop->current = item;
      TRY(Charge(2));
      const Scopes::Local local(&scopes_, scope);
      SetVariable(local.get(), "loop", loop_value);
      TRY(Assign(node.target, *item, local.get()));
      TRY_ASSIGN(const Flow flow, Execute(node.body, local.get()));
      if (flow == Flow::kBreak) break;
    }
    if (loop->index0 >= 0) return Flow::kNext;
    const Scopes::Local local(&scopes_, scope);
    return Execute(node.other, local.get());
  }

  ExprEvaluator exprs_;
  Scopes scopes_;
  std::string* out_ = nullptr;
};

}  // namespace

Result<std::string> Evaluate(const Body& body, const Json& context) {
  if (!context.is_object()) return Invalid("chat template: expected an object of variables, found another value");
  TRY_ASSIGN(Value variables, FromJson(context));
  Evaluator evaluator(std::move(variables));
  Result<std::string> text = evaluator.Run(body);
  if (text.ok() || evaluator.raised()) return text;
  Error error = text.error();
  error.message = fmt::format("chat template, line {}: {}", evaluator.line(), error.message);
  return error;
}

}  // namespace trivet::text::jinja
