// SPDX-License-Identifier: Apache-2.0
// Request: what a caller asks for. Sequence: how far it has come. Plain data that only the scheduler changes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "sched/prefix_cache.h"
#include "sched/step_cost.h"
#include "sched/step_plan.h"

namespace trivet::sched {

/// Which positions produce logits.
enum class LogitsMode {
  kNone,   // none: fills the cache only, so max_new_tokens must be 0
  kLast,   // the last known token, in every step that reaches it
  kAll,    // every prompt position, once (scoring), then as kLast
  kDrawn,  // as kLast, but only a token is handed out, drawn by StepPlan::rules
};

/// A prompt to compute and to continue.
struct Request {
  SeqId id{};                   // never used before
  std::vector<TokenId> prompt;  // at least one token
  int32_t max_new_tokens = 0;
  int32_t priority = 0;  // smaller is served first; see kStepsPerPriority
  LogitsMode logits = LogitsMode::kLast;
};

/// What one number of priority is worth: a request goes before those of the next number that are not more than this
/// many steps older. So age counts, and whoever waits is served in the end, however many more urgent requests arrive.
inline constexpr int64_t kStepsPerPriority = 512;

/// Where a sequence stands.
enum class SequenceStatus {
  kWaiting,  // holds no pages and no state slot
  kRunning,  // holds both
  kDone,     // max_new_tokens reached; holds neither, and stays until Finish or Cancel
};

/// A request in progress. Its last `tokens.size() - computed` tokens are known and not yet in the cache.
struct Sequence {
  SeqId id{};
  int64_t due = 0;      // the step of its submission, plus its priority in steps; the smaller is served first,
  int64_t arrival = 0;  // then the one submitted first
  LogitsMode logits = LogitsMode::kLast;
  SequenceStatus status = SequenceStatus::kWaiting;
  int32_t prompt_tokens = 0;
  int32_t max_new_tokens = 0;
  int32_t computed = 0;              // tokens in the cache
  int32_t scored = 0;                // kAll: prompt positions whose logits were produced; survives preemption
  int32_t preemptions = 0;           // times it lost its pages
  std::vector<TokenId> tokens;       // prompt, then generated
  std::vector<int32_t> pages;        // page table: page i holds positions [i, i + 1) * kPageTokens
  std::vector<CachedPage*> prefix;   // its first pages, those that are known in the prefix cache
  std::vector<int32_t> state_slots;  // one while running
  std::vector<int32_t> snapshot_at;  // page borders of the prompt at which the state is to be kept, in any order
  CachedPage* decoded = nullptr;     // of `prefix`: the last at whose end the state was kept while it decoded
  int32_t cached_tokens = 0;         // prompt tokens taken from the prefix cache before it was first preempted
  // Its first `shared` tokens, whole pages, are also those of `leader`, which is served before it and computes them; it
  // waits until they are known. 0: it waits for no one.
  SeqId leader{};
  int32_t shared = 0;

  /// Known tokens, prompt and generated.
  int32_t length() const { return static_cast<int32_t>(tokens.size()); }
  /// Tokens it may come to, at most max_context of the scheduler.
  int32_t max_length() const { return prompt_tokens + max_new_tokens; }
  /// Generated tokens.
  int32_t generated() const { return length() - prompt_tokens; }
  /// Known tokens that are not in the cache.
  int32_t remaining() const { return length() - computed; }
  /// Whether the prompt is in the cache and one generated token is to be computed.
  bool decoding() const { return generated() > 0 && computed >= prompt_tokens && remaining() == 1; }
  /// Whether its last known token is to be followed by a sampled one.
  bool wants_token() const { return generated() < max_new_tokens; }
};

/// Pages that hold positions [0, tokens).
int32_t PagesFor(int64_t tokens);

/// Rows of logits of a span [computed, end) of `sequence`; they are the span's last tokens.
int32_t LogitsRows(const Sequence& sequence, int32_t end);

/// The next `count` tokens of `sequence`.
Stretch StretchOf(const Sequence& sequence, int32_t count);

}  // namespace trivet::sched
