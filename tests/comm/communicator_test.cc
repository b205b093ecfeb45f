// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "tests/comm/parts.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

void Stall(std::mt19937* random) {
  if ((*random)() % 25 == 0) std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 400));
}

// Sizes around every border: shares of the two-shot form, one-shot to two-shot at 32 kB, pieces of 256 kB.
template <class T>
std::vector<int64_t> Sizes(int64_t ranks) {
  std::vector<int64_t> sizes = {0, 1, 2, ranks - 1, ranks, ranks + 1, 101};
  for (const int64_t bytes : {32768, 262144, 524288}) {
    for (const int64_t delta : {-1, 0, 1}) sizes.push_back(bytes / static_cast<int64_t>(sizeof(T)) + delta);
  }
  return sizes;
}

template <class T>
void WalkSizes() {
  for (const int64_t ranks : kRankCounts) {
    std::vector<std::vector<T>> expected;
    for (const int64_t size : Sizes<T>(ranks)) {
      expected.push_back(Sum<T>(ranks, static_cast<int64_t>(expected.size()), size));
    }
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunThreads(ranks, [&](int64_t rank) {
      Communicator comm(group.get(), rank);
      for (size_t i = 0; i < expected.size(); ++i) ReduceAndCompare(&comm, static_cast<int64_t>(i), expected[i]);
    });
  }
}

TEST(AllReduce, IntegersOfEverySize) { WalkSizes<int64_t>(); }
TEST(AllReduce, FloatsAreAddedInAscendingRankOrderOnEveryRank) { WalkSizes<float>(); }
TEST(AllReduce, BitPatternsOfEverySize) { WalkSizes<uint32_t>(); }

TEST(AllReduce, ThousandsOfCallsOfMixedSizesAndTypesUnderStalls) {
  for (const int64_t ranks : {2, 3, 5, 7, 8}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunThreads(ranks, [&](int64_t rank) {
      Communicator comm(group.get(), rank);
      std::mt19937 shared(99), mine(static_cast<uint32_t>(rank));
      for (int64_t call = 0; call < 1500 && !testing::Test::HasFatalFailure(); ++call) {
        // A few large ones among many small: consecutive calls use different algorithms and shares.
        const int64_t size = shared() % 50 == 0 ? 4000 + shared() % 9000 : 1 + shared() % 60;
        Stall(&mine);
        switch (shared() % 3) {
          case 0:
            ReduceAndCompare<int64_t>(&comm, call, size);
            break;
          case 1:
            ReduceAndCompare<float>(&comm, call, size);
            break;
          default:
            ReduceAndCompare<uint32_t>(&comm, call, size);
        }
      }
    });
  }
}

TEST(AllReduce, TimeIsCountedByRank) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  RunThreads(3, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(30));  // for which the others wait
    std::vector<int64_t> values(10, rank);
    EXPECT_TRUE(comm.AllReduce(std::span<int64_t>(values)).ok());
  });
  EXPECT_GE(group->collective_us(0).load(), 20000);
  EXPECT_GE(group->collective_us(1).load(), 20000);
  EXPECT_LT(group->collective_us(2).load(), group->collective_us(0).load());
}

TEST(AllReduce, AGroupOfOneKeepsEveryBit) {
  const std::unique_ptr<Group> group = MakeGroup(1);
  Communicator comm(group.get(), 0);
  for (const size_t count : {size_t{5}, size_t{20000}, size_t{100000}}) {
    std::vector<float> values(count, -0.0F);
    values[0] = std::numeric_limits<float>::infinity();
    values[1] = std::bit_cast<float>(0x7FC12345U);  // a NaN with a payload
    values[2] = std::numeric_limits<float>::denorm_min();
    const std::vector<float> before = values;
    ASSERT_TRUE(comm.AllReduce(std::span<float>(values)).ok());
    EXPECT_TRUE(SameBytes(values, before));
  }
}

TEST(AllReduce, AnAbortedGroupReturnsTheCause) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  Communicator comm(group.get(), 0);
  EXPECT_FALSE(comm.aborted());
  group->Abort("rank 1: out of memory");
  EXPECT_TRUE(comm.aborted());
  std::vector<int64_t> values(10);
  std::vector<float> full(10);
  EXPECT_EQ(comm.AllReduce(std::span(values)).error().message, "rank 1: out of memory");
  EXPECT_EQ(comm.GatherColumns({full.data(), 5, 5, 0}, 1, 10, full).error().message, "rank 1: out of memory");
  EXPECT_EQ(comm.Broadcast({}, true).error().message, "rank 1: out of memory");
  EXPECT_EQ(comm.Barrier().error().message, "rank 1: out of memory");
}

