// SPDX-License-Identifier: Apache-2.0
#include "engine/step_share.h"

#include <algorithm>

namespace trivet::engine {
namespace {

// Calls part(owner, span) for the longest parts of the step's spans that have one owner, in their order: spans of the
// step, each with the rows of logits that it has.
template <class Part>
void ForEachPart(const sched::StepPlan& plan, const Owner& owner_of, const Part& part) {
  for (const sched::Span& span : plan.spans) {
    const int32_t silent = span.count - span.logits_count;  // rows before those of logits
    for (int32_t begin = 0; begin < span.count;) {
      const int64_t owner = owner_of(span.start + begin);
      int32_t end = begin + 1;
      while (end < span.count && owner_of(span.start + end) == owner) ++end;
      sched::Span one = span;
      one.start = span.start + begin;
      one.count = end - begin;
      one.token_begin = span.token_begin + begin;
      one.page_count = (one.start + one.count + sched::kPageTokens - 1) / sched::kPageTokens;
      one.logits_begin = span.logits_begin + std::max(0, begin - silent);
      one.logits_count = std::max(0, end - std::max(begin, silent));
      part(owner, one);
      begin = end;
    }
  }
}

// Adds rows behind those that there are.
void AddRows(int64_t owner, int64_t begin, int64_t count, std::vector<comm::RowRun>* runs) {
  if (count == 0) return;
  if (!runs->empty() && runs->back().rank == owner) {
    runs->back().count += count;
  } else {
    runs->push_back({owner, begin, count});
  }
}

}  // namespace

StepShares SharesOf(const sched::StepPlan& plan, const Owner& owner_of) {
  StepShares shares;
  ForEachPart(plan, owner_of, [&](int64_t owner, const sched::Span& part) {
    AddRows(owner, part.token_begin, part.count, &shares.tokens);
    AddRows(owner, part.logits_begin, part.logits_count, &shares.logits);
    if (const auto index = plan.DrawnOf(part)) AddRows(owner, static_cast<int64_t>(*index), 1, &shares.drawn);
  });
  return shares;
}

sched::StepPlan ShareOf(const sched::StepPlan& plan, const Owner& owner_of, int64_t rank) {
  sched::StepPlan share;
  share.step = plan.step;
  ForEachPart(plan, owner_of, [&](int64_t owner, const sched::Span& part) {
    if (owner != rank && owner != comm::kEveryRank) return;
    const auto from = plan.tokens.begin() + part.token_begin;
    sched::Span own = part;
    own.token_begin = static_cast<int32_t>(share.tokens.size());
    own.logits_begin = share.logits_rows;
    share.tokens.insert(share.tokens.end(), from, from + part.count);
    share.logits_rows += part.logits_count;
    if (const auto index = plan.DrawnOf(part)) {
      share.drawn.push_back(static_cast<int32_t>(share.tokens.size()) - 1);
      share.rules.push_back(plan.rules[*index]);
    }
    share.spans.push_back(own);
  });
  return share;
}

}  // namespace trivet::engine
