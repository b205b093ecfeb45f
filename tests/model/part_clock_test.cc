// SPDX-License-Identifier: Apache-2.0
#include "model/part_clock.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace trivet::model {
namespace {

using plan::StepPart;

double Of(const PartTimes& times, StepPart part) { return times[static_cast<size_t>(part)]; }

TEST(PartClock, AddsUpWhatBelongsToAPart) {
  PartClock clock(std::move(device::Device::Open(Backend::kCpu, 0)).value());
  clock.Begin();
  clock.Mark(StepPart::kHead);  // of a step that has no end
  for (int step = 0; step < 2; ++step) {
    clock.Begin();
    ::usleep(2000);
    clock.Mark(StepPart::kAttention);
    clock.Mark(StepPart::kEnds);
    ::usleep(1000);
    clock.Mark(StepPart::kAttention);
    clock.End();
  }
  const std::vector<PartTimes> steps = clock.Take();
  ASSERT_EQ(steps.size(), 2U);
  for (const PartTimes& times : steps) {
    EXPECT_GE(Of(times, StepPart::kAttention), 3000);
    EXPECT_LT(Of(times, StepPart::kEnds), 1000);
    EXPECT_EQ(Of(times, StepPart::kHead), 0);
  }
  EXPECT_TRUE(clock.Take().empty());
}

}  // namespace
}  // namespace trivet::model
