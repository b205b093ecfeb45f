// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_scope.h"

#include <iterator>

namespace trivet::text::jinja {

void SetVariable(Scope* scope, std::string_view name, Value value) {
  for (auto& [existing, slot] : scope->variables) {
    if (existing == name) {
      slot = std::move(value);
      return;
    }
  }
  scope->variables.emplace_back(name, std::move(value));
}

const Value* FindVariable(const Scope* scope, std::string_view name) {
  for (; scope != nullptr; scope = scope->parent) {
    for (const auto& [existing, value] : scope->variables) {
      if (existing == name) return &value;
    }
  }
  return nullptr;
}

int64_t CountVariables(const Scope* scope) {
  int64_t count = 0;
  for (; scope != nullptr; scope = scope->parent) count += std::ssize(scope->variables);
  return count;
}

void Capture(Scope* scope) {
  for (; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
}

Scopes::Local::Local(Scopes* scopes, Scope* parent) : scopes_(scopes), scope_(std::make_unique<Scope>()) {
  scope_->parent = parent;
}

Scopes::Local::~Local() {
  if (scope_->captured) scopes_->kept_.push_back(std::move(scope_));
}

}  // namespace trivet::text::jinja
