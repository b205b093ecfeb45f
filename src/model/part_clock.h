// SPDX-License-Identifier: Apache-2.0
// Where the time of a decode step goes.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "device/stopwatch.h"
#include "plan/step_part.h"

namespace trivet::model {

/// Microseconds of every part of a step.
using PartTimes = std::array<double, plan::kStepParts>;

/// Times the parts of decode steps of one rank.
class PartClock {
 public:
  explicit PartClock(const device::Device& device) : watch_(device) {}

  /// A step begins. What an earlier one left is forgotten.
  void Begin();
  /// What was asked for since the last mark belongs to `part`.
  void Mark(plan::StepPart part);
  /// The step has ended.
  void End();
  /// The steps since the last call.
  std::vector<PartTimes> Take() { return std::exchange(steps_, {}); }

 private:
  device::Stopwatch watch_;
  std::vector<plan::StepPart> marks_;
  std::vector<PartTimes> steps_;
};

}  // namespace trivet::model
