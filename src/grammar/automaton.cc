// SPDX-License-Identifier: Apache-2.0
#include "grammar/automaton.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace trivet::grammar {
namespace {

using Kind = Node::Kind;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

uint64_t Unsigned(int32_t value) { return static_cast<uint32_t>(value); }

}  // namespace

size_t Automaton::Hash::operator()(const Frame& frame) const {
  return Mix(Mix(Unsigned(frame.node) << 32 | Unsigned(frame.position), 1), Unsigned(frame.parent));
}

size_t Automaton::Hash::operator()(const std::vector<FrameId>& frames) const {
  uint64_t hash = frames.size();
  for (const FrameId frame : frames) hash = Mix(hash, Unsigned(frame));
  return hash;
}

size_t Automaton::Hash::operator()(const std::pair<int32_t, int32_t>& pair) const {
  return Mix(Unsigned(pair.first) << 32 | Unsigned(pair.second), 1);
}

Automaton::Automaton(const Grammar* grammar) : grammar_(*grammar) {
  FindClasses();
  frames_.push_back({-1, 0, -1});  // kDone
  Enter(grammar_.root, kDone);
  if (NodeOf(grammar_.root).nullable) Leave(kDone);
  std::vector<FrameId> first = Closure();
  start_ = first.empty() ? kDead : Intern(std::move(first));
}

// Two bytes are of one class when every set has both or neither, and no literal has one of them.
void Automaton::FindClasses() {
  std::map<std::pair<uint16_t, bool>, uint16_t> refined;
  const auto refine = [&](const ByteSet& set) {
    refined.clear();
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto next = static_cast<uint16_t>(refined.size());
      class_of_[byte] = refined.try_emplace({class_of_[byte], set[byte]}, next).first->second;
    }
    classes_ = refined.size();
  };
  ByteSet literal;
  std::unordered_set<ByteSet> seen;
  for (const Node& node : grammar_.nodes) {
    for (const char byte : node.text) literal.set(static_cast<uint8_t>(byte));
    if (node.kind == Kind::kBytes && seen.insert(node.bytes).second && classes_ < 256) refine(node.bytes);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (literal[byte]) refine(ByteSet().set(byte));
  }
}

Automaton::FrameId Automaton::Push(const Frame& frame) {
  const auto [found, fresh] = frame_ids_.try_emplace(frame, static_cast<FrameId>(frames_.size()));
  if (fresh) frames_.push_back(frame);
  return found->second;
}

StateId Automaton::Find(StateId state, uint8_t byte) {
  for (const FrameId id : StateOf(state)) {
    if (id == kDone) continue;
    const Frame frame = frames_[static_cast<size_t>(id)];
    const Node& node = NodeOf(frame.node);
    if (node.kind == Kind::kBytes) {
      if (node.bytes[byte]) Leave(frame.parent);
    } else if (static_cast<uint8_t>(node.text[static_cast<size_t>(frame.position)]) == byte) {
      const bool last = static_cast<size_t>(frame.position) + 1 == node.text.size();
      last ? Leave(frame.parent) : leaves_.push_back(Push({frame.node, frame.position + 1, frame.parent}));
    }
  }
  std::vector<FrameId> next = Closure();
  const StateId found = next.empty() ? kDead : Intern(std::move(next));
  transitions_[Transition(state, byte)] = found;
  return found;
}

StateId Automaton::Intern(std::vector<FrameId> frames) {
  const auto [found, fresh] = state_ids_.try_emplace(std::move(frames), static_cast<StateId>(states_.size()));
  if (fresh) {
    states_.push_back(&found->first);
    transitions_.resize(states_.size() * classes_, kUnknown);
  }
  return found->second;
}

void Automaton::Enter(NodeId node, FrameId parent) { to_enter_.emplace_back(node, parent); }
void Automaton::Leave(FrameId frame) { to_leave_.push_back(frame); }

// Children from `from` on, as far as those before them may be empty.
void Automaton::EnterSequence(NodeId id, size_t from, FrameId parent) {
  const std::vector<NodeId>& children = NodeOf(id).children;
  for (size_t i = from; i < children.size(); ++i) {
    const bool last = i + 1 == children.size();
    Enter(children[i], last ? parent : Push({id, static_cast<int32_t>(i), parent}));
    if (!NodeOf(children[i]).nullable) return;
  }
}

void Automaton::FollowEntry(NodeId id, FrameId parent) {
  const Node& node = NodeOf(id);
  switch (node.kind) {
    case Kind::kBytes:
    case Kind::kLiteral:
      leaves_.push_back(Push({id, 0, parent}));
      break;
    case Kind::kSequence:
      EnterSequence(id, 0, parent);
      break;
    case Kind::kRepeat:
      Enter(node.children[0], Push({id, 0, parent}));
      break;
    case Kind::kChoice:
    case Kind::kRule:
      for (const NodeId child : node.children) Enter(child, parent);
      break;
  }
}

void Automaton::FollowExit(FrameId id) {
  if (id == kDone) return leaves_.push_back(kDone);
  const Frame frame = frames_[static_cast<size_t>(id)];
  const Node& node = NodeOf(frame.node);
  if (node.kind == Kind::kSequence) {
    const auto next = static_cast<size_t>(frame.position) + 1;
    EnterSequence(frame.node, next, frame.parent);
    const auto rest = node.children.begin() + static_cast<std::ptrdiff_t>(next);
    if (std::all_of(rest, node.children.end(), [this](NodeId child) { return NodeOf(child).nullable; })) {
      Leave(frame.parent);
    }
    return;
  }
  CHECK(node.kind == Kind::kRepeat);
  const int32_t times = frame.position + 1;
  // Without a limit, counts matter up to the minimum.
  const int32_t counted = node.max == kNoLimit ? std::min(times, node.min) : times;
  if (times < node.max) Enter(node.children[0], Push({frame.node, counted, frame.parent}));
  if (times >= node.min) Leave(frame.parent);
}

// Follows what is to be entered and left down to single bytes. Entering finds only texts of at least one byte: whoever
// enters something that may be empty also goes on behind it, so that what is left has taken a byte.
std::vector<Automaton::FrameId> Automaton::Closure() {
  while (!to_enter_.empty() || !to_leave_.empty()) {
    if (entered_.size() + left_.size() > 16 * kMaxStacks) {  // see kMaxStacks
      to_enter_.clear(), to_leave_.clear(), leaves_.clear();
    } else if (!to_leave_.empty()) {
      const FrameId frame = to_leave_.back();
      to_leave_.pop_back();
      if (left_.insert(frame).second) FollowExit(frame);
    } else {
      const auto [node, parent] = to_enter_.back();
      to_enter_.pop_back();
      if (entered_.emplace(node, parent).second) FollowEntry(node, parent);
    }
  }
  entered_.clear();
  left_.clear();
  std::sort(leaves_.begin(), leaves_.end());
  leaves_.erase(std::unique(leaves_.begin(), leaves_.end()), leaves_.end());
  std::vector<FrameId> found = std::exchange(leaves_, {});
  if (found.size() > kMaxStacks) found.clear();
  return found;
}

}  // namespace trivet::grammar
