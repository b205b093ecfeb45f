// SPDX-License-Identifier: Apache-2.0
#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace trivet::sched {
namespace {

int64_t Number(SeqId id) { return static_cast<int64_t>(id); }

}  // namespace

Status Validate(const SchedulerLimits& limits) {
  const struct {
    const char* name;
    int32_t value;
    int32_t least;
  } rows[] = {
      {"max_sequences", limits.max_sequences, 1},
      // With one token and one row for each running sequence, nobody waits for another one's budget.
      {"max_step_tokens", limits.max_step_tokens, std::max(1, limits.max_sequences)},
      {"prefill_chunk", limits.prefill_chunk, 1},
      {"max_logits_rows", limits.max_logits_rows, std::max(1, limits.max_sequences)},
      {"pages", limits.pages, 1},
      {"max_context", limits.max_context, 1},
  };
  for (const auto& row : rows) {
    if (row.value >= row.least) continue;
    return MakeError(Code::kInvalid, fmt::format("scheduler limit {}: expected at least {}, found {}; raise it",
                                                 row.name, row.least, row.value));
  }
  return {};
}

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), pages_(limits.pages), slots_(limits.max_sequences) {
  const Status valid = Validate(limits);
  CHECK_MSG(valid.ok(), valid.error().message);
}

Status Scheduler::Submit(Request request) {
  const auto invalid = [&](const char* text) {
    return MakeError(Code::kInvalid, fmt::format("request {}: {}", Number(request.id), text));
  };
  if (request.prompt.empty()) return invalid("expected a prompt of at least 1 token, found none; give one");
  if (request.max_new_tokens < 0) return invalid("expected max_new_tokens of at least 0, found less; give another");
  if (request.logits == LogitsMode::kNone && request.max_new_tokens > 0) {
    return invalid("expected max_new_tokens 0 without logits, found more; ask for logits");
  }
  if (sequences_.contains(request.id)) return invalid("expected a new id, found one in use; give another");

  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t total = prompt + request.max_new_tokens;
  if (total > limits_.max_context) {
    return MakeError(Code::kCapacity,
                     fmt::format("request {}: expected at most {} tokens of context, found {} prompt + {} new = {}; "
                                 "shorten it, or raise --max-model-len",
                                 Number(request.id), limits_.max_context, prompt, request.max_new_tokens, total));
  }
  if (PagesFor(total) > limits_.pages) {
    return MakeError(
        Code::kCapacity,
        fmt::format("request {}: expected at most {} cache pages of {} tokens, found {} for {} prompt + {} "
                    "new tokens; shorten it, or raise --kv-tokens",
                    Number(request.id), limits_.pages, kPageTokens, PagesFor(total), prompt, request.max_new_tokens));
  }
  Sequence sequence;
  sequence.id = request.id;
  sequence.priority = request.priority;
  sequence.arrival = arrivals_++;
  sequence.logits = request.logits;
  sequence.prompt_tokens = static_cast<int32_t>(prompt);
  sequence.max_new_tokens = request.max_new_tokens;
  sequence.tokens = std::move(request.prompt);
  waiting_.insert(&sequences_.emplace(request.id, std::move(sequence)).first->second);
  return {};
}

StepPlan Scheduler::Next() {
  CHECK_MSG(!step_under_way_, fmt::format("step {} was not committed", steps_ - 1));
  StepPlan plan;
  const int64_t preemptions = preemptions_;
  ScheduleDecoders(&plan);
  for (Sequence* sequence : running_) {
    if (!sequence->decoding()) SchedulePrefill(sequence, &plan);
  }
  // A preempted sequence must not take back, in the same step, what it was preempted for.
  if (preemptions_ == preemptions) Admit(&plan);
  if (plan.spans.empty()) {
    CHECK_MSG(running_.empty() && waiting_.empty(), "sequences are left and none was scheduled");
    return plan;
  }
  plan.step = steps_++;
  step_under_way_ = true;
  return plan;
}

void Scheduler::ScheduleDecoders(StepPlan* plan) {
  // A copy, because preemption takes sequences out of running_. A victim never comes before the sequence that needs its
  // page, so it was not scheduled yet.
  const std::vector<Sequence*> order(running_.begin(), running_.end());
  for (Sequence* sequence : order) {
    if (sequence->status != SequenceStatus::kRunning || !sequence->decoding()) continue;
    if (GrowPages(sequence)) AddSpan(sequence, 1, plan);
  }
}

void Scheduler::SchedulePrefill(Sequence* sequence, StepPlan* plan) {
  int32_t count = std::min({sequence->remaining(), limits_.prefill_chunk, TokensLeft(*plan)});
  // Rows belong to the last tokens: each token less is one row less, as long as there are rows.
  count -= std::max(0, LogitsRows(*sequence, sequence->computed + count) - RowsLeft(*plan));
  if (count > 0) AddSpan(sequence, count, plan);
}

void Scheduler::Admit(StepPlan* plan) {
  // With a token and a row left, an admitted sequence gets a span at once.
  while (!waiting_.empty() && slots_.free() > 0 && TokensLeft(*plan) > 0 && RowsLeft(*plan) > 0) {
    Sequence* sequence = *waiting_.begin();
    // All known tokens get their pages now, so that a prompt once begun never waits for pages; and every sequence that
    // may still grow keeps one page in reserve, so that admission does not cause a preemption soon after.
    const int32_t need = PagesFor(sequence->length());
    const int64_t reserve = GrowingSequences() + (PagesFor(sequence->max_length()) > need ? 1 : 0);
    if (need + reserve > pages_.free()) return;
    CHECK(pages_.Allocate(need, &sequence->pages) && slots_.Allocate(1, &sequence->state_slots));
    sequence->status = SequenceStatus::kRunning;
    waiting_.erase(sequence);
    running_.insert(sequence);
    SchedulePrefill(sequence, plan);
  }
}

