// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_trie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "grammar/json_grammar.h"
#include "tests/grammar/texts.h"

namespace trivet::grammar {
namespace {

bool Has(const TokenMask& mask, size_t id) { return (mask[id / 64] >> id % 64 & 1) != 0; }

TEST(TokenTrie, MasksAreWhatSingleTokensGive) {
  std::mt19937 random(1);
  std::vector<std::string> tokens = {"", "\"", "\"", "a\xC3", "\xA9\"", "{\"", "[[[[", "},", "\x00", "null", "-1"};
  for (int i = 0; i < 3000; ++i) {
    constexpr char kBytes[] = "{}[],:\"\\u0dE9.-etrufalsn \n\xC3\xA9\xE8\xAA\x9E\xF0\x9F\x98\x80";
    std::string token;
    for (uint32_t k = static_cast<uint32_t>(random()) % 6; k > 0; --k) token += kBytes[random() % (sizeof kBytes - 1)];
    tokens.push_back(token);
  }
  const TokenTrie trie(tokens);
  GrammarBuilder b;
  const NodeId root = JsonGrammar(&b).AnyValue();
  Language language(std::move(b), root);
  for (const char* text : {"", "[", "{\"a", "{\"a\": -1", "[\"\\u", "[\"\xC3", "[\"\\ud83d", "[[{\"k\": [tru", "[1]"}) {
    const TokenMask mask = trie.Allowed(language.After(text), &language.automaton());
    for (size_t id = 0; id < tokens.size(); ++id) {
      const bool possible = !tokens[id].empty() && language.Begins(text + tokens[id]);
      ASSERT_EQ(Has(mask, id), possible) << text << " + " << tokens[id];
    }
  }
}

TEST(TokenTrie, KnowsItsTokens) {
  const TokenTrie trie({"a", "", "bc"});
  EXPECT_EQ(trie.BytesOf(2), "bc");
  EXPECT_EQ(trie.BytesOf(1), "");
  EXPECT_EQ(trie.BytesOf(3), "");
  EXPECT_EQ(trie.BytesOf(-1), "");
  EXPECT_EQ(TokenTrie(std::vector<std::string>()).BytesOf(0), "");
}

}  // namespace
}  // namespace trivet::grammar
