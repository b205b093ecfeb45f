// SPDX-License-Identifier: Apache-2.0
// The byte strings of a vocabulary as a tree, laid out in the order in which it is walked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "grammar/automaton.h"

namespace trivet::grammar {

/// One bit a token id; beyond the last word, forbidden.
using TokenMask = std::vector<uint64_t>;

/// Immutable; for any thread.
class TokenTrie {
 public:
  /// `bytes` of every token id; an empty string, such as a special token's, is never matched.
  explicit TokenTrie(std::vector<std::string> bytes);

  /// The bytes of a token; empty for one that is never matched and for ids beyond the vocabulary.
  const std::string& BytesOf(TokenId token) const;
  /// The tokens whose bytes can follow `state`, of which the automaton learns the states behind them.
  TokenMask Allowed(StateId state, Automaton* automaton) const;

 private:
  struct Branch {
    uint8_t byte;
    uint16_t depth;           // of the byte in its token
    int32_t end;              // the first branch that does not lie below
    int32_t token, next_end;  // order_[token, next_end) end with this byte
  };

  std::vector<std::string> bytes_;
  std::vector<TokenId> order_;    // by bytes
  std::vector<Branch> branches_;  // depth first
  size_t depth_ = 0;              // of the deepest
};

}  // namespace trivet::grammar
