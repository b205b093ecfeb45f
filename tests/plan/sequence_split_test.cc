// SPDX-License-Identifier: Apache-2.0
#include "plan/sequence_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "tests/plan/plan_fixtures.h"

namespace trivet::plan {
namespace {

using testing::HasSubstr;

std::vector<int64_t> Owners(const ContextSplit& split, int64_t length) {
  std::vector<int64_t> owners;
  for (int64_t position = 0; position < length; ++position) owners.push_back(split.OwnerOf(position));
  return owners;
}

TEST(SequenceSplit, ChunksByHand) {
  using List = std::vector<int64_t>;
  EXPECT_EQ(Owners({2, SequenceSplit::kContiguous, 6}, 8), (List{0, 0, 0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(Owners({3, SequenceSplit::kContiguous, 4}, 6), (List{0, 0, 1, 1, 0, 0})) << "the last part is empty";
  EXPECT_EQ(Owners({2, SequenceSplit::kZigzag, 8}, 10), (List{0, 0, 1, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(Owners({3, SequenceSplit::kZigzag, 5}, 6), (List{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(Owners({1, SequenceSplit::kZigzag, 5}, 3), (List{0, 0, 0}));
}

// By hand, of two ranks each: who computes a position, and who keeps it.
TEST(SequenceSplit, RowsAreDealtWithinWhatAContextGroupLeaves) {
  using List = std::vector<int64_t>;
  const auto owners = [](const RowSplit& split) {
    std::pair<List, List> of;
    for (int64_t position = 0; position < 10; ++position) {
      const RowOwner owner = split.OwnerOf(position);
      of.first.push_back(owner.context);
      of.second.push_back(owner.rank);
    }
    return of;
  };
  RowSplit rows{{2, SequenceSplit::kContiguous, 8}, 2};
  EXPECT_EQ(owners(rows), std::pair(List({0, 0, 0, 0, 1, 1, 1, 1, 0, 0}), List(10, kEveryRank)));
  rows.dealt = true;
  EXPECT_EQ(owners(rows), std::pair(List({0, 0, 0, 0, 1, 1, 1, 1, 0, 0}), List({0, 0, 1, 1, 0, 0, 1, 1, 0, 0})));
  rows.context_first = false;
  EXPECT_EQ(owners(rows), std::pair(List({0, 0, 1, 1, 0, 0, 1, 1, 0, 0}), List({0, 0, 0, 0, 1, 1, 1, 1, 0, 0})));
  rows = {{2, SequenceSplit::kZigzag, 8}, 2, true};
  EXPECT_EQ(owners(rows), std::pair(List({0, 0, 1, 1, 1, 1, 0, 0, 0, 0}), List({0, 0, 0, 0, 1, 1, 1, 1, 0, 0})));
  rows = {{1, SequenceSplit::kContiguous, 4}, 3, true};
  EXPECT_EQ(owners(rows).second, List({0, 0, 1, 1, 0, 0, 1, 1, 0, 0})) << "the third has none";
}

// Every position of a stretch is one place of one part, and parts are as long as they say.
TEST(SequenceSplit, PartsTileTheStretch) {
  for (const SequenceSplit split : {SequenceSplit::kContiguous, SequenceSplit::kZigzag}) {
    for (int64_t parts = 1; parts <= 5; ++parts) {
      for (int64_t length = 1; length <= 40; ++length) {
        std::set<std::pair<int64_t, int64_t>> places;
        for (int64_t at = 0; at < length; ++at) {
          const SequencePiece piece = PieceOf(split, at, length, parts);
          EXPECT_TRUE(piece.part >= 0 && piece.part < parts && piece.offset >= 0 && piece.offset < piece.length);
          EXPECT_TRUE(places.emplace(piece.part, piece.offset).second);
        }
        EXPECT_EQ(static_cast<int64_t>(places.size()), length);
      }
    }
  }
}

TEST(SequenceSplit, OfItsOwnEveryRankHasWholePages) {
  for (const SequenceSplit split : {SequenceSplit::kContiguous, SequenceSplit::kZigzag}) {
    for (const int64_t ranks : {1, 2, 3, 16}) {
      const ContextSplit context{ranks, split, DefaultStretch(split, ranks)};
      std::vector<int64_t> counts(static_cast<size_t>(ranks));
      for (int64_t position = 0; position < context.stretch; ++position) {
        EXPECT_EQ(context.OwnerOf(position), context.OwnerOf(position / 64 * 64));
        ++counts[static_cast<size_t>(context.OwnerOf(position))];
      }
      for (const int64_t count : counts) EXPECT_EQ(count, context.stretch / ranks);
    }
  }
}

TEST(SequenceSplit, NamesAndBack) {
  for (const SequenceSplit split : {SequenceSplit::kContiguous, SequenceSplit::kZigzag}) {
    EXPECT_EQ(ParseSequenceSplit(SequenceSplitName(split)).value(), split);
  }
  const Result<SequenceSplit> striped = ParseSequenceSplit("striped");
  ASSERT_FALSE(striped.ok());
  EXPECT_EQ(striped.error().code, Code::kUsage);
}

TEST(SequenceSplit, SharesOfSequencesHoldTheSame) {
  LayoutOptions options;
  options.ranks = 2;
  options.context = 3;
  options.context_split = SequenceSplit::kZigzag;
  options.stages = 2;
  const Layout layout = MakeLayout(DemoGeometry(), options).value();
  EXPECT_EQ(layout.world(), 12);
  EXPECT_EQ(layout.shards.size(), 12U);
  EXPECT_EQ(layout.context.stretch, 384) << "two chunks of a page for each";
  for (int64_t rank = 0; rank < layout.world(); ++rank) {
    const RankPlace place = layout.At(rank);
    EXPECT_EQ(layout.RankAt(place), rank);
    EXPECT_EQ(place.tp, rank % 2);
    EXPECT_EQ(place.cp, rank / 2 % 3);
    EXPECT_EQ(place.pp, rank / 6);
    EXPECT_EQ(layout.ShardOf(rank).stage, layout.stages[static_cast<size_t>(place.pp)]);
    EXPECT_EQ(layout.ShardOf(rank).vocab.begin, layout.ShardOf(place.tp).vocab.begin);
  }
}

TEST(SequenceSplit, BadSharesOfSequencesAreNamed) {
  LayoutOptions options;
  for (const int64_t context : {0, 17}) {
    options.context = context;
    const Result<Layout> layout = MakeLayout(DemoGeometry(), options);
    ASSERT_FALSE(layout.ok());
    EXPECT_EQ(layout.error().code, Code::kUsage);
    EXPECT_THAT(layout.error().message, HasSubstr("--cp: expected 1 to 16"));
  }
  options.context = 2;
  for (const int64_t stretch : {int64_t{-1}, int64_t{1} << 21}) {
    options.context_stretch = stretch;
    const Result<Layout> layout = MakeLayout(DemoGeometry(), options);
    ASSERT_FALSE(layout.ok());
    EXPECT_THAT(layout.error().message, HasSubstr("--cp-stretch"));
  }
}

}  // namespace
}  // namespace trivet::plan
