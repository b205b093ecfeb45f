// SPDX-License-Identifier: Apache-2.0
#include "plan/cut_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace trivet::plan {
namespace {

std::vector<int64_t> Counts(const std::vector<Share>& shares) {
  std::vector<int64_t> counts;
  for (const Share& share : shares) counts.push_back(share.count);
  return counts;
}

// Shares are contiguous, start at 0, end at `padded`, and `real` counts what lies below `stock`.
void ExpectPartition(const std::vector<Share>& shares, const Units& units, int64_t padded) {
  int64_t next = 0;
  int64_t real = 0;
  for (const Share& share : shares) {
    EXPECT_EQ(share.begin, next);
    EXPECT_GE(share.count, share.real);
    next += share.count;
    real += share.real;
  }
  EXPECT_EQ(next, padded);
  EXPECT_EQ(real, units.stock);
}

// Heads in groups of `group`: every head costs `head`, every group a share touches costs `owner`.
SharePrice GroupPrice(int64_t group, double head, double owner) {
  return [=](const Share& share) {
    if (share.count == 0) return 0.0;
    const int64_t touched = (share.begin + share.count - 1) / group - share.begin / group + 1;
    return head * static_cast<double>(share.count) + owner * static_cast<double>(touched);
  };
}

// The lowest possible highest price over every way to cut [begin, units) into `ranks` contiguous shares.
double ExhaustiveBest(int64_t begin, int64_t units, int64_t ranks, const SharePrice& price) {
  if (ranks == 1) return price({begin, units - begin, units - begin});
  double best = std::numeric_limits<double>::infinity();
  for (int64_t end = begin; end <= units; ++end) {
    const double here = price({begin, end - begin, end - begin});
    best = std::min(best, std::max(here, ExhaustiveBest(end, units, ranks - 1, price)));
  }
  return best;
}

TEST(CutRule, PadUnitsFillsUpToAMultiple) {
  EXPECT_EQ(PadUnits(8, 0).padded, 8);
  EXPECT_EQ(PadUnits(8, 3).padded, 9);
  EXPECT_EQ(PadUnits(9, 3).padded, 9);
  EXPECT_EQ(PadUnits(2, 5).padded, 5);
  EXPECT_EQ(PadUnits(2, 5).stock, 2);
}

TEST(CutRule, EvenSharesDifferByOneAndLowRanksHoldMore) {
  EXPECT_EQ(Counts(DealEven({8, 8}, 3)), (std::vector<int64_t>{3, 3, 2}));
  EXPECT_EQ(Counts(DealEven({2, 2}, 4)), (std::vector<int64_t>{1, 1, 0, 0}));
  for (int64_t units = 1; units < 40; ++units) {
    for (int64_t ranks = 1; ranks <= 16; ++ranks) {
      const std::vector<Share> shares = DealEven({units, units}, ranks);
      ExpectPartition(shares, {units, units}, units);
      EXPECT_LE(shares.front().count - shares.back().count, 1);
    }
  }
}

TEST(CutRule, PaddedSharesAreEqualWithDummiesAtTheEnd) {
  const std::vector<Share> shares = DealPadded({4, 4}, 3);
  EXPECT_EQ(Counts(shares), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(shares[1].real, 2);
  EXPECT_EQ(shares[2].real, 0);
  for (int64_t units = 1; units < 40; ++units) {
    for (int64_t ranks = 1; ranks <= 16; ++ranks) {
      const int64_t share = (units + ranks - 1) / ranks;
      ExpectPartition(DealPadded({units, units}, ranks), {units, units}, share * ranks);
    }
  }
}

TEST(CutRule, PadToIsCutLikeUnits) {
  const std::vector<Share> shares = DealEven(PadUnits(2, 5), 2);
  EXPECT_EQ(Counts(shares), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(shares[0].real, 2);
  EXPECT_EQ(shares[1].real, 0);
}

TEST(CutRule, DealAllRepeatsTheAxis) {
  const std::vector<Share> shares = DealAll({2, 3}, 4);
  ASSERT_EQ(shares.size(), 4u);
  for (const Share& share : shares) {
    EXPECT_EQ(share.count, 3);
    EXPECT_EQ(share.real, 2);
  }
}

TEST(CutRule, CheapestKeepsTheEvenDealWhereItIsBest) {
  EXPECT_EQ(Counts(DealCheapest({8, 8}, 5, GroupPrice(4, 1, 5))), (std::vector<int64_t>{2, 2, 2, 1, 1}));
}

TEST(CutRule, CheapestMovesBordersOffSharedGroups) {
  // Even 3/3/2 makes the middle rank touch both groups: 3 + 10. Keeping to 4 + 5 is cheaper.
  EXPECT_EQ(Counts(DealCheapest({8, 8}, 3, GroupPrice(4, 1, 5))), (std::vector<int64_t>{3, 1, 4}));
}

TEST(CutRule, NoContiguousDealIsCheaper) {
  for (int64_t groups = 1; groups <= 4; ++groups) {
    for (int64_t group = 1; group <= 4; ++group) {
      for (int64_t ranks = 1; ranks <= 5; ++ranks) {
        for (const double owner : {0.0, 0.7, 3.0, 50.0}) {
          const int64_t units = groups * group;
          const SharePrice price = GroupPrice(group, 1, owner);
          const std::vector<Share> shares = DealCheapest({units, units}, ranks, price);
          ExpectPartition(shares, {units, units}, units);
          double highest = 0;
          for (const Share& share : shares) highest = std::max(highest, price(share));
          EXPECT_NEAR(highest, ExhaustiveBest(0, units, ranks, price), 1e-9)
              << groups << " groups of " << group << " on " << ranks << ", owner " << owner;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trivet::plan
