// SPDX-License-Identifier: Apache-2.0
#include "sched/sequence.h"

#include <algorithm>

namespace trivet::sched {

int32_t PagesFor(int64_t tokens) { return static_cast<int32_t>((tokens + kPageTokens - 1) / kPageTokens); }

int32_t LogitsRows(const Sequence& sequence, int32_t end) {
  const bool reaches_end = end > sequence.computed && end == sequence.length();
  const int32_t last = reaches_end && sequence.logits != LogitsMode::kNone ? 1 : 0;
  if (sequence.logits != LogitsMode::kAll) return last;
  // A preempted sequence computes positions again whose logits were delivered before. A token is generated only after
  // the whole prompt was scored, so the two kinds of rows never stand apart.
  const int32_t begin = std::max(sequence.computed, sequence.scored);
  return std::max(last, std::min(end, sequence.prompt_tokens) - begin);
}

Stretch StretchOf(const Sequence& sequence, int32_t count) {
  return {sequence.computed, count, LogitsRows(sequence, sequence.computed + count)};
}

}  // namespace trivet::sched
