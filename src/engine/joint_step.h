// SPDX-License-Identifier: Apache-2.0
// What all ranks compute together: a step of every replica.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "sched/step_plan.h"

namespace trivet::engine {

/// The steps that replicas take at the same time. Every rank receives the same bytes.
struct JointStep {
  std::vector<sched::StepPlan> plans;  // by replica; one without spans has nothing to do
  bool hidden = false;                 // whether hidden states are wanted

  /// Flat bytes for broadcasting.
  std::vector<std::byte> Serialize() const;
  /// The inverse.  Errors: kInvalid when sizes contradict each other.
  static Result<JointStep> Deserialize(std::span<const std::byte> bytes);
};

}  // namespace trivet::engine