TEST(AllReduce, AMissingRankIsNamed) {
  const std::unique_ptr<Group> group = MakeGroup(3, 200000);
  RunThreads(3, [&](int64_t rank) {
    if (rank == 2) return;
    Communicator comm(group.get(), rank);
    std::vector<float> values(100000, 1.0F);
    const Status status = comm.AllReduce(std::span<float>(values));
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, testing::StartsWith("rank 2: "));
  });
}

// A matrix cut into column ranges, with rows that carry more than the cut.
void GatherAndCompare(Communicator* comm, int64_t rows, const std::vector<int64_t>& borders) {
  const auto rank = static_cast<size_t>(comm->rank());
  const int64_t full_columns = borders.back(), begin = borders[rank], columns = borders[rank + 1] - begin;
  const auto value = [&](int64_t row, int64_t column) { return static_cast<float>((row * 7919 + column) % 16777213); };
  const int64_t stride = columns + 3;
  std::vector<float> local(static_cast<size_t>(rows * stride), -1.0F);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) local[static_cast<size_t>(row * stride + i)] = value(row, begin + i);
  }
  std::vector<float> full(comm->rank() == 0 ? static_cast<size_t>(rows * full_columns) : 0, -2.0F);
  const Status status = comm->GatherColumns({local.data(), stride, columns, begin}, rows, full_columns, full);
  ASSERT_TRUE(status.ok()) << status.error().message;
  for (size_t i = 0; i < full.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    ASSERT_EQ(full[i], value(at / full_columns, at % full_columns)) << rows << " rows of " << full_columns;
  }
  // By pieces of whole rows.
  std::vector<float> pieces;
  const RowsSink sink = [&](const float* matrix, int64_t first, int64_t count, Backend where) {
    EXPECT_EQ(where, Backend::kCpu);
    EXPECT_EQ(first * full_columns, std::ssize(pieces));
    pieces.insert(pieces.end(), matrix, matrix + count * full_columns);
  };
  ASSERT_TRUE(comm->GatherColumns({local.data(), stride, columns, begin}, rows, full_columns, sink).ok());
  ASSERT_EQ(pieces, full);
}

TEST(GatherColumns, UnevenEmptyAndManyPieces) {
  for (const int64_t ranks : {1, 2, 3, 5, 8}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunThreads(ranks, [&](int64_t rank) {
      Communicator comm(group.get(), rank);
      std::mt19937 shared(7), mine(static_cast<uint32_t>(rank));
      for (int round = 0; round < 12; ++round) {
        // The fourth of twelve rounds is wide enough for three rows a piece.
        const int64_t full_columns = round % 4 == 3 ? 300000 : 1 + shared() % 500;
        const int64_t rows = round % 4 == 3 ? 7 : static_cast<int64_t>(shared() % 9);
        std::vector<int64_t> borders = {0, full_columns};
        for (int64_t i = 1; i < ranks; ++i) borders.push_back(static_cast<int64_t>(shared() % (full_columns + 1)));
        std::sort(borders.begin(), borders.end());
        Stall(&mine);
        GatherAndCompare(&comm, rows, borders);
      }
    });
  }
}

TEST(GatherColumns, ARowMayBeLongerThanASlot) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  RunThreads(3, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    GatherAndCompare(&comm, 2, {0, 1100000, 1100001, 2300000});
  });
}

TEST(Broadcast, ReachesEveryRankWhateverItsSize) {
  const int64_t sizes[] = {0, 1, 7, 8, 1000, kSlotBytes - 9, kSlotBytes - 8, kSlotBytes - 7, 10000019};
  for (const int64_t ranks : {1, 2, 3, 5}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunThreads(ranks, [&](int64_t rank) {
      Communicator comm(group.get(), rank);
      std::mt19937 mine(static_cast<uint32_t>(rank));
      for (const int64_t size : sizes) {
        std::vector<std::byte> message(static_cast<size_t>(size));
        for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i * 31 + i / 4099);
        Stall(&mine);
        const Result<std::vector<std::byte>> got = comm.Broadcast(
            rank == 0 ? std::span<const std::byte>(message) : std::span<const std::byte>(), size % 2 == 0);
        ASSERT_TRUE(got.ok());
        EXPECT_TRUE(*got == (rank == 0 ? std::vector<std::byte>() : message)) << size;
      }
    });
  }
}

TEST(Broadcast, PatientRanksWaitForRankZero) {
  const std::unique_ptr<Group> group = MakeGroup(3, 100000);
  const std::byte message[] = {std::byte{5}};
  RunThreads(3, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto got =
        comm.Broadcast(rank == 0 ? std::span<const std::byte>(message) : std::span<const std::byte>(), true);
    EXPECT_TRUE(got.ok()) << got.error().message;
  });
}

