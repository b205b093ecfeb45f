// SPDX-License-Identifier: Apache-2.0
// Whole runs of the scheduler under random arrivals, cancellations and stops, against a model that really keeps its
// context in pages and state slots: a leaked, shared or stale page or slot changes tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "sched/scheduler.h"

namespace trivet::sched {
namespace {

constexpr TokenId kStop = 0;  // one token in kStopPeriod
constexpr uint64_t kStopPeriod = 397;

uint64_t Mix(uint64_t state, TokenId token) {
  state = (state ^ static_cast<uint64_t>(token)) * 0x9e3779b97f4a7c15u;
  return state ^ (state >> 29);
}

TokenId NextToken(uint64_t by_pages, uint64_t by_slot) {
  const uint64_t hash = Mix(by_pages, static_cast<TokenId>(by_slot & 0x7fffffff));
  return hash % kStopPeriod == 0 ? kStop : static_cast<TokenId>(1 + hash % 1000);
}

// What a sequence generates when it is alone.
std::vector<TokenId> Alone(std::vector<TokenId> tokens, int32_t max_new) {
  std::vector<TokenId> out;
  uint64_t state = 1;
  for (const TokenId token : tokens) state = Mix(state, token);
  while (static_cast<int32_t>(out.size()) < max_new && (out.empty() || out.back() != kStop)) {
    out.push_back(NextToken(state, state));
    state = Mix(state, out.back());
  }
  return out;
}

class FakeModel {
 public:
  explicit FakeModel(const SchedulerLimits& limits)
      : has_states_(limits.stateful || !limits.prefix_cache),
        cells_(static_cast<size_t>(limits.pages) * kPageTokens, -1),
        slots_(static_cast<size_t>(limits.max_sequences + limits.snapshots)) {}

  void Copy(const std::vector<StateCopy>& copies) {
    for (const StateCopy& copy : copies)
      slots_.at(static_cast<size_t>(copy.to)) = slots_[static_cast<size_t>(copy.from)];
  }

  // Runs one span; the result is the token that follows its last one.
  TokenId RunSpan(const StepPlan& plan, const Span& span) {
    uint64_t& slot = slots_[static_cast<size_t>(span.state_slot)];
    if (span.start == 0) slot = 1;
    for (int32_t i = 0; i < span.count; ++i) {
      const TokenId token = plan.tokens[static_cast<size_t>(span.token_begin + i)];
      Cell(plan, span, span.start + i) = token;
      slot = Mix(slot, token);
    }
    uint64_t state = 1;
    for (int32_t i = 0; i < span.start + span.count; ++i) state = Mix(state, Cell(plan, span, i));
    return NextToken(state, has_states_ ? slot : state);
  }

 private:
  TokenId& Cell(const StepPlan& plan, const Span& span, int32_t position) {
    const int32_t page = plan.pages[static_cast<size_t>(span.page_begin + position / kPageTokens)];
    return cells_[static_cast<size_t>(page * kPageTokens + position % kPageTokens)];
  }
  const bool has_states_;  // which a prefix in pages alone does not bring back
  std::vector<TokenId> cells_;
  std::vector<uint64_t> slots_;
};

struct Expected {
  Request request;
  std::vector<TokenId> output;
  std::vector<int> scored;  // kAll: times each prompt position produced logits
};

class Traffic {
 public:
  Traffic(const SchedulerLimits& limits, uint32_t seed)
      : limits_(limits), scheduler_(limits), model_(limits), random_(seed) {}

  void Submit() {
    Request request;
    request.id = SeqId{next_id_++};
    request.max_new_tokens = static_cast<int32_t>(Below(Below(4) == 0 ? 400 : 60));
    request.priority = static_cast<int32_t>(Below(3)) - 1;
    request.logits = Below(5) == 0 ? LogitsMode::kAll : LogitsMode::kLast;
    const bool drawn = request.logits == LogitsMode::kLast && next_id_ % 3 == 0;
    if (request.max_new_tokens > 0 && drawn) request.logits = LogitsMode::kDrawn;
    if (request.max_new_tokens == 0 && Below(2) == 0) request.logits = LogitsMode::kNone;
    // Half of the prompts begin as others do: some with a whole one, some with a piece of it.
    if (Below(2) == 0 && !prompts_.empty()) {
      request.prompt = prompts_[Below(prompts_.size())];
      if (Below(2) == 0) request.prompt.resize(Below(request.prompt.size()));
    }
    const size_t tail = 1 + Below(Below(3) == 0 ? 300 : 20);
    for (size_t i = 0; i < tail; ++i) request.prompt.push_back(static_cast<TokenId>(Below(1000)));
    const size_t length = request.prompt.size();
    if (prompts_.size() < 8) prompts_.push_back(request.prompt);
    const int64_t total = static_cast<int64_t>(length) + request.max_new_tokens;
    const bool fits = total <= limits_.max_context && PagesFor(total) <= limits_.pages;
    const Status status = scheduler_.Submit(request);
    ASSERT_EQ(status.ok(), fits);
    if (!fits) return;
    live_[request.id] = {request, Alone(request.prompt, request.max_new_tokens), std::vector<int>(length, 0)};
  }

