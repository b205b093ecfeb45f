// SPDX-License-Identifier: Apache-2.0
#include "grammar/automaton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "grammar/json_grammar.h"
#include "tests/grammar/texts.h"

namespace trivet::grammar {
namespace {

TEST(Automaton, CountsRepetitions) {
  GrammarBuilder b;
  const NodeId root = b.Sequence({b.Repeat(b.Literal("ab"), 2, 4), b.Repeat(b.Literal("c"), 3, kNoLimit)});
  Language language(std::move(b), root);
  EXPECT_TRUE(language.Has("ababccc"));
  EXPECT_TRUE(language.Has("ababababcccccccc"));
  EXPECT_FALSE(language.Has("abccc"));
  EXPECT_FALSE(language.Begins("ababababa"));
  EXPECT_FALSE(language.Has("ababcc"));
}

TEST(Automaton, RepeatsWhatMayBeEmpty) {
  GrammarBuilder b;
  const NodeId inner = b.Repeat(b.Optional(b.Literal("a")), 3, 5);
  const NodeId root = b.Sequence({b.Repeat(inner, 2, kNoLimit), b.Literal("!")});
  Language language(std::move(b), root);
  EXPECT_TRUE(language.Has("!"));
  EXPECT_TRUE(language.Has("aaaaaaaaaaaaaaaa!"));
}

TEST(Automaton, KnowsWhenATextMustEnd) {
  GrammarBuilder b;
  const NodeId root = b.Literals({"yes", "yes!", "no"});
  Language language(std::move(b), root);
  Automaton& automaton = language.automaton();
  EXPECT_FALSE(automaton.CanEnd(language.After("ye")));
  EXPECT_TRUE(automaton.CanEnd(language.After("yes")));
  EXPECT_FALSE(automaton.MustEnd(language.After("yes")));
  EXPECT_TRUE(automaton.MustEnd(language.After("yes!")));
  EXPECT_TRUE(automaton.MustEnd(language.After("no")));
}

TEST(Automaton, NestsWithoutALimit) {
  GrammarBuilder b;
  const NodeId root = JsonGrammar(&b).AnyValue();
  Language language(std::move(b), root);
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  EXPECT_TRUE(language.Has(deep));
  EXPECT_FALSE(language.Begins(deep + "]"));
}

TEST(Automaton, StatesAreFew) {
  GrammarBuilder b;
  const NodeId root = JsonGrammar(&b).AnyValue();
  Language language(std::move(b), root);
  std::string text = "[";
  for (int i = 0; i < 1000; ++i) text += "{\"key\": [1, 2.5e3, \"a\\u00e9 語\"]}, ";
  EXPECT_TRUE(language.Begins(text));
  EXPECT_LT(language.automaton().size(), 100U);
}

TEST(Automaton, GivesUpOnTooManyWays) {
  GrammarBuilder b;
  // Every level is one of many that differ in their last byte alone: as many stacks as ways to choose.
  const NodeId rule = b.Rule();
  std::vector<NodeId> choices = {b.Literal("x")};
  for (const char* last : {"0", "1", "2", "3"}) choices.push_back(b.Sequence({b.Literal("("), rule, b.Literal(last)}));
  b.Define(rule, b.Choice(choices));
  Language language(std::move(b), rule);
  EXPECT_TRUE(language.Has("((x03"));
  EXPECT_FALSE(language.Begins(std::string(50, '(')));
}

TEST(Automaton, EveryBeginningOfAFiniteGrammarEnds) {
  GrammarBuilder b;
  JsonGrammar json(&b);
  const NodeId root = b.Sequence({json.Integer(-1203, 98765), b.Literal("/"), json.String(2, 3), b.Literal("/"),
                                  json.OtherString({"ab", "abc", "語"}), json.Number()});
  Language language(std::move(b), root);
  Automaton& automaton = language.automaton();
  // All states, and then those from which an end is reached.
  std::vector<std::set<StateId>> before;
  for (StateId state = 0; state < static_cast<StateId>(automaton.size()); ++state) {
    for (int byte = 0; byte < 256; ++byte) {
      const StateId next = automaton.Step(state, static_cast<uint8_t>(byte));
      if (next == kDead) continue;
      before.resize(automaton.size());
      before[static_cast<size_t>(next)].insert(state);
    }
  }
  std::set<StateId> live;
  std::vector<StateId> fresh;
  for (StateId state = 0; state < static_cast<StateId>(automaton.size()); ++state) {
    if (automaton.CanEnd(state) && live.insert(state).second) fresh.push_back(state);
  }
  while (!fresh.empty()) {
    const StateId state = fresh.back();
    fresh.pop_back();
    for (const StateId one : before[static_cast<size_t>(state)]) {
      if (live.insert(one).second) fresh.push_back(one);
    }
  }
  EXPECT_GT(automaton.size(), 50U);
  EXPECT_EQ(live.size(), automaton.size());
}

}  // namespace
}  // namespace trivet::grammar
