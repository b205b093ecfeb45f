// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/comm/peer_model.h"

namespace trivet::comm {
namespace {

constexpr auto kOneShot = ModelCall::kOneShot, kTwoShot = ModelCall::kTwoShot, kGather = ModelCall::kGather,
               kNorm = ModelCall::kNorm;

// Calls whose kinds and numbers of blocks follow each other in the ways that matter.
std::vector<std::vector<ModelCall>> Histories() {
  return {
      {{kOneShot, 2}, {kOneShot, 1, 2}, {kOneShot, 2}, {kOneShot, 1}, {kOneShot, 2, 2}},
      {{kOneShot, 1, 2}, {kOneShot, 2}, {kTwoShot, 1}, {kOneShot, 2}},
      {{kTwoShot, 2}, {kTwoShot, 1, 2}, {kTwoShot, 2}},
      {{kGather, 1, 2}, {kTwoShot, 1}, {kGather, 2}, {kOneShot, 1}},
      {{kOneShot, 1}, {kGather, 2}, {kOneShot, 2}, {kOneShot, 1}},
      {{kNorm, 2}, {kNorm, 2}, {kOneShot, 1, 2}, {kNorm, 2}},
      {{kTwoShot, 1}, {kNorm, 2}, {kGather, 1}, {kNorm, 2}},
      {{kTwoShot, 1, 1, 3}, {kTwoShot, 2}, {kTwoShot, 1, 1, 2}},
      {{kTwoShot, 1, 1, 2, true}, {kOneShot, 2}, {kTwoShot, 1, 1, 3, true}, {kTwoShot, 1}},
      {{kTwoShot, 2, 1, 2}, {kGather, 1}, {kTwoShot, 1, 1, 2, true}},
  };
}

TEST(PeerModel, TwoRanksAreRightInEveryOrder) {
  size_t states = 0;
  for (const std::vector<ModelCall>& calls : Histories()) {
    PeerModel model(2, calls, Mistake::kNone);
    EXPECT_EQ(model.Walk(), "");
    states += model.states();
  }
  EXPECT_GT(states, 10000U);
}

TEST(PeerModel, ThreeRanksAreRightInEveryOrder) {
  for (const std::vector<ModelCall>& calls : {std::vector<ModelCall>{{kOneShot, 1}, {kOneShot, 2}, {kOneShot, 1}},
                                              {{kOneShot, 1}, {kGather, 1}, {kOneShot, 1}},
                                              {{kNorm, 2}, {kOneShot, 1}, {kNorm, 2}},
                                              {{kTwoShot, 1}, {kGather, 1}, {kTwoShot, 1}},
                                              {{kTwoShot, 1, 1, 2, true}, {kTwoShot, 1, 1, 2}}}) {
    PeerModel model(3, calls, Mistake::kNone);
    EXPECT_EQ(model.Walk(), "");
    EXPECT_GT(model.states(), 1000U);
  }
}

TEST(PeerModel, NumbersMayWrap) {
  for (const uint32_t epoch : {UINT32_MAX - 2, UINT32_MAX - 1, UINT32_MAX}) {
    for (const std::vector<ModelCall>& calls : Histories())
      EXPECT_EQ(PeerModel(2, calls, Mistake::kNone, epoch).Walk(), "");
  }
}

// A counter that a block keeps for itself is behind after a call without that block, and its parity is another's.
TEST(PeerModel, FindsTheRaceOfCountersThatBlocksKeep) {
  EXPECT_NE(PeerModel(2, {{kOneShot, 2}, {kOneShot, 1}, {kOneShot, 2}, {kOneShot, 1, 2}}, Mistake::kOwnCounters).Walk(),
            "");
  EXPECT_NE(PeerModel(3, {{kOneShot, 2}, {kOneShot, 1}, {kOneShot, 2}, {kOneShot, 1, 2}}, Mistake::kOwnCounters).Walk(),
            "");
  EXPECT_NE(PeerModel(2, {{kNorm, 2}, {kOneShot, 1}, {kNorm, 2}, {kOneShot, 1, 2}}, Mistake::kOwnCounters).Walk(), "");
  EXPECT_EQ(PeerModel(2, {{kOneShot, 2}, {kOneShot, 2}, {kOneShot, 2}}, Mistake::kOwnCounters).Walk(), "")
      << "calls of one size never show it";
}

TEST(PeerModel, FindsThatOneHalfIsNotEnough) {
  EXPECT_NE(PeerModel(2, {{kOneShot, 1}, {kOneShot, 1}}, Mistake::kOneHalf).Walk(), "");
}

// Between two one-shot calls, a gather in which only rank 0 is waited for lets a rank run two calls ahead of a third.
TEST(PeerModel, FindsAGatherThatWaitsForOneRank) {
  EXPECT_NE(PeerModel(3, {{kOneShot, 1}, {kGather, 1}, {kOneShot, 1}}, Mistake::kGatherAsksOne).Walk(), "");
}

TEST(PeerModel, FindsAFlagThatIsAheadAndMissed) {
  EXPECT_EQ(PeerModel(2, {{kGather, 1}, {kTwoShot, 1}}, Mistake::kExactFlags).Walk(), "all wait for each other");
}

// With one flag for all chunks, whoever has come to the first seems to have come to all.
TEST(PeerModel, FindsThatEveryChunkNeedsAFlag) {
  EXPECT_NE(PeerModel(2, {{kTwoShot, 1, 1, 2}}, Mistake::kOneFlag).Walk(), "");
  EXPECT_EQ(PeerModel(2, {{kTwoShot, 1, 1, 1}, {kTwoShot, 1, 1, 1}}, Mistake::kOneFlag).Walk(), "");
}

TEST(NextEpoch, AlternatesParityAndSkipsZero) {
  for (const uint32_t epoch : {0U, 1U, 77U, UINT32_MAX - 1, UINT32_MAX}) {
    EXPECT_NE(NextEpoch(epoch), 0U);
    EXPECT_NE(HalfOf(NextEpoch(epoch)), HalfOf(epoch));
  }
}

TEST(ShareOf, CoversEveryItemOnce) {
  for (const int64_t count : {0, 1, 5, 6, 7, 1000003}) {
    for (const int64_t parts : {1, 2, 3, 5, 7, 16}) {
      int64_t at = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Share share = ShareOf(count, parts, i);
        EXPECT_EQ(share.begin, at);
        at = share.end;
      }
      EXPECT_EQ(at, count);
    }
  }
}

// Weights of every kind: equal, random, of ranks without a share, of one rank alone.
std::vector<Weights> ManyWeights(int64_t ranks) {
  std::vector<int64_t> alone(static_cast<size_t>(ranks)), some(alone);
  alone.back() = 1;
  std::vector<Weights> many = {Weights::Equal(ranks), Weights::Of(alone)};
  std::mt19937 random(static_cast<uint32_t>(ranks));
  for (int64_t i = 0; i < 20; ++i) {
    for (int64_t& weight : some) weight = random() % 3 == 0 ? 0 : random() % (Weights::kMost + 1);
    some[random() % some.size()] = 1 + random() % Weights::kMost;
    many.push_back(Weights::Of(some));
  }
  return many;
}

TEST(Weights, ShareOutEveryItemOnce) {
  for (int64_t ranks = 1; ranks <= kMaxPeers; ++ranks) {
    for (const Weights& weights : ManyWeights(ranks)) {
      for (const int64_t items : {int64_t{0}, int64_t{1}, ranks, int64_t{1009}, kPeerPieceBytes / 16}) {
        const Shares shares = weights.SharesOf(items);
        int64_t at = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const Share share = weights.ShareOf(items, rank);
          EXPECT_EQ(share.begin, at);
          EXPECT_EQ(share.begin, shares.begin[rank]);
          at = share.end;
          EXPECT_LE(share.end - share.begin, weights.Largest(items));
          if (weights.weight(rank) == 0) {
            EXPECT_EQ(share.begin, share.end);
          }
        }
        EXPECT_EQ(at, items);
        EXPECT_EQ(shares.begin[ranks], items);
      }
    }
    const Weights equal = Weights::Equal(ranks);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(equal.ShareOf(1000003, rank).begin, ShareOf(1000003, ranks, rank).begin);
    }
    EXPECT_EQ(equal, Weights::Of(equal.All()));
  }
}

