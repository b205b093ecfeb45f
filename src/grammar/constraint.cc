// SPDX-License-Identifier: Apache-2.0
#include "grammar/constraint.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace trivet::grammar {

Constraint::Constraint(Grammar grammar, const TokenTrie* vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(*vocabulary),
      automaton_(std::make_unique<Automaton>(&grammar_)),
      most_states_(kMaxStates) {}

// shared_ptr: see Matcher
Result<std::shared_ptr<Constraint>> Constraint::Make(Grammar grammar, const TokenTrie* vocabulary,
                                                     std::string_view what) {
  std::shared_ptr<Constraint> made(new Constraint(std::move(grammar), vocabulary));
  if (made->automaton_->start() != kDead) return made;
  return MakeError(Code::kUnsupported,
                   fmt::format("{}: expected at most {} ways to begin, found more; make it smaller", what, kMaxStacks));
}

void Constraint::Forget() {
  automaton_ = std::make_unique<Automaton>(&grammar_);
  masks_.clear();
  ++age_;
  // Forgetting often means that answers under way find the same states again.
  most_states_ = tokens_ < kMaxStates / 10 ? 2 * most_states_ : kMaxStates;
  tokens_ = 0;
}

const TokenMask& Constraint::MaskOf(StateId state) {
  if (const auto found = masks_.find(state); found != masks_.end()) return found->second;
  if (masks_.size() >= kMaxMasks) masks_.clear();
  return masks_.emplace(state, vocabulary_.Allowed(state, automaton_.get())).first->second;
}

Matcher::Matcher(std::shared_ptr<Constraint> constraint)  // shared_ptr: see the header
    : constraint_(std::move(constraint)), state_(constraint_->automaton_->start()), age_(constraint_->age_) {}

// The state, found anew when states have been forgotten.
StateId Matcher::Now() {
  if (constraint_->automaton_->size() > constraint_->most_states_) constraint_->Forget();
  if (age_ == constraint_->age_) return state_;
  Automaton& automaton = *constraint_->automaton_;
  state_ = automaton.start();
  for (const char byte : text_) state_ = automaton.Step(state_, static_cast<uint8_t>(byte));
  age_ = constraint_->age_;
  return state_;
}

const TokenMask& Matcher::Allowed() { return constraint_->MaskOf(Now()); }

void Matcher::Accept(TokenId token) {
  StateId state = Now();
  ++constraint_->tokens_;
  const std::string& bytes = constraint_->vocabulary_.BytesOf(token);
  for (const char byte : bytes) {
    state = constraint_->automaton_->Step(state, static_cast<uint8_t>(byte));
    CHECK_MSG(state != kDead, fmt::format("token {} is not allowed here", token));
  }
  text_ += bytes;
  state_ = state;
}

bool Matcher::CanEnd() { return constraint_->automaton_->CanEnd(Now()); }
bool Matcher::MustEnd() { return constraint_->automaton_->MustEnd(Now()); }

}  // namespace trivet::grammar
