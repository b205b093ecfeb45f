// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace trivet::grammar {
namespace {

using Kind = Node::Kind;

// Who refers to each node.
std::vector<std::vector<NodeId>> Parents(const std::vector<Node>& nodes) {
  std::vector<std::vector<NodeId>> parents(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const NodeId child : nodes[i].children) parents[static_cast<size_t>(child)].push_back(static_cast<NodeId>(i));
  }
  return parents;
}

// The least set of nodes such that a node is in it when `holds` says so, given a count of its children in it.
std::vector<bool> LeastSet(const std::vector<Node>& nodes, const std::function<bool(const Node&, size_t)>& holds) {
  const std::vector<std::vector<NodeId>> parents = Parents(nodes);
  std::vector<bool> in(nodes.size());
  std::vector<size_t> counts(nodes.size());
  std::vector<size_t> fresh;
  const auto look = [&](size_t i) {
    if (in[i] || !holds(nodes[i], counts[i])) return;
    in[i] = true;
    fresh.push_back(i);
  };
  for (size_t i = 0; i < nodes.size(); ++i) look(i);
  while (!fresh.empty()) {
    const size_t node = fresh.back();
    fresh.pop_back();
    for (const NodeId parent : parents[node]) {
      ++counts[static_cast<size_t>(parent)];
      look(static_cast<size_t>(parent));
    }
  }
  return in;
}

// Some text satisfies it.
bool Productive(const Node& node, size_t productive_children) {
  switch (node.kind) {
    case Kind::kBytes:
    case Kind::kLiteral:
      return true;
    case Kind::kSequence:
      return productive_children == node.children.size();
    case Kind::kRepeat:
      return node.min == 0 || productive_children > 0;
    case Kind::kChoice:
    case Kind::kRule:
      return productive_children > 0;
  }
  return false;
}

bool Nullable(const Node& node, size_t nullable_children) {
  switch (node.kind) {
    case Kind::kBytes:
    case Kind::kLiteral:
      return false;
    case Kind::kSequence:
      return nullable_children == node.children.size();
    case Kind::kRepeat:
      return node.min == 0 || nullable_children > 0;
    case Kind::kChoice:
    case Kind::kRule:
      return nullable_children > 0;
  }
  return false;
}

// The children that a text of the node may begin with.
std::vector<NodeId> LeftChildren(const std::vector<Node>& nodes, const Node& node) {
  if (node.kind != Kind::kSequence) return node.children;
  std::vector<NodeId> left;
  for (const NodeId child : node.children) {
    left.push_back(child);
    if (!nodes[static_cast<size_t>(child)].nullable) break;
  }
  return left;
}

// Whether an expression can begin with itself, without a byte before.
bool LeftRecursive(const std::vector<Node>& nodes, NodeId root) {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(nodes.size());
  std::vector<std::pair<NodeId, std::vector<NodeId>>> path;  // a node and its children still to be seen
  const auto open = [&](NodeId id) {
    marks[static_cast<size_t>(id)] = Mark::kOpen;
    path.emplace_back(id, LeftChildren(nodes, nodes[static_cast<size_t>(id)]));
  };
  std::vector<NodeId> roots = {root};  // any node may come to be entered, not only from the left
  for (size_t i = 0; i < nodes.size(); ++i) roots.push_back(static_cast<NodeId>(i));
  for (const NodeId start : roots) {
    if (marks[static_cast<size_t>(start)] != Mark::kNew) continue;
    open(start);
    while (!path.empty()) {
      std::vector<NodeId>& left = path.back().second;
      if (left.empty()) {
        marks[static_cast<size_t>(path.back().first)] = Mark::kDone;
        path.pop_back();
        continue;
      }
      const NodeId next = left.back();
      left.pop_back();
      if (marks[static_cast<size_t>(next)] == Mark::kOpen) return true;
      if (marks[static_cast<size_t>(next)] == Mark::kNew) open(next);
    }
  }
  return false;
}

std::string KeyOf(const Node& node) {
  std::string key = fmt::format("{} {} {} ", static_cast<int>(node.kind), node.min, node.max);
  if (node.kind == Kind::kBytes) key += node.bytes.to_string();
  for (const NodeId child : node.children) key += fmt::format("{},", child);
  return key + node.text;
}

}  // namespace

