// SPDX-License-Identifier: Apache-2.0
#include "model/part_clock.h"

namespace trivet::model {

void PartClock::Begin() {
  marks_.clear();
  watch_.Lap(true);
}

void PartClock::Mark(plan::StepPart part) {
  marks_.push_back(part);
  watch_.Lap();
}

void PartClock::End() {
  PartTimes times{};
  const std::vector<double> laps = watch_.Take();
  for (size_t i = 0; i < marks_.size(); ++i) times[static_cast<size_t>(marks_[i])] += laps[i];
  steps_.push_back(times);
  marks_.clear();
}

}  // namespace trivet::model
