// SPDX-License-Identifier: Apache-2.0
// Added tokens: texts that become one token whatever surrounds them, found before anything else is done to the input.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/regex.h"

namespace trivet::text {

/// One entry of "added_tokens".
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  // not matched next to a word character
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
  bool normalized = false;   // matched in normalised text, by its normalised content
  bool special = false;      // left out by decoding on request
  std::string piece;         // what decoding takes: the content, normalised where matching is

  bool operator==(const AddedToken&) const = default;
};

/// Byte strings with a number each; finds the longest that begins at a position.
class PrefixTree {
 public:
  /// Adds `key`; an equal key that was there stays. An empty key is never found.
  void Add(std::string_view key, int32_t value);

  struct Hit {
    int32_t value;
    size_t length;
  };
  /// The longest key that `text` begins with at byte `at`, which is inside it, or nothing.
  std::optional<Hit> Longest(std::string_view text, size_t at) const;

 private:
  std::unordered_map<uint64_t, int32_t> children_;  // node << 8 | byte to node
  std::vector<int32_t> values_ = {-1};              // by node; -1 where no key ends
  std::bitset<256> first_;                          // bytes that a key begins with
};

/// The added tokens of one tokenizer. Const and thread-safe once loaded. Move-only.
class AddedTokens {
 public:
  /// Where tokens come from, and what they are checked against.
  struct Source {
    const Json& tokenizer;         // tokenizer.json
    const Json& tokenizer_config;  // tokenizer_config.json or null: its "added_tokens_decoder" may hold more tokens
    const Bpe& model;
    const Normalizer& normalizer;
  };
  /// Reads them.
  ///   what     the object's name for messages
  /// Errors:  kInvalid when an entry is malformed or its id is not the one that its content has in the vocabulary, or
  ///          the next free one.
  static Result<AddedTokens> FromJson(const Source& source, std::string_view what);

  /// A part of a text: an added token, or text between.
  struct Segment {
    size_t begin;
    size_t end;
    std::optional<TokenId> token;
  };
  enum class Pass { kRaw, kNormalized };
  /// Cuts `text`, valid UTF-8, at the tokens that are matched in raw or in normalised text; leftmost, then longest.
  ///   parse_special   false leaves special tokens as text
  std::vector<Segment> Split(std::string_view text, Pass pass, bool parse_special) const;

  /// The token of an id, or null.
  const AddedToken* OfId(TokenId id) const;
  /// The id of a content, or nothing.
  std::optional<TokenId> IdOf(std::string_view content) const;
  /// Largest id + 1, or 0.
  int64_t id_end() const { return id_end_; }

 private:
  Status Add(AddedToken token, const Bpe& model, std::string_view what);
  Status AddFromConfig(const Json& config, const Bpe& model, std::string_view what);
  bool IsInsideWord(std::string_view text, size_t begin, size_t end) const;
  bool IsWordCharacter(std::string_view character) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<TokenId, size_t> by_id_;           // index into tokens_
  std::unordered_map<std::string, size_t> by_content_;  // index into tokens_
  PrefixTree raw_;                                      // to index into tokens_
  PrefixTree normalized_;                               // likewise
  std::optional<Regex> word_;                           // set when a token is single_word
  int64_t id_end_ = 0;
};

}  // namespace trivet::text
