// SPDX-License-Identifier: Apache-2.0
// Which rows of a step are whose, where ranks share out the positions of sequences: those of a context group, which
// compute them, and then, where rows are dealt, those that cut a layer, which keep them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "plan/sequence_split.h"
#include "sched/step_plan.h"

namespace trivet::engine {

static_assert(plan::kEveryRank == comm::kEveryRank);

/// The rank of a group whose a position is, or kEveryRank.
using Owner = std::function<int64_t(int64_t position)>;

/// The rows of a step by the ranks of a group whose they are, in the order of the step.
struct StepShares {
  std::vector<comm::RowRun> tokens;  // of all its tokens
  std::vector<comm::RowRun> logits;  // of all rows whose logits are wanted
  std::vector<comm::RowRun> drawn;   // of all tokens in StepPlan::drawn
};
/// How the ranks of a group share out the rows of a step.
StepShares SharesOf(const sched::StepPlan& plan, const Owner& owner);

/// The share of `rank` of a group, as a step of its own: spans are those parts of the step's spans whose positions are
/// the rank's. Their pages are among the step's, and copies of states are the step's to make.
sched::StepPlan ShareOf(const sched::StepPlan& plan, const Owner& owner, int64_t rank);

}  // namespace trivet::engine