  void CancelOne() {
    if (live_.empty()) return;
    const auto victim = std::next(live_.begin(), static_cast<std::ptrdiff_t>(Below(live_.size())));
    scheduler_.Cancel(victim->first);
    live_.erase(victim);
  }

  // One step; false when there was nothing to do.
  bool Step(bool cancel_under_way) {
    std::vector<SeqId> decoding, prompts;
    for (const auto& [id, expected] : live_) {
      const Sequence& sequence = *scheduler_.Find(id);
      if (sequence.status == SequenceStatus::kRunning) (sequence.decoding() ? decoding : prompts).push_back(id);
    }
    const StepPlan plan = scheduler_.Next();
    if (plan.spans.empty()) return false;
    CheckPlan(plan, decoding);
    CheckBudget(plan, decoding, prompts);
    const auto bytes = plan.Serialize();
    const auto received = StepPlan::Deserialize(bytes);
    EXPECT_TRUE(received.ok());
    std::vector<std::pair<Span, TokenId>> results;
    model_.Copy(received->restores);
    for (const Span& span : received->spans) results.push_back({span, model_.RunSpan(*received, span)});
    model_.Copy(received->saves);
    if (cancel_under_way) CancelOne();
    std::vector<SampledToken> sampled;
    for (const auto& [span, token] : results) {
      const auto found = live_.find(span.seq);
      const bool drawn = found != live_.end() && found->second.request.logits == LogitsMode::kDrawn;
      EXPECT_TRUE(!drawn || plan.DrawnOf(span).has_value() == scheduler_.WantsToken(span));
      if (scheduler_.WantsToken(span)) sampled.push_back({span.seq, token});
      Score(span);
    }
    scheduler_.Commit(plan, sampled);
    FinishEnded();
    CheckPages();
    trace_ = Hash(bytes, trace_);
    return true;
  }

  const Scheduler& scheduler() const { return scheduler_; }
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  int64_t finished() const { return finished_; }
  uint64_t trace() const { return trace_; }

 private:
  static uint64_t Hash(std::span<const std::byte> bytes, uint64_t state) {
    for (const std::byte byte : bytes) state = Mix(state, static_cast<TokenId>(byte));
    return state;
  }

  void CheckPlan(const StepPlan& plan, const std::vector<SeqId>& decoding) {
    EXPECT_LE(static_cast<int32_t>(plan.tokens.size()), limits_.max_step_tokens);
    EXPECT_LE(plan.head_rows(), limits_.max_logits_rows);
    EXPECT_LE(static_cast<int32_t>(plan.spans.size()), limits_.max_sequences);
    std::map<SeqId, const Span*> spans;
    std::set<int32_t> slots;
    std::map<int32_t, int> readers, writers;  // of a page
    for (const Span& span : plan.spans) {
      EXPECT_TRUE(spans.emplace(span.seq, &span).second) << "two spans of one sequence";
      EXPECT_TRUE(slots.insert(span.state_slot).second) << "a state slot twice";
      EXPECT_LT(span.state_slot, limits_.max_sequences);
      EXPECT_LE(span.count, limits_.prefill_chunk);
      for (int32_t i = 0; i < span.page_count; ++i) {
        const int32_t page = plan.pages[static_cast<size_t>(span.page_begin + i)];
        ++readers[page];
        if ((i + 1) * kPageTokens > span.start) ++writers[page];
        EXPECT_LT(page, limits_.pages);
      }
    }
    for (const auto& [page, count] : writers)
      EXPECT_EQ(readers[page], 1) << "page " << page << " is written and shared";
    if (!limits_.prefix_cache) {
      for (const auto& [page, count] : readers) EXPECT_EQ(count, 1) << "page " << page << " twice";
    }
    // No starvation: a decoder always advances, unless it lost its pages, and so does the first of the running.
    for (const SeqId id : decoding) {
      if (scheduler_.Find(id)->status != SequenceStatus::kRunning) continue;
      ASSERT_TRUE(spans.contains(id));
      EXPECT_EQ(spans[id]->count, 1);
    }
    const Sequence* first = nullptr;
    for (const auto& [id, expected] : live_) {
      const Sequence* sequence = scheduler_.Find(id);
      if (sequence->status != SequenceStatus::kRunning) continue;
      if (first == nullptr || std::pair(sequence->due, sequence->arrival) < std::pair(first->due, first->arrival)) {
        first = sequence;
      }
    }
    ASSERT_NE(first, nullptr);
    EXPECT_TRUE(spans.contains(first->id));
  }