TEST(AnyReport, IsTheUnionOverRanks) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  RunThreads(3, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    for (uint32_t round = 0; round < 50; ++round) {
      const auto shown = [&](int64_t of) { return (round >> of) & 1 ? 1U << of : 0U; };
      comm.SetReport(shown(rank));
      ASSERT_TRUE(comm.Barrier().ok());
      EXPECT_EQ(comm.AnyReport(), shown(0) | shown(1) | shown(2));
      ASSERT_TRUE(comm.Barrier().ok());
    }
  });
}

TEST(Communicator, CollectivesCountAsProgress) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  RunThreads(2, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    const uint32_t before = comm.tick()->load();
    ASSERT_TRUE(comm.Barrier().ok());
    EXPECT_NE(comm.tick()->load(), before);
    EXPECT_EQ(comm.tick(), &group->progress(rank));
  });
}

// A peer that is behind may still read what was handed over before the abort.
TEST(Communicator, NothingIsHandedOverOnceTheGroupHasAborted) {
  const std::unique_ptr<Group> group = std::move(Group::Make({.ranks = 2})).value();
  group->Abort("a rank is gone");
  std::vector<float> values = {1, 2}, full(4);
  const std::vector<std::byte> message(16, std::byte{7});
  for (const int collective : {0, 1, 2}) {
    for (int64_t parity = 0; parity < 2; ++parity) std::fill_n(group->slot(0, parity), 128, std::byte{0x5A});
    Communicator comm(group.get(), 0);
    const Status status = collective == 0   ? comm.AllReduce(std::span(values))
                          : collective == 1 ? comm.GatherColumns({values.data(), 2, 2, 0}, 1, 4, full)
                                            : [&]() -> Status {
      const Result<std::vector<std::byte>> sent = comm.Broadcast(message, true);
      return sent.ok() ? Status() : Status(sent.error());
    }();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, group->AbortError().message);
    for (int64_t parity = 0; parity < 2; ++parity) {
      EXPECT_TRUE(std::all_of(group->slot(0, parity), group->slot(0, parity) + 128,
                              [](std::byte byte) { return byte == std::byte{0x5A}; }))
          << "collective " << collective;
    }
  }
}

// Longer than the boxes are; those that it does not concern pass on at once.
TEST(Communicator, HandMovesValuesBetweenTwoRanks) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  constexpr int64_t kLong = 3 * kSlotBytes / 4 + 5;
  RunThreads(3, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    for (const int64_t count : {int64_t{0}, int64_t{1}, kLong}) {
      std::vector<float> sent = Part<float>(rank, 1, count), values = sent;
      ASSERT_TRUE(comm.Hand(2, 0, values).ok());
      EXPECT_TRUE(values == (rank == 0 ? Part<float>(2, 1, count) : sent));
      ASSERT_TRUE(comm.Hand(rank, rank, sent).ok());
    }
  });
}

TEST(Communicator, AFaultIsARanksOfTheWhole) {
  const std::unique_ptr<Group> group = MakeGroup(4);
  Group* part = group->MakePart({2, 3}).value();
  const Fault fault{FaultKind::kPartialBF16, 3, 0, 0};
  RunThreads(2, [&](int64_t rank) {
    std::vector<float> values = {1.0001F};
    Communicator comm(part, rank, fault);
    comm.BeginStep();
    ASSERT_TRUE(comm.AllReduce(std::span(values)).ok());
    EXPECT_EQ(values[0], 1.0001F + 1.0F) << "the second rank of the part rounds";
  });
  const Fault elsewhere{FaultKind::kPartialBF16, 1, 0, 0};
  RunThreads(2, [&](int64_t rank) {
    std::vector<float> values = {1.0001F};
    Communicator comm(part, rank, elsewhere);
    comm.BeginStep();
    ASSERT_TRUE(comm.AllReduce(std::span(values)).ok());
    EXPECT_EQ(values[0], 1.0001F + 1.0001F);
  });
}

TEST(CommunicatorProcesses, AllCollectives) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  const std::vector<int> statuses = WaitProcesses(StartProcesses(3, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    std::mt19937 shared(5), mine(static_cast<uint32_t>(rank));
    for (int64_t call = 0; call < 400; ++call) {
      const int64_t size = shared() % 40 == 0 ? 40000 : 1 + shared() % 60;
      Stall(&mine);
      ReduceAndCompare<int64_t>(&comm, call, size);
      ReduceAndCompare<float>(&comm, call, size);
      ReduceAndCompare<uint32_t>(&comm, call, size);
    }
    GatherAndCompare(&comm, 7, {0, 1000, 1000, 300000});
    const std::vector<std::byte> message(10000019, std::byte{9});
    const auto got =
        comm.Broadcast(rank == 0 ? std::span<const std::byte>(message) : std::span<const std::byte>(), true);
    return got.ok() && (rank == 0 || *got == message);
  }));
  EXPECT_EQ(statuses, std::vector<int>(3, 0));
}

