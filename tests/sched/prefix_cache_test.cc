// SPDX-License-Identifier: Apache-2.0
#include "sched/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Tokens of `pages` pages; page i is filled with first + i.
std::vector<TokenId> Tokens(TokenId first, int32_t pages) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < pages; ++i) tokens.insert(tokens.end(), kPageTokens, first + i);
  return tokens;
}

class PrefixCaching : public testing::Test {
 protected:
  // Makes all pages of `tokens` known, as a sequence would that computed them; the chain is held.
  std::vector<CachedPage*> Compute(const std::vector<TokenId>& tokens) {
    std::vector<CachedPage*> chain;
    for (size_t at = 0; at < tokens.size(); at += kPageTokens) {
      std::vector<int32_t> page;
      EXPECT_TRUE(pool_.Allocate(1, &page));
      CachedPage* parent = chain.empty() ? nullptr : chain.back();
      chain.push_back(cache_.Insert(parent, std::span(tokens).subspan(at), page[0]));
      if (chain.back()->page != page[0]) pool_.Free(&page);
    }
    return chain;
  }

  BlockPool pool_{8};
  PrefixCache cache_{&pool_, 100, 2};
};

TEST_F(PrefixCaching, FindsTheLongestKnownPrefix) {
  const auto chain = Compute(Tokens(1, 3));
  EXPECT_EQ(cache_.Find(Tokens(1, 3), 3), chain);
  EXPECT_THAT(cache_.Find(Tokens(1, 3), 2), ElementsAre(chain[0], chain[1]));
  EXPECT_THAT(cache_.Find(Tokens(2, 1), 1), IsEmpty()) << "a page is known after its parent only";
  std::vector<TokenId> parts = Tokens(1, 3);
  parts[2 * kPageTokens - 1] = 9;
  EXPECT_THAT(cache_.Find(parts, 3), ElementsAre(chain[0]));
  EXPECT_EQ(chain[2]->depth, 3);
}

TEST_F(PrefixCaching, SamePagesAreKeptOnce) {
  auto a = Compute(Tokens(1, 2)), b = Compute(Tokens(1, 2));
  EXPECT_EQ(a, b);
  EXPECT_EQ(a[1]->users, 2);
  EXPECT_EQ(cache_.size(), 2);
  EXPECT_EQ(pool_.free(), 6);
  cache_.Release(&a);
  EXPECT_EQ(cache_.idle(), 0);
  cache_.Release(&b);
  EXPECT_EQ(cache_.idle(), 2);
  EXPECT_EQ(pool_.free(), 6);
}

TEST_F(PrefixCaching, EvictsTheLongestUnusedFromItsEnd) {
  auto old = Compute(Tokens(1, 3)), young = Compute(Tokens(10, 2));
  cache_.Release(&old);
  cache_.Release(&young);
  cache_.Evict(2);
  EXPECT_EQ(cache_.Find(Tokens(1, 3), 3).size(), 1U);
  EXPECT_EQ(cache_.Find(Tokens(10, 2), 2).size(), 2U);
  EXPECT_EQ(pool_.free(), 5);
  cache_.Evict(3);
  EXPECT_EQ(cache_.size(), 0);
  EXPECT_EQ(pool_.free(), 8);
  EXPECT_EQ(cache_.evictions(), 5);
}

TEST_F(PrefixCaching, AUseMakesYoungAndHoldsAgainstEviction) {
  auto first = Compute(Tokens(1, 2)), second = Compute(Tokens(10, 2));
  cache_.Release(&first);
  cache_.Release(&second);
  auto again = cache_.Find(Tokens(1, 2), 1);
  cache_.Hold(again[0]);
  EXPECT_EQ(cache_.idle(), 3);
  cache_.Release(&again);
  cache_.Evict(3);  // the page after the used one, and both of the second
  EXPECT_EQ(cache_.Find(Tokens(1, 2), 2).size(), 1U);
}

TEST_F(PrefixCaching, SnapshotsTakeTheSlotUsedLongestAgo) {
  const auto chain = Compute(Tokens(1, 3));
  const int32_t a = cache_.ReserveSnapshot(), b = cache_.ReserveSnapshot();
  EXPECT_EQ(a, 100);
  EXPECT_EQ(b, 101);
  EXPECT_EQ(cache_.ReserveSnapshot(), kNoSlot);
  cache_.KeepSnapshot(chain[0], a);
  cache_.KeepSnapshot(chain[1], b);
  EXPECT_EQ(cache_.snapshots(), 2);
  cache_.UseSnapshot(chain[0]);
  EXPECT_EQ(cache_.ReserveSnapshot(), b);
  EXPECT_EQ(chain[1]->snapshot, kNoSlot);
  cache_.KeepSnapshot(chain[0], b);  // it has one
  EXPECT_EQ(chain[0]->snapshot, a);
  EXPECT_EQ(cache_.ReserveSnapshot(), b);
  cache_.KeepSnapshot(nullptr, b);
  EXPECT_EQ(cache_.ReserveSnapshot(), b);
}

TEST_F(PrefixCaching, AnEvictedPageGivesItsSnapshotBack) {
  auto chain = Compute(Tokens(1, 1));
  cache_.KeepSnapshot(chain[0], cache_.ReserveSnapshot());
  cache_.Release(&chain);
  cache_.Evict(1);
  EXPECT_EQ(cache_.snapshots(), 0);
  EXPECT_EQ(cache_.ReserveSnapshot(), 100);
}

TEST_F(PrefixCaching, MisuseAborts) {
  auto chain = Compute(Tokens(1, 1));
  EXPECT_DEATH(cache_.Evict(1), "1 of 0 pages");
  EXPECT_DEATH(cache_.KeepSnapshot(chain[0], 100), "slot 100 is not reserved");
  auto twice = chain;
  cache_.Release(&chain);
  EXPECT_DEATH(cache_.Release(&twice), "has no user");
}

}  // namespace
}  // namespace trivet::sched
