// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "proof/selftest.h"

namespace trivet::proof {
namespace {

TEST(Negatives, EachIsFoundAsWhatItIs) {
  std::set<std::string> names;
  for (const SelftestCase& one : Negatives()) {
    EXPECT_EQ(Unexpected(one, Verify(one.make(), one.options)), "");
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_NE(one.expected, Verdict::kPass) << one.name;
  }
  for (int i = 1; i <= 34; ++i) EXPECT_TRUE(names.contains("N" + std::to_string(i))) << i;
  for (int i = 1; i <= 12; ++i) EXPECT_TRUE(names.contains("P" + std::to_string(i))) << i;
}

}  // namespace
}  // namespace trivet::proof