// What three ranks get from `sites` reductions of float sums in one step, with a fault planted.
std::vector<std::vector<float>> FaultyStep(const Fault& fault, int64_t sites) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  std::vector<std::vector<float>> results(static_cast<size_t>(3 * sites));
  RunThreads(3, [&](int64_t rank) {
    Communicator comm(group.get(), rank, fault);
    std::vector<float> warm_up(3, 1.0F);
    ASSERT_TRUE(comm.AllReduce(std::span<float>(warm_up)).ok());
    comm.BeginStep();
    for (int64_t site = 0; site < sites; ++site) {
      std::vector<uint32_t> bits(2, 0);
      ASSERT_TRUE(comm.AllReduce(std::span<uint32_t>(bits)).ok()) << "not a site";
      std::vector<float> values = Part<float>(rank, site, 200);
      ASSERT_TRUE(comm.AllReduce(std::span<float>(values)).ok());
      results[static_cast<size_t>(site * 3 + rank)] = values;
    }
  });
  return results;
}

TEST(PlantedFaults, ChangeTheirSiteAndNoOther) {
  for (const FaultKind kind : {FaultKind::kPartialBF16, FaultKind::kLocalScale}) {
    for (const int64_t site : {0, 2}) {
      const std::vector<std::vector<float>> results = FaultyStep({kind, 1, site, 0}, 4);
      for (int64_t at = 0; at < 4; ++at) {
        for (int64_t rank = 0; rank < 3; ++rank) {
          const bool right = SameBytes(results[static_cast<size_t>(at * 3 + rank)], Sum<float>(3, at, 200));
          EXPECT_EQ(right, at != site) << "rank " << rank << ", site " << at;
        }
      }
    }
  }
}

TEST(PlantedFaults, RankOrderChangesTheRankThatHasIt) {
  const std::vector<std::vector<float>> results = FaultyStep({FaultKind::kRankOrder, 1, 0, 0}, 1);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(SameBytes(results[rank], Sum<float>(3, 0, 200)), rank != 1) << rank;
}

// What the communicator says of its last sum is what its own code did.
TEST(CollectiveFacts, SayHowASumWasMade) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  RunThreads(3, [&](int64_t rank) {
    Communicator comm(group.get(), rank, {FaultKind::kPartialBF16, 1, 1, 0});
    EXPECT_EQ(comm.last().kind, "none");
    std::vector<int64_t> few(3, rank), many(200000, rank);
    ASSERT_TRUE(comm.AllReduce(std::span<int64_t>(few)).ok());
    EXPECT_EQ(comm.last().kind, "all-reduce");
    EXPECT_EQ(comm.last().actual, "one-shot");
    EXPECT_EQ(comm.last().configured, "one-shot");
    EXPECT_EQ(comm.last().order, "any");
    EXPECT_EQ(comm.last().accumulate, "i64");
    ASSERT_TRUE(comm.AllReduce(std::span<int64_t>(many)).ok());
    EXPECT_EQ(comm.last().actual, "two-shot");
    EXPECT_EQ(comm.last().configured, "two-shot");
    // The second sum of a step is the one with the fault.
    EXPECT_EQ(comm.last().round_at, rank == 1 ? "bf16, before the sum" : "the grid, before the sum");
    std::vector<float> floats(3, 1.0F);
    ASSERT_TRUE(comm.AllReduce(std::span<float>(floats)).ok());
    EXPECT_EQ(comm.last().order, "ascending ranks");
    EXPECT_EQ(comm.last().payload, "f32");
  });
  const std::unique_ptr<Group> alone = MakeGroup(1);
  Communicator comm(alone.get(), 0);
  std::vector<float> values(3, 1.0F);
  ASSERT_TRUE(comm.AllReduce(std::span<float>(values)).ok());
  EXPECT_EQ(comm.last().kind, "none");
}

// A group of one adds nothing, whatever mistake it makes with its part.
TEST(CollectiveFacts, OfOneRankHaveNoSum) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  Group* part = group->MakePart({1}).value();
  for (const int64_t faulty : {0, 1}) {
    Communicator comm(part, 0, {FaultKind::kPartialBF16, faulty, 0, 0});
    comm.BeginStep();
    std::vector<float> values = {1.0001F};
    ASSERT_TRUE(comm.AllReduce(std::span<float>(values)).ok());
    EXPECT_EQ(values[0], faulty == 1 ? 1.0F : 1.0001F);
    EXPECT_EQ(comm.last().kind, "none");
    EXPECT_EQ(comm.last().configured, "none");
    EXPECT_EQ(comm.last().actual, "none");
    EXPECT_EQ(comm.last().round_at, faulty == 1 ? "bf16, before the sum" : "none");
  }
}

}  // namespace
}  // namespace trivet::comm
