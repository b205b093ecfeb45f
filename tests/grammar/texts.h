// SPDX-License-Identifier: Apache-2.0
// What a grammar says of texts, for its tests.
#pragma once

#include <string>
#include <string_view>

#include "base/check.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"

namespace trivet::grammar {

/// A grammar and its automaton.
class Language {
 public:
  Language(GrammarBuilder builder, NodeId root) : grammar_(Made(std::move(builder), root)), automaton_(&grammar_) {}

  /// The state behind a text, or kDead.
  StateId After(std::string_view text) {
    StateId state = automaton_.start();
    for (size_t i = 0; i < text.size() && state != kDead; ++i) {
      state = automaton_.Step(state, static_cast<uint8_t>(text[i]));
    }
    return state;
  }
  /// Whether the text is in the language.
  bool Has(std::string_view text) {
    const StateId state = After(text);
    return state != kDead && automaton_.CanEnd(state);
  }
  /// Whether a text of the language begins so.
  bool Begins(std::string_view text) { return After(text) != kDead; }

  Automaton& automaton() { return automaton_; }
  const Grammar& grammar() const { return grammar_; }

 private:
  static Grammar Made(GrammarBuilder builder, NodeId root) {
    auto grammar = std::move(builder).Finish(root, "grammar");
    CHECK_MSG(grammar.ok(), grammar.error().message);
    return std::move(grammar).value();
  }

  const Grammar grammar_;
  Automaton automaton_;
};

}  // namespace trivet::grammar
