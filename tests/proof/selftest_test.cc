// SPDX-License-Identifier: Apache-2.0
#include "proof/selftest.h"

#include <gtest/gtest.h>

#include <set>

namespace trivet::proof {
namespace {

TEST(Controls, NoneIsFlagged) {
  std::set<std::string> names;
  for (const SelftestCase& one : Controls()) {
    EXPECT_EQ(Unexpected(one, Verify(one.make(), one.options)), "");
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
  }
  // There is no thirteenth: what comes out of a prefix cache is not recorded.
  for (int i = 1; i <= 14; ++i) EXPECT_EQ(names.contains("C" + std::to_string(i)), i != 13) << i;
}

TEST(Selftest, ACaseThatFindsSomethingElseIsReported) {
  SelftestCase one = Controls()[0];
  one.expected = Verdict::kMissingRank;
  EXPECT_NE(Unexpected(one, Verify(one.make(), one.options)), "");
  for (SelftestCase& other : Negatives()) {
    if (other.dimension != "tp") continue;
    other.dimension = "cp";
    EXPECT_NE(Unexpected(other, Verify(other.make(), other.options)), "");
  }
}

// Another seed than the command's.
TEST(Mutations, NoChangedByteIsAccepted) {
  const Mutations mutations = MutateBytes(2000, 77);
  EXPECT_EQ(mutations.changed, 2000);
  EXPECT_EQ(mutations.accepted, 0) << mutations.first;
}

}  // namespace
}  // namespace trivet::proof