  // Prompts neither stall decoders nor starve.
  void CheckBudget(const StepPlan& plan, const std::vector<SeqId>& decoding, const std::vector<SeqId>& prompts) {
    StepWork alone(&limits_.cost), all(&limits_.cost);
    int32_t prompt_tokens = 0;
    for (const Span& span : plan.spans) {
      const Stretch stretch{span.start, span.count, plan.DrawnOf(span) ? 1 : span.logits_count};
      const bool decodes = std::count(decoding.begin(), decoding.end(), span.seq) > 0;
      if (decodes) alone = alone.With(stretch);
      if (!decodes) prompt_tokens += span.count;
      all = all.With(stretch);
    }
    if (alone.total() > 0 && limits_.prefill_budget > 0) {
      EXPECT_LE(prompt_tokens, limits_.prefill_budget);
    } else if (alone.total() > 0 && prompt_tokens > 1) {
      EXPECT_LE(all.total(), kMostStretch * alone.total());
    }
    const bool some_wait = std::any_of(prompts.begin(), prompts.end(), [this](SeqId id) {
      return scheduler_.Find(id)->status == SequenceStatus::kRunning;
    });
    EXPECT_TRUE(prompt_tokens > 0 || !some_wait);
  }

  void Score(const Span& span) {
    const auto found = live_.find(span.seq);
    if (found == live_.end()) return;
    const Expected& expected = found->second;
    const int32_t end = span.start + span.count;
    for (int32_t position = end - span.logits_count; position < end; ++position) {
      EXPECT_NE(expected.request.logits, LogitsMode::kNone);
      if (position < static_cast<int32_t>(expected.request.prompt.size())) {
        ++found->second.scored[static_cast<size_t>(position)];
      }
    }
  }

  void FinishEnded() {
    for (auto it = live_.begin(); it != live_.end();) {
      const Sequence& sequence = *scheduler_.Find(it->first);
      const Expected& expected = it->second;
      const bool stopped = sequence.generated() > 0 && sequence.tokens.back() == kStop;
      if (!stopped && sequence.status != SequenceStatus::kDone) {
        ++it;
        continue;
      }
      EXPECT_EQ(std::vector<TokenId>(sequence.tokens.begin() + sequence.prompt_tokens, sequence.tokens.end()),
                expected.output);
      if (expected.request.logits == LogitsMode::kAll) {
        EXPECT_EQ(expected.scored, std::vector<int>(expected.scored.size(), 1));
      }
      scheduler_.Finish(it->first);
      it = live_.erase(it);
      ++finished_;
    }
  }

  void CheckPages() {
    int64_t running = 0;
    std::map<int32_t, int32_t> holders;
    std::map<int32_t, const CachedPage*> known;
    for (const auto& [id, expected] : live_) {
      const Sequence& sequence = *scheduler_.Find(id);
      for (const int32_t page : sequence.pages) ++holders[page];
      ASSERT_LE(sequence.prefix.size(), sequence.pages.size());
      for (size_t i = 0; i < sequence.prefix.size(); ++i) {
        EXPECT_EQ(sequence.prefix[i]->page, sequence.pages[i]);
        known[sequence.pages[i]] = sequence.prefix[i];
      }
      running += sequence.status == SequenceStatus::kRunning ? 1 : 0;
      EXPECT_EQ(sequence.state_slots.size(), sequence.status == SequenceStatus::kRunning ? 1u : 0u);
    }
    const SchedulerCounts counts = scheduler_.counts();
    for (const auto& [page, count] : holders) {
      EXPECT_EQ(count, known.contains(page) ? known[page]->users : 1) << "page " << page;
    }
    EXPECT_EQ(static_cast<int64_t>(holders.size()) + counts.free_pages, limits_.pages);
    EXPECT_LE(counts.cached_pages, limits_.pages);
    EXPECT_LE(counts.snapshots, limits_.snapshots);
    EXPECT_EQ(running, counts.running);
    EXPECT_EQ(counts.waiting + counts.running + counts.done, static_cast<int64_t>(live_.size()));
  }

