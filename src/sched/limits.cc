// SPDX-License-Identifier: Apache-2.0
#include "sched/limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet::sched {

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
      {"prefill_budget", limits.prefill_budget, 0},
      {"max_logits_rows", limits.max_logits_rows, std::max(1, limits.max_sequences)},
      {"pages", limits.pages, 1},
      {"max_context", limits.max_context, 1},
      {"snapshots", limits.snapshots, 0},
  };
  for (const auto& row : rows) {
    if (row.value >= row.least) continue;
    return MakeError(Code::kInvalid, fmt::format("scheduler limit {}: expected at least {}, found {}; raise it",
                                                 row.name, row.least, row.value));
  }
  return {};
}

}  // namespace trivet::sched
