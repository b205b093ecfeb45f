// SPDX-License-Identifier: Apache-2.0
// Grammars over bytes: a graph of expressions, some of which are named and may be recursive.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trivet::grammar {

using NodeId = int32_t;
using ByteSet = std::bitset<256>;

/// One expression.
struct Node {
  enum class Kind {
    kBytes,     // one byte of a set
    kLiteral,   // these bytes, at least one
    kSequence,  // the children one after the other; none: the empty text
    kChoice,    // one of the children; none: nothing at all
    kRepeat,    // the child `min` to `max` times
    kRule,      // the child; the only kind that may lie on a cycle's way back
  };
  Kind kind = Kind::kChoice;
  ByteSet bytes = {};
  std::string text = {};
  std::vector<NodeId> children = {};
  int32_t min = 0, max = 0;  // kNoLimit: any number
  bool nullable = false;     // can be the empty text; set by GrammarBuilder::Finish
};

inline constexpr int32_t kNoLimit = INT32_MAX;
/// Expressions of one grammar.
inline constexpr size_t kMaxNodes = 200000;

/// A grammar whose every beginning can be completed. Immutable.
struct Grammar {
  std::vector<Node> nodes;
  NodeId root = 0;
};

/// Makes expressions; equal ones are one node.
class GrammarBuilder {
 public:
  /// The empty text.
  NodeId Empty() { return Sequence({}); }
  /// No text, not even the empty one.
  NodeId Nothing() { return Choice({}); }
  NodeId Bytes(const ByteSet& bytes);
  NodeId Literal(std::string_view text);
  /// One of `texts`; their common beginnings are shared.
  NodeId Literals(std::vector<std::string> texts);
  NodeId Sequence(std::vector<NodeId> children);
  NodeId Choice(std::vector<NodeId> children);
  /// `child` `min` to `max` times; nothing when min > max.
  NodeId Repeat(NodeId child, int32_t min, int32_t max);
  NodeId Optional(NodeId child) { return Choice({Empty(), child}); }

  /// An expression that Define gives its meaning, later, once.
  NodeId Rule();
  void Define(NodeId rule, NodeId body);

  /// The grammar of `root`, without alternatives that no text satisfies.
  ///   what     its name in messages
  /// Errors:  kInvalid when no text at all satisfies it, or when an expression begins with itself; kUnsupported beyond
  ///          kMaxNodes.
  Result<Grammar> Finish(NodeId root, std::string_view what) &&;

 private:
  NodeId Add(Node node);
  NodeId LiteralRange(const std::vector<std::string>& texts, size_t begin, size_t end, size_t offset);

  std::vector<Node> nodes_;
  std::map<std::string, NodeId> known_;  // by content
  bool overfull_ = false;
};

}  // namespace trivet::grammar
