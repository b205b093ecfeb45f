// SPDX-License-Identifier: Apache-2.0
// Sets of characters, and the expressions that match one of them in UTF-8.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

namespace trivet::grammar {

/// A set of Unicode characters: code points up to U+10FFFF that are not surrogates.
class CharSet {
 public:
  CharSet() = default;
  /// The characters `first` to `last`.
  CharSet(uint32_t first, uint32_t last) { Add(first, last); }
  /// All of them.
  static CharSet All();

  void Add(uint32_t first, uint32_t last);
  void Add(const CharSet& other);
  CharSet Complement() const;
  CharSet Intersection(const CharSet& other) const;
  bool Contains(uint32_t character) const;
  bool empty() const { return ranges_.empty(); }
  /// Ascending, with gaps between them.
  const std::vector<std::pair<uint32_t, uint32_t>>& ranges() const { return ranges_; }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

/// The UTF-8 of one character of the set.
NodeId Utf8(const CharSet& set, GrammarBuilder* builder);

/// The characters of `text`, valid UTF-8.
std::vector<uint32_t> CharactersOf(std::string_view text);

}  // namespace trivet::grammar
