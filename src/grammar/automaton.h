// SPDX-License-Identifier: Apache-2.0
// The pushdown automaton of a grammar, made deterministic as it is used: a state is the set of all stacks that the
// bytes so far may have led to, and is known by a number.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/grammar.h"

namespace trivet::grammar {

using StateId = int32_t;
/// No text continues here.
inline constexpr StateId kDead = -1;

/// States and transitions, found when they are first asked for. One thread uses it.
class Automaton {
 public:
  /// The grammar outlives it.
  explicit Automaton(const Grammar* grammar);

  /// The state before the first byte; kDead when there are too many ways to begin.
  StateId start() const { return start_; }
  /// The state after one more byte, or kDead.
  StateId Step(StateId state, uint8_t byte) {
    const StateId next = transitions_[Transition(state, byte)];
    return next == kUnknown ? Find(state, byte) : next;
  }
  /// Whether the text may end here.
  bool CanEnd(StateId state) const { return StateOf(state)[0] == kDone; }
  /// Whether it can do nothing else.
  bool MustEnd(StateId state) const { return StateOf(state).size() == 1 && CanEnd(state); }
  /// States found so far.
  size_t size() const { return states_.size(); }

 private:
  // A place in the grammar with what is to be done after it.
  using FrameId = int32_t;
  struct Frame {
    NodeId node;
    int32_t position;  // kSequence: of the child; kLiteral: of the byte; kRepeat: times done
    FrameId parent;
    bool operator==(const Frame&) const = default;
  };
  struct Hash {
    size_t operator()(const Frame& frame) const;
    size_t operator()(const std::vector<FrameId>& frames) const;
    size_t operator()(const std::pair<int32_t, int32_t>& pair) const;
  };
  static constexpr FrameId kDone = 0;
  static constexpr int32_t kUnknown = -2;

  size_t Transition(StateId state, uint8_t byte) const {
    return static_cast<size_t>(state) * classes_ + class_of_[byte];
  }
  const std::vector<FrameId>& StateOf(StateId state) const { return *states_[static_cast<size_t>(state)]; }
  const Node& NodeOf(NodeId id) const { return grammar_.nodes[static_cast<size_t>(id)]; }
  void FindClasses();
  FrameId Push(const Frame& frame);
  StateId Find(StateId state, uint8_t byte);
  StateId Intern(std::vector<FrameId> frames);
  void Enter(NodeId node, FrameId parent);
  void EnterSequence(NodeId node, size_t from, FrameId parent);
  void Leave(FrameId frame);
  void FollowEntry(NodeId node, FrameId parent);
  void FollowExit(FrameId frame);
  std::vector<FrameId> Closure();

  const Grammar& grammar_;
  std::array<uint16_t, 256> class_of_ = {};  // bytes that no expression tells apart
  size_t classes_ = 1;
  StateId start_ = 0;
  std::vector<Frame> frames_;
  std::unordered_map<Frame, FrameId, Hash> frame_ids_;
  std::unordered_map<std::vector<FrameId>, StateId, Hash> state_ids_;
  std::vector<const std::vector<FrameId>*> states_;  // keys of state_ids_, each in ascending order
  std::vector<int32_t> transitions_;                 // [state][class]

  // Of the closure in progress.
  std::vector<std::pair<NodeId, FrameId>> to_enter_;
  std::vector<FrameId> to_leave_;
  std::unordered_set<std::pair<int32_t, int32_t>, Hash> entered_;
  std::unordered_set<FrameId> left_;
  std::vector<FrameId> leaves_;
};

/// Stacks of one state. A text that would have more ways to be read does not go on.
inline constexpr size_t kMaxStacks = 4096;

}  // namespace trivet::grammar