NodeId GrammarBuilder::Add(Node node) {
  const auto [found, fresh] = known_.try_emplace(KeyOf(node), static_cast<NodeId>(nodes_.size()));
  if (!fresh) return found->second;
  if (nodes_.size() >= kMaxNodes) {
    overfull_ = true;
    known_.erase(found);
    return 0;
  }
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId GrammarBuilder::Bytes(const ByteSet& bytes) {
  if (bytes.none()) return Nothing();
  return Add({.kind = Kind::kBytes, .bytes = bytes});
}

NodeId GrammarBuilder::Literal(std::string_view text) {
  if (text.empty()) return Empty();
  return Add({.kind = Kind::kLiteral, .text = std::string(text)});
}

NodeId GrammarBuilder::Literals(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? Nothing() : LiteralRange(texts, 0, texts.size(), 0);
}

// Of sorted texts [begin, end), which agree in their first `offset` bytes, what follows those.
NodeId GrammarBuilder::LiteralRange(const std::vector<std::string>& texts, size_t begin, size_t end, size_t offset) {
  const std::string& first = texts[begin];
  const std::string& last = texts[end - 1];
  size_t shared = offset;
  while (shared < first.size() && first[shared] == last[shared]) ++shared;  // `last` is no shorter where they agree
  std::vector<NodeId> choices;
  size_t at = begin;
  if (first.size() == shared) choices.push_back(Empty()), ++at;
  while (at < end) {
    size_t group = at;
    while (group < end && texts[group][shared] == texts[at][shared]) ++group;
    choices.push_back(LiteralRange(texts, at, group, shared));
    at = group;
    if (choices.size() == 1 && at == end) return Literal(std::string_view(first).substr(offset));
  }
  const NodeId rest = Choice(std::move(choices));
  return Sequence({Literal(std::string_view(first).substr(offset, shared - offset)), rest});
}

NodeId GrammarBuilder::Sequence(std::vector<NodeId> children) {
  if (children.size() == 1) return children[0];
  return Add({.kind = Kind::kSequence, .children = std::move(children)});
}

NodeId GrammarBuilder::Choice(std::vector<NodeId> children) {
  std::sort(children.begin(), children.end());
  children.erase(std::unique(children.begin(), children.end()), children.end());
  if (children.size() == 1) return children[0];
  return Add({.kind = Kind::kChoice, .children = std::move(children)});
}

NodeId GrammarBuilder::Repeat(NodeId child, int32_t min, int32_t max) {
  if (min > max) return Nothing();
  if (max == 0) return Empty();
  if (min == 1 && max == 1) return child;
  return Add({.kind = Kind::kRepeat, .children = {child}, .min = min, .max = max});
}

NodeId GrammarBuilder::Rule() {
  if (nodes_.size() >= kMaxNodes) overfull_ = true;
  nodes_.push_back({.kind = Kind::kRule});
  return static_cast<NodeId>(nodes_.size() - 1);
}

void GrammarBuilder::Define(NodeId rule, NodeId body) {
  Node& node = nodes_[static_cast<size_t>(rule)];
  CHECK(node.kind == Kind::kRule && node.children.empty());
  node.children = {body};
}

Result<Grammar> GrammarBuilder::Finish(NodeId root, std::string_view what) && {
  if (overfull_) {
    return MakeError(Code::kUnsupported, fmt::format("{}: expected a grammar of at most {} expressions, found more; "
                                                     "make it smaller",
                                                     what, kMaxNodes));
  }
  const std::vector<bool> productive = LeastSet(nodes_, Productive);
  if (!productive[static_cast<size_t>(root)]) {
    return MakeError(
        Code::kInvalid,
        fmt::format("{}: expected something that can be satisfied, found that nothing does; correct it", what));
  }
  for (Node& node : nodes_) {
    const auto barren = [&](NodeId child) { return !productive[static_cast<size_t>(child)]; };
    if (node.kind == Kind::kChoice) std::erase_if(node.children, barren);
    if (node.kind == Kind::kRepeat && barren(node.children[0])) node = {.kind = Kind::kSequence};
  }
  const std::vector<bool> nullable = LeastSet(nodes_, Nullable);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].nullable = nullable[i];
    const bool repeats = nodes_[i].kind == Kind::kRepeat;
    if (repeats && nullable[static_cast<size_t>(nodes_[i].children[0])]) nodes_[i].min = 0;  // the same texts
  }
  // Nothing enters what is not productive, so it may be as it is.
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!productive[i]) nodes_[i] = {.kind = Kind::kChoice};
  }
  if (LeftRecursive(nodes_, root)) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected definitions that do not begin with themselves, found one "
                                 "that does; correct it",
                                 what));
  }
  return Grammar{std::move(nodes_), root};
}

}  // namespace trivet::grammar
