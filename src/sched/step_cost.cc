// SPDX-License-Identifier: Apache-2.0
#include "sched/step_cost.h"

#include <algorithm>
#include <cmath>

namespace trivet::sched {
namespace {

// Pairs of a token and a key that it sees.
double PairsOf(const Stretch& stretch, int64_t window) {
  const int64_t end = stretch.start + stretch.count;
  // The first tokens see all keys before them, the others `window`.
  const int64_t full = window == 0 ? end : std::clamp(window, stretch.start, end);
  const auto growing = static_cast<double>(full - stretch.start);
  const double pairs = growing * (static_cast<double>(stretch.start + full) + 1) / 2;
  return pairs + static_cast<double>(end - full) * static_cast<double>(window);
}

// Keys that its tokens see, each once.
double KeysOf(const Stretch& stretch, int64_t window) {
  const int64_t end = stretch.start + stretch.count;
  return static_cast<double>(window == 0 ? end : std::min(end, window + stretch.count - 1));
}

}  // namespace

StepWork StepWork::With(const Stretch& stretch) const {
  StepWork work = *this;
  work.tokens_ += stretch.count;
  work.logits_ += stretch.logits;
  for (const AttentionCost& layers : cost_->attention) {
    work.sequences_ += std::max(PairsOf(stretch, layers.window) * layers.key_work,
                                KeysOf(stretch, layers.window) * layers.key_bytes * cost_->work_per_byte);
  }
  work.sequences_ += std::max(static_cast<double>(stretch.count) * cost_->state_work,
                              2 * cost_->state_bytes * cost_->work_per_byte);  // read and written
  return work;
}

double StepWork::total() const {
  if (tokens_ == 0) return 0;
  const auto tokens = static_cast<double>(tokens_);
  // Experts that some token takes, when all are as likely.
  const double experts = cost_->expert_bytes * (1 - std::pow(1 - cost_->routed_share, tokens));
  const double reading = (cost_->weight_bytes + experts) * cost_->work_per_byte;
  return sequences_ + std::max(reading, tokens * cost_->token_work + static_cast<double>(logits_) * cost_->logits_work);
}

}  // namespace trivet::sched
