// SPDX-License-Identifier: Apache-2.0
// Scheduler: continuous batching. It decides which tokens of which sequences the next step computes, and owns pages and
// state slots by number. It knows no clock, no thread and no device: the same calls give the same plans.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "sched/block_pool.h"
#include "sched/limits.h"
#include "sched/prefix_cache.h"
#include "sched/sequence.h"
#include "sched/step_cost.h"
#include "sched/step_plan.h"

namespace trivet::sched {

/// The token sampled from the last row of a sequence's span.
struct SampledToken {
  SeqId seq{};
  TokenId token = 0;
};

/// How busy a scheduler is.
struct SchedulerCounts {
  int64_t waiting = 0;
  int64_t running = 0;
  int64_t done = 0;         // reached max_new_tokens, not yet finished by the caller
  int64_t free_pages = 0;   // not held by a sequence, whether or not their contents are known
  int64_t preemptions = 0;  // since the start
  int64_t steps = 0;        // since the start, steps without spans not counted
  // Prefix cache. Since the start: sequences that began with known pages, prompt tokens they had not to compute.
  int64_t prefix_hits = 0;
  int64_t prefix_hit_tokens = 0;
  int64_t prefix_evictions = 0;  // pages, since the start
  int64_t cached_pages = 0;      // known pages, held by sequences or not
  int64_t snapshots = 0;         // states kept

  /// Adds those of another scheduler.
  SchedulerCounts& operator+=(const SchedulerCounts& other);
};

/// Continuous batching over submitted sequences. One thread calls it.
class Scheduler {
 public:
  /// An idle scheduler; `limits` must be valid.
  explicit Scheduler(const SchedulerLimits& limits);
  Scheduler(const Scheduler&) = delete;  // its prefix cache knows where its pages are
  Scheduler& operator=(const Scheduler&) = delete;

  /// Queues a request.
  /// Errors:  kInvalid for an empty prompt, a negative max_new_tokens, an id in use, kNone with max_new_tokens > 0 or
  /// kDrawn
  ///          with 0;
  ///          kCapacity when prompt and max_new_tokens exceed max_context or all pages together.
  Status Submit(Request request);

  /// The next step; without spans when there is nothing to do. A step with spans must be committed before the next one.
  StepPlan Next();

  /// Whether the last row of `span` is to be sampled: it reaches the end of a sequence that wants one more token.
  bool WantsToken(const Span& span) const;

  /// Records that the step ran.
  ///   sampled  in span order, one for every span with WantsToken; tokens of sequences that are gone are ignored
  void Commit(const StepPlan& plan, std::span<const SampledToken> sampled);

  /// Removes a sequence that ended (a stop token, a stop string, or done); it must exist. Allowed at any time: a span
  /// of it that is under way is ignored by Commit.
  void Finish(SeqId id);

  /// As Finish, and an unknown id has no effect, since a client may leave after its sequence ended.
  void Cancel(SeqId id);

  /// The sequence, or null. Valid until the sequence is finished or cancelled.
  const Sequence* Find(SeqId id) const;

  /// The present counts.
  SchedulerCounts counts() const;
  /// The limits it was made with.
  const SchedulerLimits& limits() const { return limits_; }

 private:
  struct ServedFirst {
    bool operator()(const Sequence* a, const Sequence* b) const {
      return a->due != b->due ? a->due < b->due : a->arrival < b->arrival;
    }
  };
  using Queue = std::set<Sequence*, ServedFirst>;

  // Tokens of a prompt that the step is to compute.
  struct Prefill {
    Sequence* sequence;
    int32_t count;
  };
  // What a step being made still has for prompts.
  struct Left {
    int32_t tokens, rows;
    StepWork work;     // so far
    double most_work;  // it may come to
    bool Fits(const Stretch& stretch) const { return work.With(stretch).total() <= most_work; }
  };
  // A sequence served before another one, and the tokens that both begin with.
  struct Lead {
    Sequence* leader = nullptr;
    int32_t shared = 0;
  };

  void ScheduleDecoders(StepPlan* plan);
  Left LeftForPrompts(const StepPlan& plan) const;
  void SchedulePrefill(Sequence* sequence, Left* left, std::vector<Prefill>* prefills);
  static int32_t WithinWork(const Sequence& sequence, int32_t count, const Left& left);
  void Admit(Left* left, StepPlan* plan, std::vector<Prefill>* prefills);
  bool TakePages(Sequence* sequence);
  std::vector<CachedPage*> FindKnown(const Sequence& sequence) const;
  void DropPagesWithoutState(std::vector<CachedPage*>* known) const;
  void CatchUp(Sequence* sequence, StepPlan* plan);
  Lead FindLeader(const Sequence& sequence) const;
  void Follow(Sequence* sequence);
  bool Waits(Sequence* sequence);
  void BeginAfterPrefix(Sequence* sequence, StepPlan* plan);
  void AddSpan(Sequence* sequence, int32_t count, StepPlan* plan);
  bool GrowPages(Sequence* sequence);
  bool AllocatePages(int32_t count, std::vector<int32_t>* pages);
  void MakeKnown(Sequence* sequence);
  void GoOnWith(CachedPage* page, Sequence* sequence);
  void ReserveSnapshot(Sequence* sequence, int32_t end, StepPlan* plan);
  int64_t AnswersKept() const;
  void KeepSnapshot(Sequence* sequence);
  void Preempt(Sequence* sequence);
  void Release(Sequence* sequence);
  int32_t GrowingSequences() const;

  SchedulerLimits limits_;
  BlockPool pages_;
  BlockPool slots_;
  PrefixCache prefixes_;
  struct Save {
    SeqId seq{};
    int32_t end = 0;  // position, a page border
    int32_t slot = 0;
    bool decoding = false;  // after the prompt
  };
  std::vector<Save> saves_;  // of the step under way
  std::map<SeqId, Sequence> sequences_;
  Queue waiting_;
  Queue running_;
  int64_t arrivals_ = 0;
  int64_t preemptions_ = 0;
  int64_t steps_ = 0;
  int64_t prefix_hits_ = 0;
  int64_t prefix_hit_tokens_ = 0;
  bool step_under_way_ = false;
};

}  // namespace trivet::sched