TEST(Weights, NoShareOfACallIsLargerThanItsPlace) {
  for (int64_t ranks = 2; ranks <= kMaxPeers; ++ranks) {
    const PeerLayout layout{ranks};
    for (const Weights& weights : ManyWeights(ranks)) {
      const int64_t units = layout.TwoShotUnits(weights);
      EXPECT_GE(units, kPeerPieceBytes / 16 / ranks);
      EXPECT_LE(units, kPeerPieceBytes / 16);
      for (int64_t of = units; of > units - 40; --of) {
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const Share share = weights.ShareOf(of, rank);
          EXPECT_LE(share.end - share.begin, layout.PartUnits());
        }
      }
    }
    EXPECT_EQ(layout.TwoShotUnits(Weights::Equal(ranks)), kPeerPieceBytes / 16) << "equal shares fill a piece";
  }
}

TEST(ChunksFor, AreOfHalfAMegabyteAndAtMostSixteen) {
  EXPECT_EQ(ChunksFor(1), 1);
  EXPECT_EQ(ChunksFor(2 * kChunkBytes), 2);
  EXPECT_EQ(ChunksFor(kPeerPieceBytes * 4), kMaxChunks);
}

TEST(PeerLayout, PlacesAreApart) {
  for (int64_t ranks = 1; ranks <= kMaxPeers; ++ranks) {
    const PeerLayout layout{ranks};
    std::vector<Share> places = {{0, kMaxBlocks * 4}, {PeerLayout::kGivenUp, PeerLayout::kGivenUp + 4}};
    for (int64_t from = 0; from < ranks; ++from) {
      places.push_back({PeerLayout::Ping(from), PeerLayout::Ping(from) + 4});
      for (const Phase phase : {kBegun, kDone}) {
        for (int64_t i = 0; i < kMaxChunks * kMaxBlocks; ++i) {
          const int64_t flag = PeerLayout::Flag(phase, i / kMaxBlocks, i % kMaxBlocks, from);
          places.push_back({flag, flag + 4});
        }
      }
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t packets = layout.Packets(half, from), part = layout.Part(half, from);
        places.push_back({packets, packets + kPacketWords * PeerLayout::kPacketBytes});
        // The largest share of a rank, in whole units.
        places.push_back({part, part + layout.PartUnits() * PeerLayout::kUnitBytes});
        if (from == 0) places.push_back({layout.Total(half), layout.Total(half) + kPeerPieceBytes});
      }
    }
    places.push_back({layout.Matrix(), layout.Matrix() + kPeerPieceBytes});
    std::sort(places.begin(), places.end(), [](const Share& a, const Share& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < places.size(); ++i) EXPECT_LE(places[i - 1].end, places[i].begin) << ranks << " ranks";
    EXPECT_LE(places.back().end, layout.Bytes());
    for (const int64_t at : {layout.Packets(0, 0), layout.Part(1, ranks - 1), layout.Total(1), layout.Matrix()}) {
      EXPECT_EQ(at % 16, 0);
    }
  }
}

TEST(BlocksFor, LeavesRoomForWhatIsWaitedFor) {
  for (const int64_t processors : {20, 108, 132}) {
    for (int64_t ranks = 1; ranks <= kMaxPeers; ++ranks) {
      for (const int64_t items : {0, 1, 512, 513, 100000, 100000000}) {
        const int64_t blocks = BlocksFor(items, 512, processors, ranks);
        EXPECT_GE(blocks, 1);
        EXPECT_LE(blocks, kMaxBlocks);
        EXPECT_LE(blocks * ranks, std::max(processors / 2, ranks));
      }
    }
  }
  EXPECT_EQ(BlocksFor(5120, 512, 132, 1), 10);
}

TEST(OneShotBytes, FitTheirPackets) {
  for (int64_t ranks = 2; ranks <= kMaxPeers; ++ranks) EXPECT_LE(OneShotBytes(ranks), kPacketWords * 8);
}

}  // namespace
}  // namespace trivet::comm