  SchedulerLimits limits_;
  Scheduler scheduler_;
  FakeModel model_;
  std::mt19937 random_;
  std::vector<std::vector<TokenId>> prompts_;  // that others begin with
  std::map<SeqId, Expected> live_;
  int64_t next_id_ = 1;
  int64_t finished_ = 0;
  uint64_t trace_ = 1;
};

struct Case {
  const char* name;
  SchedulerLimits limits;
  bool expect_preemption;
};

// Every part of a step costs something: eight decoders leave prompts 45 tokens at their beginnings, and 10 at 2,000.
const StepCost kPriced = {.token_work = 10,
                          .logits_work = 4,
                          .weight_bytes = 100,
                          .expert_bytes = 800,
                          .routed_share = 0.1,
                          .state_work = 1,
                          .state_bytes = 2,
                          .attention = {{0, 0.01, 0.05}, {100, 0.02, 0.05}},
                          .work_per_byte = 1};

class TrafficTest : public ::testing::TestWithParam<Case> {};

// Random traffic, then no more arrivals: everything must end.
void RunTraffic(Traffic* traffic, int steps) {
  for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
    // Bursts, then lulls, so that the queue both grows and runs dry.
    if (traffic->Below(step / 200 % 2 == 0 ? 4 : 20) == 0) traffic->Submit();
    if (traffic->Below(100) == 0) traffic->CancelOne();
    traffic->Step(traffic->Below(100) == 0);
  }
  int drained = 0;
  while (!::testing::Test::HasFailure() && traffic->Step(false)) ASSERT_LT(++drained, 100 * steps);
  const SchedulerCounts counts = traffic->scheduler().counts();
  EXPECT_EQ(counts.waiting + counts.running + counts.done, 0);
  EXPECT_EQ(counts.free_pages, traffic->scheduler().limits().pages);
}

TEST_P(TrafficTest, EveryOutputIsAsAloneAndNothingLeaks) {
  int64_t preemptions = 0, finished = 0, hits = 0, evictions = 0;
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    Traffic traffic(GetParam().limits, seed);
    RunTraffic(&traffic, 1500);
    preemptions += traffic.scheduler().counts().preemptions;
    finished += traffic.finished();
    hits += traffic.scheduler().counts().prefix_hits;
    evictions += traffic.scheduler().counts().prefix_evictions;
  }
  EXPECT_GT(finished, 100);
  EXPECT_EQ(preemptions > 0, GetParam().expect_preemption) << preemptions;
  EXPECT_EQ(hits > 10, GetParam().limits.prefix_cache) << hits;
  EXPECT_EQ(evictions > 0, GetParam().limits.prefix_cache) << evictions;
}

TEST_P(TrafficTest, SameCallsGiveTheSamePlans) {
  Traffic a(GetParam().limits, 9), b(GetParam().limits, 9), c(GetParam().limits, 10);
  for (Traffic* traffic : {&a, &b, &c}) RunTraffic(traffic, 300);
  EXPECT_EQ(a.trace(), b.trace());
  EXPECT_NE(a.trace(), c.trace());
}

INSTANTIATE_TEST_SUITE_P(
    Limits, TrafficTest,
    ::testing::Values(Case{"wide", {16, 512, 128, 0, 512, 400, 4096}, false},
                      Case{"priced", {16, 512, 128, 0, 512, 400, 4096, false, false, 0, kPriced}, false},
                      Case{"few_pages", {8, 64, 32, 0, 16, 12, 1000}, true},
                      Case{"one_at_a_time", {1, 1, 1, 0, 1, 8, 512}, false},
                      Case{"one_token_chunks", {6, 6, 1, 2, 6, 8, 500}, true},
                      Case{"few_rows", {4, 300, 300, 0, 4, 14, 900}, true},
                      Case{"one_sequence_fills_all", {4, 100, 50, 0, 50, 7, 448}, true},
                      Case{"known", {16, 512, 128, 0, 512, 150, 4096, true}, false},
                      Case{"known_few_pages", {8, 64, 32, 0, 16, 12, 1000, true}, true},
                      Case{"known_states", {8, 200, 128, 0, 100, 40, 1000, true, true, 8}, false},
                      Case{"known_states_priced", {8, 200, 128, 0, 100, 40, 1000, true, true, 8, kPriced}, false},
                      Case{"known_two_states", {8, 64, 64, 0, 16, 16, 1000, true, true, 2}, true}),
    [](const ::testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trivet::sched
