// SPDX-License-Identifier: Apache-2.0
// The expressions of JSON. What they match is valid JSON with unpaired surrogates left out, and white space kept to
// what printers write: one space, or a line break with indentation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/char_set.h"
#include "grammar/grammar.h"

namespace trivet::grammar {

/// Makes JSON's expressions in a builder, which outlives it.
class JsonGrammar {
 public:
  explicit JsonGrammar(GrammarBuilder* builder) : builder_(*builder) {}

  /// White space that may stand between two tokens.
  NodeId Space();
  /// A string of `min` to `max` characters of any kind.
  NodeId String(int32_t min = 0, int32_t max = kNoLimit);
  /// A string without escapes that is none of `names`.
  NodeId OtherString(const std::vector<std::string>& names);
  /// One character of `set` as it stands in a string, escaped in one way where it must be.
  NodeId Character(const CharSet& set);
  /// A string around what Character made.
  NodeId Quoted(NodeId characters);
  /// Up to 20 digits before the point, and an exponent of up to two: every parser reads it as a finite number.
  NodeId Number();
  /// Without point and exponent, up to 20 digits; within the bounds that are given.
  NodeId Integer(std::optional<int64_t> min = {}, std::optional<int64_t> max = {});
  NodeId Boolean() { return builder_.Literals({"true", "false"}); }
  NodeId Null() { return builder_.Literal("null"); }
  NodeId AnyObject();
  NodeId AnyArray();
  NodeId AnyValue();
  /// `"name": value`, where the name is written as it is.
  NodeId Member(std::string_view name, NodeId value);
  /// `key: value`
  NodeId Member(NodeId key, NodeId value);
  /// "," and what follows it.
  NodeId Next(NodeId item);
  /// `open items close`, with white space inside; items may be empty.
  NodeId Enclosed(char open, NodeId items, char close);

 private:
  NodeId OneOf(std::string_view bytes);
  NodeId Range(char first, char last);
  NodeId Digits(int32_t min, int32_t max) { return builder_.Repeat(Range('0', '9'), min, max); }
  NodeId Between(std::string_view low, std::string_view high);
  NodeId Magnitude(std::string low, std::string high);

  GrammarBuilder& builder_;
  std::optional<NodeId> any_value_;
};

}  // namespace trivet::grammar
