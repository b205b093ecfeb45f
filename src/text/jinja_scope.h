// SPDX-License-Identifier: Apache-2.0
// Variables: a chain of scopes, the context of the rendering, and the global functions.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_runtime.h"

namespace trivet::text::jinja {

/// Variables of one loop turn, macro call or block. Names live in the syntax tree.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;
  bool captured = false;  // a macro refers to it
};

/// Sets a variable of this very scope.
void SetVariable(Scope* scope, std::string_view name, Value value);
/// The variable of this name in the nearest scope that has it, or null.
const Value* FindVariable(const Scope* scope, std::string_view name);
/// How many variables a search from `scope` on may look at.
int64_t CountVariables(const Scope* scope);
/// Marks `scope` and all around it as needed for as long as the rendering lasts.
void Capture(Scope* scope);

/// Owns the scopes of one rendering.
class Scopes {
 public:
  /// A scope that ends with this object, unless a macro captured it.
  class Local {
   public:
    Local(Scopes* scopes, Scope* parent);
    ~Local();
    Local(const Local&) = delete;
    Local& operator=(const Local&) = delete;
    Scope* get() const { return scope_.get(); }

   private:
    Scopes* scopes_;
    std::unique_ptr<Scope> scope_;
  };

 private:
  std::vector<std::unique_ptr<Scope>> kept_;
};

}  // namespace trivet::text::jinja
