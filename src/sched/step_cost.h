// SPDX-License-Identifier: Apache-2.0
// How much work a step is, by what it computes of whom: arithmetic on counts, with numbers of the model and of the kind
// of machine. It knows no clock, so that the same requests are cut into the same steps wherever and whenever they run.
#pragma once

#include <cstdint>
#include <vector>

namespace trivet::sched {

/// Attention of all layers with one window.
struct AttentionCost {
  int64_t window = 0;    // keys that a token sees, itself included; 0: all
  double key_work = 0;   // of a token and a key that it sees.  Units: multiply-adds
  double key_bytes = 0;  // of a key and its value
};

/// What a step's work is made of. As it is, a token costs what every other one does, and nothing else costs anything.
/// Units: multiply-adds, and bytes that come from memory.
struct StepCost {
  double token_work = 1;    // of a token's products
  double logits_work = 0;   // of a row of logits
  double weight_bytes = 0;  // that every step reads: all weights but routed experts
  double expert_bytes = 0;  // of all routed experts
  double routed_share = 0;  // of them that one token takes
  double state_work = 0;    // of a token's recurrences
  double state_bytes = 0;   // of a sequence's recurrent states
  std::vector<AttentionCost> attention;
  double work_per_byte = 0;  // multiply-adds that the machine makes in the time in which it reads a byte
};

/// Consecutive tokens of one sequence.
struct Stretch {
  int64_t start = 0;  // position of the first
  int64_t count = 0;
  int64_t logits = 0;  // of them have a row of logits
};

/// The work of a step that grows by one stretch after the other. Products of all tokens are made together, attention
/// and recurrences for each sequence; each of them takes as long as its arithmetic or its memory, whichever is more.
class StepWork {
 public:
  /// Of no tokens; `cost` outlives it.
  explicit StepWork(const StepCost* cost) : cost_(cost) {}
  /// With more tokens, never less than without.
  StepWork With(const Stretch& stretch) const;
  /// Units: multiply-adds, or as long as these take.
  double total() const;

 private:
  const StepCost* cost_;
  int64_t tokens_ = 0, logits_ = 0;
  double sequences_ = 0;  // attention and recurrences
};

/// How much longer than with its decoders alone a step may get by prompts, by this model. Three times is the aim; the
/// rest is left to what the model does not see.
inline constexpr double kMostStretch = 2;

}  // namespace trivet::sched
