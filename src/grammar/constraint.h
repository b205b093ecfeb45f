// SPDX-License-Identifier: Apache-2.0
// A grammar on a vocabulary, and one answer's way through it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/ids.h"
#include "base/result.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "grammar/token_trie.h"

namespace trivet::grammar {

/// What answers under one grammar share: states and masks that were found before. One thread uses it and its matchers.
class Constraint {
 public:
  /// The vocabulary outlives it.
  ///   what     the grammar's name in messages
  /// Errors:  kUnsupported when there are too many ways to begin.
  static Result<std::shared_ptr<Constraint>> Make(Grammar grammar, const TokenTrie* vocabulary, std::string_view what);

 private:
  friend class Matcher;
  Constraint(Grammar grammar, const TokenTrie* vocabulary);
  void Forget();
  const TokenMask& MaskOf(StateId state);

  const Grammar grammar_;
  const TokenTrie& vocabulary_;
  std::unique_ptr<Automaton> automaton_;
  std::unordered_map<StateId, TokenMask> masks_;
  int64_t age_ = 0;  // how often states have been forgotten
  size_t most_states_;
  size_t tokens_ = 0;  // since then
};

/// States and masks that a constraint keeps before it forgets them all, which costs time and changes nothing; more
/// states while answers under way need them.
inline constexpr size_t kMaxStates = 100000, kMaxMasks = 256;

/// One answer under a constraint.
class Matcher {
 public:
  // shared_ptr: answers share a constraint, and the last one frees it
  explicit Matcher(std::shared_ptr<Constraint> constraint);

  /// The tokens that may come next, apart from those that end an answer; valid until the next call to any matcher of
  /// the constraint.
  const TokenMask& Allowed();
  /// Takes an allowed token.
  void Accept(TokenId token);
  /// Whether the answer may end here, and whether it can do nothing else.
  bool CanEnd();
  bool MustEnd();

 private:
  StateId Now();

  const std::shared_ptr<Constraint> constraint_;  // shared_ptr: see the constructor
  std::string text_;                              // so far
  StateId state_;
  int64_t age_;
};

}  // namespace trivet::grammar
