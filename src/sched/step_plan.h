// SPDX-License-Identifier: Apache-2.0
// StepPlan: everything the ranks need to know about one step, as flat data. Every rank receives the same bytes; what
// depends on time, load or randomness has been decided before it is made.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/draw_rule.h"
#include "base/ids.h"
#include "base/result.h"

namespace trivet::sched {

/// Tokens of one KV page, and of one attention block: a page is visited whole, so the two are one number.
inline constexpr int32_t kPageTokens = 64;

/// The consecutive tokens of one sequence that a step computes.
struct Span {
  SeqId seq{};
  int32_t state_slot = 0;    // delta-net state slot of the sequence
  int32_t start = 0;         // absolute position of the first token; 0 means: the slot starts from zero state
  int32_t count = 0;         // tokens in this step, at least 1
  int32_t token_begin = 0;   // index of the first token in StepPlan::tokens
  int32_t page_begin = 0;    // index of the first entry in StepPlan::pages
  int32_t page_count = 0;    // pages that hold positions [0, start + count)
  int32_t logits_begin = 0;  // first row of this span in the step's logits
  int32_t logits_count = 0;  // the span's last logits_count tokens produce logits that are handed out
};

/// A copy of one slot's recurrent states, of all layers, to another slot.
struct StateCopy {
  int32_t from = 0;
  int32_t to = 0;
};

/// One step over all its sequences.
struct StepPlan {
  int64_t step = 0;
  std::vector<TokenId> tokens;      // [T]
  std::vector<Span> spans;          // [S], token ranges ascending and gap-free
  std::vector<int32_t> pages;       // page ids of all spans
  int32_t logits_rows = 0;          // sum of logits_count
  std::vector<StateCopy> restores;  // before the step, in this order
  std::vector<StateCopy> saves;     // after it, in this order
  // Tokens of which nothing is wanted but one that follows them, drawn where the logits are: the last of spans without
  // logits, ascending.
  std::vector<int32_t> drawn;
  std::vector<DrawRule> rules;  // by which it is drawn, for each of `drawn`

  /// Rows that the head computes.
  int32_t head_rows() const { return logits_rows + static_cast<int32_t>(drawn.size()); }
  /// The index in `drawn` of the span's last token, or nothing.
  std::optional<size_t> DrawnOf(const Span& span) const;

  /// Flat bytes for broadcasting.
  std::vector<std::byte> Serialize() const;
  /// The inverse.  Errors: kInvalid when sizes contradict each other.
  static Result<StepPlan> Deserialize(std::span<const std::byte> bytes);
};

}  // namespace trivet::sched
