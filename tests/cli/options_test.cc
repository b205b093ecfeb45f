// SPDX-License-Identifier: Apache-2.0
// Values of options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/program.h"

namespace trivet::cli {
namespace {

// As everywhere: any 64 bits.
TEST_F(Program, ASeedOfAMapIsAnyInteger) {
  const std::string make = "placement make --experts 16 --ep 3 --random --seed ";
  const Outcome negative = Run(make + "-1"), largest = Run(make + "18446744073709551615");
  EXPECT_EQ(negative.status, 0) << negative.err;
  EXPECT_EQ(negative.out, largest.out);
  EXPECT_NE(negative.out, Run(make + "1").out);
  EXPECT_EQ(Run(make + "0").out, Run("placement make --experts 16 --ep 3 --random").out);
  for (const std::string seed : {"seven", "1.5", "''", "18446744073709551616"}) {
    Refused(make + seed, 2, {"--seed: expected an integer from -9223372036854775808 to 18446744073709551615"});
  }
}

}  // namespace
}  // namespace trivet::cli
