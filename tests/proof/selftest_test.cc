// SPDX-License-Identifier: Apache-2.0
#include "proof/selftest.h"

#include <gtest/gtest.h>

namespace trivet::proof {
namespace {

TEST(Controls, NoneIsFlagged) {
  for (const SelftestCase& one : Controls()) EXPECT_EQ(Unexpected(one, Verify(one.make(), one.options)), "");
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