void Scheduler::AddSpan(Sequence* sequence, int32_t count, StepPlan* plan) {
  const int32_t end = sequence->computed + count;
  Span span;
  span.seq = sequence->id;
  span.state_slot = sequence->state_slots.front();
  span.start = sequence->computed;
  span.count = count;
  span.token_begin = static_cast<int32_t>(plan->tokens.size());
  span.page_begin = static_cast<int32_t>(plan->pages.size());
  span.page_count = PagesFor(end);
  span.logits_begin = plan->logits_rows;
  span.logits_count = LogitsRows(*sequence, end);
  plan->tokens.insert(plan->tokens.end(), sequence->tokens.begin() + span.start, sequence->tokens.begin() + end);
  plan->pages.insert(plan->pages.end(), sequence->pages.begin(), sequence->pages.begin() + span.page_count);
  plan->logits_rows += span.logits_count;
  plan->spans.push_back(span);
}

bool Scheduler::GrowPages(Sequence* sequence) {
  const auto have = [&] { return static_cast<int32_t>(sequence->pages.size()); };
  const int32_t need = PagesFor(sequence->length());
  while (have() < need && !pages_.Allocate(need - have(), &sequence->pages)) {
    Sequence* victim = *running_.rbegin();
    Preempt(victim);
    if (victim == sequence) return false;
  }
  return true;
}

void Scheduler::Preempt(Sequence* sequence) {
  CHECK_MSG(running_.size() > 1, "one sequence alone needs more than all pages");
  running_.erase(sequence);
  Release(sequence);
  sequence->status = SequenceStatus::kWaiting;
  sequence->computed = 0;
  ++sequence->preemptions;
  ++preemptions_;
  waiting_.insert(sequence);
}

void Scheduler::Release(Sequence* sequence) {
  pages_.Free(&sequence->pages);
  slots_.Free(&sequence->state_slots);
}

bool Scheduler::WantsToken(const Span& span) const {
  const Sequence* sequence = Find(span.seq);
  return sequence != nullptr && sequence->wants_token() && span.start + span.count == sequence->length();
}

void Scheduler::Commit(const StepPlan& plan, std::span<const SampledToken> sampled) {
  if (plan.spans.empty()) return;
  CHECK_MSG(step_under_way_ && plan.step == steps_ - 1, fmt::format("step {} of {}", plan.step, steps_));
  step_under_way_ = false;
  for (const Span& span : plan.spans) {
    const bool has_token = !sampled.empty() && sampled.front().seq == span.seq;
    const auto found = sequences_.find(span.seq);
    if (found != sequences_.end()) {
      Sequence& sequence = found->second;
      CHECK_MSG(sequence.status == SequenceStatus::kRunning && sequence.computed == span.start,
                fmt::format("sequence {} is at {}, span at {}", Number(span.seq), sequence.computed, span.start));
      CHECK_MSG(WantsToken(span) == has_token,
                fmt::format("sequence {}: token given: {}", Number(span.seq), has_token));
      sequence.computed += span.count;
      sequence.scored = std::max(sequence.scored, std::min(sequence.computed, sequence.prompt_tokens));
      if (has_token) sequence.tokens.push_back(sampled.front().token);
      // The last token needs no place in the cache, because nothing follows it.
      if (!sequence.wants_token() && (has_token || sequence.remaining() == 0)) {
        running_.erase(&sequence);
        Release(&sequence);
        sequence.status = SequenceStatus::kDone;
      }
    }
    if (has_token) sampled = sampled.subspan(1);
  }
  CHECK_MSG(sampled.empty(), fmt::format("{} tokens belong to no span, or are not in span order", sampled.size()));
}

void Scheduler::Finish(SeqId id) {
  CHECK_MSG(sequences_.contains(id), fmt::format("sequence {} is unknown", Number(id)));
  Cancel(id);
}

void Scheduler::Cancel(SeqId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  running_.erase(&found->second);
  waiting_.erase(&found->second);
  Release(&found->second);
  sequences_.erase(found);
}

const Sequence* Scheduler::Find(SeqId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

SchedulerCounts Scheduler::counts() const {
  const auto waiting = static_cast<int64_t>(waiting_.size());
  const auto running = static_cast<int64_t>(running_.size());
  const auto all = static_cast<int64_t>(sequences_.size());
  return {waiting, running, all - waiting - running, pages_.free(), preemptions_, steps_};
}

int32_t Scheduler::GrowingSequences() const {
  return static_cast<int32_t>(std::count_if(running_.begin(), running_.end(), [](const Sequence* sequence) {
    return PagesFor(sequence->max_length()) > static_cast<int32_t>(sequence->pages.size());
  }));
}

int32_t Scheduler::TokensLeft(const StepPlan& plan) const {
  return limits_.max_step_tokens - static_cast<int32_t>(plan.tokens.size());
}

int32_t Scheduler::RowsLeft(const StepPlan& plan) const { return limits_.max_logits_rows - plan.logits_rows; }

}  // namespace trivet::sched
