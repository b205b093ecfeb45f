// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <gtest/gtest.h>

namespace trivet {
namespace {

TEST(CheckDeathTest, AFalseConditionAbortsWithItsPlaceAndText) {
  EXPECT_EXIT(CHECK(1 + 1 == 3), testing::KilledBySignal(SIGABRT),
              "trivet: internal error: .*check_test.cc:[0-9]+: CHECK.1 \\+ 1 == 3. failed");
  EXPECT_EXIT(CHECK_MSG(false, std::string("found ") + "7"), testing::KilledBySignal(SIGABRT), "failed: found 7");
}

TEST(Check, ATrueConditionIsEvaluatedOnceAndItsDetailNever) {
  int conditions = 0, details = 0;
  CHECK(++conditions == 1);
  CHECK_MSG(++conditions == 2, std::to_string(++details));
  EXPECT_EQ(conditions, 2);
  EXPECT_EQ(details, 0);
}

}  // namespace
}  // namespace trivet
