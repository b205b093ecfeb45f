// SPDX-License-Identifier: Apache-2.0
#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace trivet::sched {
namespace {

int64_t Number(SeqId id) { return static_cast<int64_t>(id); }

// At most `count` tokens of the prompt: a state can be kept where a step leaves it.
int32_t UpToBorder(const Sequence& sequence, int32_t count) {
  for (const int32_t border : sequence.snapshot_at) {
    if (border > sequence.computed) count = std::min(count, border - sequence.computed);
  }
  return count;
}

// What both begin with, in whole pages; the last token of `sequence` it computes itself.
int32_t SharedTokens(const Sequence& sequence, const Sequence& other) {
  const auto end = sequence.tokens.end() - 1;
  const auto at = std::mismatch(sequence.tokens.begin(), end, other.tokens.begin(), other.tokens.end()).first;
  return static_cast<int32_t>(at - sequence.tokens.begin()) / kPageTokens * kPageTokens;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits),
      pages_(limits.pages),
      slots_(limits.max_sequences),
      prefixes_(&pages_, limits.max_sequences, limits.snapshots) {
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
  sequence.due = steps_ + request.priority * kStepsPerPriority;
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
  for (Sequence* sequence : running_) {
    if (!sequence->decoding()) CatchUp(sequence, &plan);
  }
  ScheduleDecoders(&plan);
  Left left = LeftForPrompts(plan);
  std::vector<Prefill> prefills;
  for (Sequence* sequence : running_) {
    if (!sequence->decoding()) SchedulePrefill(sequence, &left, &prefills);
  }
  // A preempted sequence must not take back, in the same step, what it was preempted for.
  if (preemptions_ == preemptions) Admit(&left, &plan, &prefills);
  // Only now: who was admitted may ask those before it to stop where the two part.
  for (const Prefill& prefill : prefills) {
    AddSpan(prefill.sequence, UpToBorder(*prefill.sequence, prefill.count), &plan);
  }
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

Scheduler::Left Scheduler::LeftForPrompts(const StepPlan& plan) const {
  const auto decoders = static_cast<int32_t>(plan.tokens.size());
  Left left{limits_.max_step_tokens - decoders, limits_.max_logits_rows - plan.head_rows(), StepWork(&limits_.cost),
            std::numeric_limits<double>::infinity()};
  if (decoders == 0) return left;
  if (limits_.prefill_budget > 0) {
    left.tokens = std::min(left.tokens, limits_.prefill_budget);
    return left;
  }
  for (const Span& span : plan.spans) left.work = left.work.With({span.start, span.count, 1});
  left.most_work = kMostStretch * left.work.total();
  return left;
}

// The most of `count` tokens that the step's work has room for.
int32_t Scheduler::WithinWork(const Sequence& sequence, int32_t count, const Left& left) {
  if (left.Fits(StretchOf(sequence, count))) return count;
  int32_t fitting = 0;
  for (int32_t beyond = count; beyond - fitting > 1;) {
    const int32_t middle = fitting + (beyond - fitting) / 2;
    (left.Fits(StretchOf(sequence, middle)) ? fitting : beyond) = middle;
  }
  return fitting;
}

void Scheduler::SchedulePrefill(Sequence* sequence, Left* left, std::vector<Prefill>* prefills) {
  if (Waits(sequence)) return;
  int32_t count = std::min({sequence->remaining(), limits_.prefill_chunk, left->tokens});
  // Rows belong to the last tokens: each token less is one row less, as long as there are rows.
  count -= std::max(0, LogitsRows(*sequence, sequence->computed + count) - left->rows);
  count = UpToBorder(*sequence, count);
  if (count <= 0) return;
  const int32_t fitting = WithinWork(*sequence, count, *left);
  if (fitting < count) left->tokens = 0;  // the step is full
  // However much the first token of all is, a prompt advances.
  count = prefills->empty() ? std::max(1, fitting) : fitting;
  if (count == 0) return;
  left->tokens = std::max(0, left->tokens - count);
  left->rows -= LogitsRows(*sequence, sequence->computed + count);
  left->work = left->work.With(StretchOf(*sequence, count));
  prefills->push_back({sequence, count});
}

void Scheduler::Admit(Left* left, StepPlan* plan, std::vector<Prefill>* prefills) {
  while (!waiting_.empty() && slots_.free() > 0) {
    Sequence* sequence = *waiting_.begin();
    // With room for a token, whichever of its prompt that will be, an admitted sequence gets a span at once. One that
    // will wait for another needs none, but has to be there before that one has passed the border where the two part.
    const bool room =
        left->tokens > 0 && left->rows > 0 && (prefills->empty() || left->Fits({sequence->length() - 1, 1, 1}));
    if (!room && FindLeader(*sequence).leader == nullptr) return;
    if (!TakePages(sequence)) return;
    CHECK(slots_.Allocate(1, &sequence->state_slots));
    BeginAfterPrefix(sequence, plan);
    Follow(sequence);
    sequence->status = SequenceStatus::kRunning;
    waiting_.erase(sequence);
    running_.insert(sequence);
    SchedulePrefill(sequence, left, prefills);
  }
}

// Gives a waiting sequence the pages of all its known tokens, so that a prompt once begun never waits for pages; first
// those that the prefix cache has. Every sequence that may still grow keeps one page in reserve, so that admission does
// not cause a preemption soon after.
bool Scheduler::TakePages(Sequence* sequence) {
  const int32_t all = PagesFor(sequence->length());
  std::vector<CachedPage*> known = FindKnown(*sequence);
  sequence->snapshot_at.clear();
  if (limits_.stateful && limits_.snapshots > 0) {
    // Where prefixes part is where the next ones will part from them; and a prompt's end is where its answer, or the
    // next turn, begins.
    sequence->snapshot_at = {static_cast<int32_t>(known.size()) * kPageTokens,
                             (sequence->length() - 1) / kPageTokens * kPageTokens};
  }
  DropPagesWithoutState(&known);
  for (CachedPage* page : known) prefixes_.Hold(page);
  const int32_t need = all - static_cast<int32_t>(known.size());
  const int64_t reserve = GrowingSequences() + (PagesFor(sequence->max_length()) > all ? 1 : 0);
  if (need + reserve > pages_.free() + prefixes_.idle()) {
    prefixes_.Release(&known);
    return false;
  }
  for (const CachedPage* page : known) sequence->pages.push_back(page->page);
  sequence->prefix = std::move(known);
  CHECK(AllocatePages(need, &sequence->pages));
  return true;
}

// The known pages that a sequence can go on with, after those it has.
std::vector<CachedPage*> Scheduler::FindKnown(const Sequence& sequence) const {
  if (!limits_.prefix_cache) return {};
  // The last token is computed in any case, and so are the positions whose logits are still wanted.
  int32_t most = sequence.length() - 1;
  if (sequence.logits == LogitsMode::kAll) most = std::min(most, sequence.scored);
  return prefixes_.Find(sequence.tokens, most / kPageTokens,
                        sequence.prefix.empty() ? nullptr : sequence.prefix.back());
}

// A sequence can begin only where its state is known too.
void Scheduler::DropPagesWithoutState(std::vector<CachedPage*>* known) const {
  while (limits_.stateful && !known->empty() && known->back()->snapshot == kNoSlot) known->pop_back();
}

// Lets a sequence whose prompt has begun go on after the pages that others have made known since.
void Scheduler::CatchUp(Sequence* sequence, StepPlan* plan) {
  std::vector<CachedPage*> known = FindKnown(*sequence);
  DropPagesWithoutState(&known);
  const size_t end = (sequence->prefix.size() + known.size()) * kPageTokens;
  if (known.empty() || end <= static_cast<size_t>(sequence->computed)) return;
  for (CachedPage* page : known) {
    prefixes_.Hold(page);
    GoOnWith(page, sequence);
  }
  BeginAfterPrefix(sequence, plan);
}

// The running sequence served before this one that is computing most of what both begin with. It is not behind this
// one, and does not score: whoever scores computes fewer tokens in a step.
Scheduler::Lead Scheduler::FindLeader(const Sequence& sequence) const {
  Lead lead;
  if (!limits_.prefix_cache || sequence.logits == LogitsMode::kAll) return lead;
  if (limits_.stateful && limits_.snapshots == 0) return lead;
  for (Sequence* other : running_) {
    if (!ServedFirst()(other, &sequence)) break;
    if (other->logits == LogitsMode::kAll || other->computed < sequence.computed) continue;
    const int32_t shared = SharedTokens(sequence, *other);
    if (shared > std::max(lead.shared, other->computed)) lead = {other, shared};
  }
  return lead;
}

// Lets a sequence wait for its leader, if there is one, which then leaves its state where the two part. Only those
// served before it lead, so the first of the running never waits.
void Scheduler::Follow(Sequence* sequence) {
  const Lead lead = FindLeader(*sequence);
  sequence->shared = lead.shared;
  if (lead.leader == nullptr) return;
  sequence->leader = lead.leader->id;
  if (limits_.stateful) lead.leader->snapshot_at.push_back(lead.shared);
}

// Whether a sequence is to go on later, with what its leader computes.
bool Scheduler::Waits(Sequence* sequence) {
  if (sequence->shared <= sequence->computed) return false;
  const Sequence* leader = Find(sequence->leader);
  // The leader is gone, or has passed without a slot for its state.
  if (leader == nullptr || leader->status != SequenceStatus::kRunning || leader->computed >= sequence->shared) {
    Follow(sequence);
  }
  return sequence->shared > sequence->computed;
}

// Lets a sequence go on where its known pages end.
void Scheduler::BeginAfterPrefix(Sequence* sequence, StepPlan* plan) {
  if (sequence->prefix.empty()) return;
  const int32_t before = sequence->computed;
  sequence->computed = static_cast<int32_t>(sequence->prefix.size()) * kPageTokens;
  if (limits_.stateful) {
    CachedPage* last = sequence->prefix.back();
    plan->restores.push_back({last->snapshot, sequence->state_slots.front()});
    prefixes_.UseSnapshot(last);
  }
  if (sequence->preemptions > 0) return;
  if (sequence->cached_tokens == 0) ++prefix_hits_;
  sequence->cached_tokens += sequence->computed - before;
  prefix_hit_tokens_ += sequence->computed - before;
}

bool Scheduler::AllocatePages(int32_t count, std::vector<int32_t>* pages) {
  const int32_t missing = count - pages_.free();
  if (missing > prefixes_.idle()) return false;
  if (missing > 0) prefixes_.Evict(missing);
  return pages_.Allocate(count, pages);
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
  const bool drawn = sequence->logits == LogitsMode::kDrawn;
  span.logits_count = drawn ? 0 : LogitsRows(*sequence, end);
  plan->tokens.insert(plan->tokens.end(), sequence->tokens.begin() + span.start, sequence->tokens.begin() + end);
  plan->pages.insert(plan->pages.end(), sequence->pages.begin(), sequence->pages.begin() + span.page_count);
  plan->logits_rows += span.logits_count;
  if (drawn && LogitsRows(*sequence, end) > 0) plan->drawn.push_back(static_cast<int32_t>(plan->tokens.size()) - 1);
  plan->rules.resize(plan->drawn.size());
  plan->spans.push_back(span);
  ReserveSnapshot(sequence, end, plan);
}

// Lets the step keep the state that it leaves at `end`, if that is a border where it is wanted. Of an answer only the
// last border is: where the next turn parts from it. So one answer takes one slot, however long it gets; and all under
// way take half of the slots at most, or they would drive out each other's and those of prompts.
void Scheduler::ReserveSnapshot(Sequence* sequence, int32_t end, StepPlan* plan) {
  const std::vector<int32_t>& borders = sequence->snapshot_at;
  const bool decoding = sequence->decoding() && end % kPageTokens == 0 && limits_.stateful && limits_.snapshots > 0;
  if (!decoding && std::find(borders.begin(), borders.end(), end) == borders.end()) return;
  if (decoding && sequence->decoded == nullptr && 2 * (AnswersKept() + 1) > limits_.snapshots) return;
  if (decoding && sequence->decoded != nullptr) prefixes_.DropSnapshot(sequence->decoded);
  const int32_t slot = prefixes_.ReserveSnapshot();
  if (slot == kNoSlot) return;
  plan->saves.push_back({sequence->state_slots.front(), slot});
  saves_.push_back({sequence->id, end, slot, decoding});
}

// Answers under way whose state is kept, or will be after this step.
int64_t Scheduler::AnswersKept() const {
  const auto kept = std::count_if(running_.begin(), running_.end(), [](const Sequence* s) { return s->decoded; });
  return kept + std::count_if(saves_.begin(), saves_.end(),
                              [this](const Save& save) { return save.decoding && Find(save.seq)->decoded == nullptr; });
}

bool Scheduler::GrowPages(Sequence* sequence) {
  const auto have = [&] { return static_cast<int32_t>(sequence->pages.size()); };
  const int32_t need = PagesFor(sequence->length());
  while (have() < need && !AllocatePages(need - have(), &sequence->pages)) {
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
  // Known pages stay the cache's.
  sequence->pages.erase(sequence->pages.begin(),
                        sequence->pages.begin() + static_cast<std::ptrdiff_t>(sequence->prefix.size()));
  prefixes_.Release(&sequence->prefix);
  sequence->decoded = nullptr;
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
      MakeKnown(&sequence);
      KeepSnapshot(&sequence);
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
  for (const Save& save : saves_) prefixes_.KeepSnapshot(nullptr, save.slot);  // of sequences that are gone
  saves_.clear();
  CHECK_MSG(sampled.empty(), fmt::format("{} tokens belong to no span, or are not in span order", sampled.size()));
}

// Puts the sequence's full pages into the prefix cache; where their contents are known already, the sequence goes on
// with the known page, which holds the same bytes, and its own is free.
void Scheduler::MakeKnown(Sequence* sequence) {
  if (!limits_.prefix_cache) return;
  while ((sequence->prefix.size() + 1) * kPageTokens <= static_cast<size_t>(sequence->computed)) {
    const size_t i = sequence->prefix.size();
    CachedPage* parent = i == 0 ? nullptr : sequence->prefix.back();
    CachedPage* page =
        prefixes_.Insert(parent, std::span(sequence->tokens).subspan(i * kPageTokens), sequence->pages[i]);
    if (page == nullptr) return;
    GoOnWith(page, sequence);
  }
}

// Puts a known page, held for the sequence, in the place of the sequence's own.
void Scheduler::GoOnWith(CachedPage* page, Sequence* sequence) {
  int32_t& own = sequence->pages[sequence->prefix.size()];
  sequence->prefix.push_back(page);
  if (page->page == own) return;
  std::vector<int32_t> spare = {std::exchange(own, page->page)};
  pages_.Free(&spare);
}

// Hands the state that the step has left, if it kept one, to the page at whose end it was.
void Scheduler::KeepSnapshot(Sequence* sequence) {
  const auto save = std::find_if(saves_.begin(), saves_.end(), [&](const Save& s) { return s.seq == sequence->id; });
  if (save == saves_.end()) return;
  const auto depth = static_cast<size_t>(save->end / kPageTokens);
  CachedPage* page = sequence->prefix.size() >= depth ? sequence->prefix[depth - 1] : nullptr;
  prefixes_.KeepSnapshot(page, save->slot);
  if (save->decoding) sequence->decoded = page;
  saves_.erase(save);
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

SchedulerCounts& SchedulerCounts::operator+=(const SchedulerCounts& other) {
  waiting += other.waiting;
  running += other.running;
  done += other.done;
  free_pages += other.free_pages;
  preemptions += other.preemptions;
  steps += other.steps;
  prefix_hits += other.prefix_hits;
  prefix_hit_tokens += other.prefix_hit_tokens;
  prefix_evictions += other.prefix_evictions;
  cached_pages += other.cached_pages;
  snapshots += other.snapshots;
  return *this;
}

SchedulerCounts Scheduler::counts() const {
  const auto waiting = static_cast<int64_t>(waiting_.size());
  const auto running = static_cast<int64_t>(running_.size());
  const auto all = static_cast<int64_t>(sequences_.size());
  return {.waiting = waiting,
          .running = running,
          .done = all - waiting - running,
          .free_pages = pages_.free() + prefixes_.idle(),
          .preemptions = preemptions_,
          .steps = steps_,
          .prefix_hits = prefix_hits_,
          .prefix_hit_tokens = prefix_hit_tokens_,
          .prefix_evictions = prefixes_.evictions(),
          .cached_pages = prefixes_.size(),
          .snapshots = prefixes_.snapshots()};
}

int32_t Scheduler::GrowingSequences() const {
  return static_cast<int32_t>(std::count_if(running_.begin(), running_.end(), [](const Sequence* sequence) {
    return PagesFor(sequence->max_length()) > static_cast<int32_t>(sequence->pages.size());
  }));
}

}  // namespace trivet::sched
